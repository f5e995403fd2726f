"""How good a run is: costs, effective samples, and errors against the truth."""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Any, NamedTuple

import numpy as np

from benchmarks.problem import Problem, Run

__all__ = ["FALSE_ALARM_RATE", "METRICS", "Metric", "measure"]

# The rate for all z-tests of one run together: one correct run in a thousand fails. It
# is nominal: errors are assumed normal, with a spread estimated from the draws, which
# may miss the tail that makes it large. More runs fail for skewed quantities, and many
# for the funnel's arms.
FALSE_ALARM_RATE = 1e-3
GOAL_ESS = 10_000
_NUM_SIMULATIONS = 2000


class Metric(NamedTuple):
    """What a number means.

    Attributes:
        name: its key in results.
        unit: of it.
        direction: `"higher"` or `"lower"` is better; `""` if neither.
        meaning: in words.
    """

    name: str
    unit: str
    direction: str
    meaning: str


# For each kind of call: its name, its unit, and a text for all phases together.
_CALLS = (
    ("gradients", "gradients", "all, warm-up and training included"),
    ("densities", "densities", "without a gradient, all phases"),
    ("calls", "calls", "gradients and densities, all phases"),
)
# For each cost that is compared with effective samples: its name and unit for one, the
# metrics of its total and of the kept draws, and unit and meaning for 10 000 of them.
_COSTS = (
    (
        *("gradient", "gradient", "gradients", "gradients_kept", "gradients"),
        "warm-up, and 10 000 effective samples at the kept draws' rate",
    ),
    ("call", "call", "calls", "calls_kept", "calls", "the same of calls"),
    ("second", "s", "seconds", "seconds_sampling", "s", "the same of seconds"),
)


def _call_metrics(name: str, unit: str, meaning: str) -> tuple[Metric, Metric]:
    return (
        Metric(name, unit, "lower", meaning),
        Metric(f"{name}_kept", unit, "lower", "those of the kept draws"),
    )


def _ess_metrics(moment: str, of_what: str) -> tuple[Metric, Metric]:
    return (
        Metric(
            f"ess_min{moment}", "draws", "higher", f"smallest bulk ESS of {of_what}"
        ),
        Metric(f"ess_mean{moment}", "draws", "higher", "mean over coordinates of that"),
    )


def _rate_metrics(per: str, unit: str, total: str, kept: str) -> tuple[Metric, Metric]:
    name, unit = f"ess_per_{per}", f"1/{unit}"
    return (
        Metric(name, unit, "higher", f"ess_min over {total}"),
        Metric(f"{name}_kept", unit, "higher", f"ess_min over {kept}"),
    )


METRICS = (
    *(metric for kind in _CALLS for metric in _call_metrics(*kind)),
    *_ess_metrics("", "x"),
    *_ess_metrics("_squares", "x²"),
    *(metric for cost in _COSTS for metric in _rate_metrics(*cost[:4])),
    *(
        Metric(f"{per}s_for_10000_ess", unit, "lower", meaning)
        for per, _, _, _, unit, meaning in _COSTS
    ),
    Metric(
        "b2",
        "",
        "lower",
        "largest squared error of E[x] over Var[x], or of E[x²] over Var[x²]",
    ),
    Metric("b2_noise", "", "", "expectation of b2 for draws without bias"),
    Metric("b2_noise_95", "", "", "what b2 then exceeds in one run of twenty"),
    Metric("z_mean", "", "lower", "largest error of a mean, in standard errors"),
    Metric("z_sd", "", "lower", "largest error of an sd, in standard errors"),
    Metric("num_z", "", "", "number of z-tests"),
    Metric(
        "z_limit", "", "", "that all of them stay below, but in 1 run of 1000 (nominal)"
    ),
    Metric("z_pass", "", "higher", "1 if they do"),
    Metric("r_hat", "", "lower", "largest rank-normalised split R-hat"),
    Metric("seconds_compiling", "s", "lower", "0 if part of the others"),
    Metric("seconds_warmup", "s", "lower", "pilot, training, adaptation"),
    Metric("seconds_sampling", "s", "lower", "of the kept draws"),
    Metric("seconds", "s", "lower", "all"),
)


def measure(problem: Problem, run: Run) -> dict[str, float]:
    """Every metric of a run, and its tail values under `tail/NAME`."""
    found = _costs(run)
    x = np.asarray(problem.quantities(run.draws.astype(np.float64)), np.float64)
    if not np.all(np.isfinite(x)):
        raise ValueError(f"{np.sum(~np.isfinite(x))} quantities are not finite.")
    # Chains that never moved have no spread to divide by.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found |= _effective_samples(x) | _errors(problem, x)
    found |= _rates(found)
    flat = x.reshape(-1, x.shape[-1])
    for name, (_, estimate) in problem.truth.tails.items():
        found[f"tail/{name}"] = float(estimate(flat))
    return found


def _costs(run: Run) -> dict[str, float]:
    warmup, kept = run.warmup, run.sampling
    return {
        "gradients": warmup.gradients + kept.gradients,
        "gradients_kept": kept.gradients,
        "densities": warmup.densities + kept.densities,
        "densities_kept": kept.densities,
        "calls": warmup.gradients + warmup.densities + kept.gradients + kept.densities,
        "calls_kept": kept.gradients + kept.densities,
        "seconds_compiling": run.seconds.compiling,
        "seconds_warmup": run.seconds.warmup,
        "seconds_sampling": run.seconds.sampling,
        "seconds": run.seconds.total,
    }


