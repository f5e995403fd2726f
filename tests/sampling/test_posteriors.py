"""Posteriors whose truth `inference_gym` bundles: right, or loudly doubted.

Every run compares the mean and the standard deviation of each coordinate with the
truth. The limit makes all comparisons of one run fail together by chance once in 1000
runs; there are 18 runs with a fixed seed each.
"""

import itertools
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import tfp_lhnn
from benchmarks import metrics
from benchmarks.problem import Problem, Run, Seconds, Tally

pytestmark = pytest.mark.slow

BUDGETS = (2000, 10_000, 50_000)
NAMES = (
    "eight_schools_non_centred",
    "eight_schools_centred",
    "german_credit",
    "ill_conditioned_gaussian_100",
    "banana",
    "neals_funnel",
)
# Whose fits have to succeed with 10 000 gradients.
EASY = ("eight_schools_non_centred", "german_credit", "ill_conditioned_gaussian_100")
FEWEST_EFFECTIVE = 100


class Outcome(NamedTuple):
    """What a run found, and the warnings that it gave."""

    found: dict[str, float]
    doubts: list[str]

    @property
    def error(self) -> float:
        """Largest of the means of x and x², in standard deviations."""
        return np.sqrt(self.found["b2"])

    @property
    def chance(self) -> float:
        """What `error` is below in 95% of unbiased runs with that ESS."""
        return np.sqrt(self.found["b2_noise_95"])


def run(problem: Problem, budget: int) -> Outcome:
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        posterior = tfp_lhnn.sample(
            4000,
            problem.log_prob,
            initial_state=problem.starts(16, budget),
            n_chains=8,
            gradient_budget=budget,
            seed=[budget, 1],
            progress=False,
        )
    assert posterior.attrs["target_gradients"] <= budget
    draws = posterior.posterior["x"].values
    assert np.all(np.isfinite(draws))
    found = metrics.measure(
        problem, Run(draws, Tally(0, 0), Tally(0, 0), Seconds(0.0, 0.0, 1.0), {})
    )
    return Outcome(
        found | {"gradients": posterior.attrs["target_gradients"]},
        [
            str(w.message)
            for w in record
            if issubclass(w.category, tfp_lhnn.SamplingWarning)
        ],
    )


@pytest.mark.parametrize("name", NAMES)
def test_right_or_loudly_doubted_and_never_worse_for_more_budget(name):
    pytest.importorskip("inference_gym", reason="make test-slow installs it")
    from benchmarks.gym_problems import gym_problem

    problem = gym_problem(name)
    outcomes = {budget: run(problem, budget) for budget in BUDGETS}
    for budget, (found, doubts) in outcomes.items():
        # Shown by pytest's -rA, and if something fails.
        print(
            f"{name}, budget {budget}: {found['gradients']} gradients, worst z "
            f"{max(found['z_mean'], found['z_sd']):.1f} of {found['z_limit']:.1f}, "
            f"b² {found['b2']:.2g} (95% by chance {found['b2_noise_95']:.2g}), "
            f"{len(doubts)} warnings {doubts[:1]}"
        )
    for budget, (found, doubts) in outcomes.items():
        is_right = found["z_pass"] and found["ess_min"] >= FEWEST_EFFECTIVE
        assert doubts or is_right, f"silently wrong with {budget}"
    if name in EASY:
        assert not outcomes[10_000].doubts
    # Chains that do not mix know nothing of their error. They said so: see above.
    known = [o for o in outcomes.values() if o.found["ess_min"] >= FEWEST_EFFECTIVE]
    for less, more in itertools.pairwise(known):
        # By the triangle inequality, if the bias has not grown. Both errors above their
        # 95% is rarer than 1 in 400, and the bound needs more than that.
        assert more.error <= less.error + less.chance + more.chance
    if name != "neals_funnel":
        assert len(known) >= 2