def _effective_samples(x: np.ndarray) -> dict[str, float]:
    plain, squares = _ess(x, "bulk"), _ess(x**2, "bulk")
    arviz = _arviz()
    r_hat = [
        float(arviz.rhat(x[..., i])) if len(x) > 1 else math.nan
        for i in range(x.shape[-1])
    ]
    return {
        "ess_min": float(plain.min()),
        "ess_mean": float(plain.mean()),
        "ess_min_squares": float(squares.min()),
        "ess_mean_squares": float(squares.mean()),
        "r_hat": float(np.max(r_hat)),
    }


def _rates(found: dict[str, float]) -> dict[str, float]:
    ess = found["ess_min"]
    rates = {}
    for per, _, total, kept, *_ in _COSTS:
        rates[f"ess_per_{per}"] = ess / max(found[total], 1e-9)
        # Infinite if the kept draws have no such cost.
        rate = ess / found[kept] if found[kept] else math.inf
        rates[f"ess_per_{per}_kept"] = rate
        before = found[total] - found[kept]
        rates[f"{per}s_for_10000_ess"] = before + GOAL_ESS / rate
    return rates


def _errors(problem: Problem, x: np.ndarray) -> dict[str, float]:
    truth = problem.truth
    mean = x.mean(axis=(0, 1))
    centred = (x - mean) ** 2
    sd = np.sqrt(centred.mean(axis=(0, 1)))
    mean_variance = sd**2 / _ess(x, "mean")
    # The error of the sd follows from that of the variance by the delta method.
    variance_sd = centred.std(axis=(0, 1))
    if truth.square_sd is not None:
        # If the mean is 0, the truth gives this spread, including the tails.
        known = np.where(truth.mean == 0.0, truth.square_sd, 0.0)
        variance_sd = np.maximum(variance_sd, known)
    sd_error = variance_sd / np.sqrt(_ess(centred, "mean")) / (2.0 * sd + 1e-300)
    z_mean = np.abs(mean - truth.mean) / np.sqrt(mean_variance + truth.mean_error**2)
    z_sd = np.abs(sd - truth.sd) / np.sqrt(sd_error**2 + truth.sd_error**2 + 1e-300)
    # A truth may leave out the standard deviations.
    z_sd = z_sd[np.isfinite(truth.sd)]
    number = z_mean.size + z_sd.size
    limit = statistics.NormalDist().inv_cdf(1.0 - FALSE_ALARM_RATE / (2.0 * number))
    worst = max(z_mean.max(), z_sd.max(initial=0.0))
    return {
        "z_mean": float(z_mean.max()),
        "z_sd": float(z_sd.max(initial=0.0)),
        "num_z": number,
        "z_limit": limit,
        "z_pass": float(worst <= limit),
        **_bias(problem, x, mean_variance),
    }


def _bias(problem: Problem, x: np.ndarray, mean_variance: np.ndarray) -> dict[str, Any]:
    """`b²`, and its size by chance, from normal errors with the run's own ESS."""
    truth, squares = problem.truth, x**2
    square_sd = truth.square_sd
    if square_sd is None:
        square_sd = squares.std(axis=(0, 1))
    sd = np.where(np.isfinite(truth.sd), truth.sd, x.std(axis=(0, 1)))
    second = truth.sd**2 + truth.mean**2
    second_error = 2.0 * np.hypot(
        truth.sd * truth.sd_error, truth.mean * truth.mean_error
    )
    square_variance = squares.var(axis=(0, 1)) / _ess(squares, "mean")
    error = np.concatenate(
        [
            (x.mean(axis=(0, 1)) - truth.mean) / sd,
            (squares.mean(axis=(0, 1)) - second) / square_sd,
        ]
    )
    chance = np.concatenate(
        [
            np.sqrt(mean_variance + truth.mean_error**2) / sd,
            np.sqrt(square_variance + second_error**2) / square_sd,
        ]
    )
    # A truth may leave out the standard deviations, and so the second moments.
    error, chance = error[np.isfinite(error)], chance[np.isfinite(error)]
    normals = np.random.default_rng(0).standard_normal((_NUM_SIMULATIONS, chance.size))
    levels = np.max((normals * chance) ** 2, axis=1)
    return {
        "b2": float(np.max(error**2)),
        "b2_noise": float(levels.mean()),
        "b2_noise_95": float(np.quantile(levels, 0.95)),
    }


def _ess(x: np.ndarray, method: str) -> np.ndarray:
    """The ESS of each quantity of `[chains, draws, k]`; 1 if it never changes."""
    arviz = _arviz()
    found = np.array(
        [float(arviz.ess(x[..., i], method=method)) for i in range(x.shape[-1])]
    )
    is_stuck = np.ptp(x, axis=(0, 1)) == 0.0
    return np.where(is_stuck | ~np.isfinite(found), 1.0, np.maximum(found, 1.0))


def _arviz() -> Any:
    with warnings.catch_warnings():
        # ArviZ announces its next major version at every import.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
