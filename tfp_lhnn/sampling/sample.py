"""sample: from a model to a posterior in one call."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import compiled_target
from tfp_lhnn.learning.fit import check_learnable, checked_config, fit_model
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.fit_result import Fit
from tfp_lhnn.model.model import as_model
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.posterior.diagnostics import summarize, warn
from tfp_lhnn.sampling.checkpoint import Checkpoint
from tfp_lhnn.sampling.manifest import ProbeValues, Value
from tfp_lhnn.sampling.sampling_run import (
    Plan,
    SamplingRun,
    compiling_meanwhile,
    sampler_settings,
)
from tfp_lhnn.support.arguments import (
    check_count,
    check_path,
    checked_hidden_units,
    stateless_seed,
)
from tfp_lhnn.support.arviz_import import az
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["sample"]

_METHODS = ("delayed_acceptance", "nuts")

# Draws in which chains move from the network's density to the target's. Each draw costs
# a density for each chain.
_NUM_BURNIN_DRAWS = 100


# Relative differences of the probe's values that rounding can cause if a run is resumed
# with another version of TensorFlow, or on another machine.
_PROBE_TOLERANCES = {"float32": 1e-5, "float64": 1e-10}


def sample(
    n_draws: int,
    model: Any,
    *,
    initial_state: Any = None,
    n_chains: int = 4,
    gradient_budget: int = 10_000,
    method: str = "delayed_acceptance",
    seed: Any,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fit: Fit | None = None,
    hidden_units: tuple[int, ...] = (64, 64, 64),
    config: FitConfig | None = None,
    num_burnin_draws: int = _NUM_BURNIN_DRAWS,
    keep_warmup: bool = False,
    jit_compile: bool = True,
    **pins: Any,
) -> az.InferenceData:
    """Draws from a posterior whose gradients are expensive.

    Learns the model from at most `gradient_budget` true gradients (see
    `tfp_lhnn.fit`), then samples it exactly: NUTS on the network makes a proposal, and
    one true density per draw and chain decides whether it is accepted. If the fit is
    poor, the rest of the budget is spent on transitions with true gradients, spread
    evenly over the draws.

    Args:
        n_draws: draws of each chain.
        model: a `target_log_prob_fn` with an `initial_state`, or a
            `tfd.JointDistribution*` whose observed variables are given as keywords.
        initial_state: one point, or one for each of some chains; see
            `tfp_lhnn.Model.from_target`. A joint distribution needs none.
        n_chains: number of chains.
        gradient_budget: the largest number of true gradients, of all chains and phases
            together. It is never exceeded.
        method: `"delayed_acceptance"`: one density per draw; or `"nuts"`: one density
            per leaf of the tree, more robust where the network is wrong. Both are
            exact.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        progress: whether to show progress; `None` shows it in terminals and notebooks.
        checkpoint: a directory. Every chunk of draws is on disk before the next begins.
            The same call, made later, continues from there and returns the same draws,
            bit for bit.
        fit: the fit of an earlier run with this model; it is used as it is.
        hidden_units: widths of the network's hidden layers.
        config: the numbers that the fit uses; `None` for the usual ones.
        num_burnin_draws: draws before those that are kept.
        keep_warmup: whether these are returned too.
        jit_compile: whether XLA compiles the target; `False` for targets that it
            cannot take.
        **pins: observed variables of a joint distribution, by name.

    Returns:
        `posterior` under the model's names, `sample_stats`, and attributes with the
        costs of all phases. See `tfp_lhnn.to_inference_data` and
        `tfp_lhnn.summarize`; the warnings of the latter are also issued as Python
        warnings.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an argument is out of range, observed variables are missing, no
            start has a finite density, or the checkpoint is another run's.
        OSError: if the checkpoint cannot be written; what is finished stays readable.
    """
    began = time.perf_counter()
    _check_arguments(n_draws, n_chains, num_burnin_draws, gradient_budget, method)
    hidden_units = checked_hidden_units(hidden_units)
    config = checked_config(config)
    if fit is not None and not isinstance(fit, Fit):
        raise TypeError(f"`fit` is a {type(fit).__name__}; expected a tfp_lhnn.Fit.")
    if checkpoint is not None:
        check_path("checkpoint", checkpoint)
    words = stateless_seed(seed, "sample")
    density = as_model(model, initial_state, pins)
    # Earlier evaluations by a `Model` that the user made are not costs of this run.
    before = density.num_evaluations if density is model else 0
    if fit is None:
        check_learnable(density, gradient_budget, config)
    elif fit.network.dim != density.dim:
        raise ValueError(
            f"`fit` is of a model of {fit.network.dim} dimensions; this one has "
            f"{density.dim}."
        )
    probe = density.probe()
    spent = density.num_evaluations - before
    target = compiled_target(density, probe.log_prob, pins, jit_compile)
    reporter = ProgressReporter(progress)

    def make_fit() -> Fit:
        number = n_draws + num_burnin_draws
        with compiling_meanwhile(
            target,
            LatentHNN(density.dim, hidden_units, seed=0),
            sampler_settings(number, n_chains, method),
        ):
            return fit_model(
                density,
                GradientLedger(target, gradient_budget, spent),
                words=stateless_seed(words, "fit"),
                hidden_units=hidden_units,
                reporter=reporter,
                config=config,
            )

    with contextlib.ExitStack() as stack:
        store = None
        if checkpoint is not None:
            identity: dict[str, Value] = {
                "model": density.fingerprint(),
                "probe": ProbeValues(
                    tuple(probe.log_prob.tolist()),
                    _PROBE_TOLERANCES[density.dtype.name],
                ),
                "seed": " ".join(str(word) for word in words.numpy()),
                "network": _network_identity(fit, hidden_units, config),
                "gradient_budget": gradient_budget,
                "method": method,
                "n_chains": n_chains,
                "n_draws": n_draws,
                "num_burnin_draws": num_burnin_draws,
                "jit_compile": int(jit_compile),
            }
            store = stack.enter_context(Checkpoint(checkpoint, identity))
        is_own = fit is None
        if fit is None:
            fit = _own_fit(store, make_fit)
        plan = Plan.of(
            n_draws, num_burnin_draws, n_chains, method, gradient_budget, fit, is_own
        )
        run = SamplingRun(density, target, fit, is_own, plan, words, store, reporter)
        began_sampling = time.perf_counter()
        draws = run.draws()
        ended = time.perf_counter()
    posterior = run.inference_data(
        draws,
        keep_warmup,
        {
            "method": method,
            "gradient_budget": gradient_budget,
            **_fit_attrs(fit),
            "seconds": ended - began,
            "seconds_fit": began_sampling - began,
            "seconds_sampling": ended - began_sampling,
        },
    )
    # Not counted by the fit or the chains: model checks, and starts that were replaced.
    beside = run.num_evaluations + (0 if is_own else spent)
    posterior.attrs["target_evaluations"] += beside
    # Cumulative tallies and the like, which the posterior holds in another form.
    del draws
    warn(summarize(posterior), stacklevel=3)
    return posterior


def _check_arguments(
    n_draws: int,
    n_chains: int,
    num_burnin_draws: int,
    gradient_budget: int,
    method: str,
) -> None:
    check_count("n_draws", n_draws, 1)
    check_count("n_chains", n_chains, 1)
    check_count("num_burnin_draws", num_burnin_draws, 0)
    check_count("gradient_budget", gradient_budget, 1)
    if method not in _METHODS:
        raise ValueError(f"`method` is {method!r}; expected one of {_METHODS}.")


def _fit_attrs(fit: Fit) -> dict[str, Any]:
    """The posterior's attributes of a fit; its costs count even if it was given."""
    return {
        "fit_gradients": fit.num_gradients,
        "fit_evaluations": fit.num_evaluations,
        "fit_is_good": int(fit.is_good),
        "fit_is_confirmed": int(fit.is_confirmed),
        "fit_message": fit.message,
        "fit_energy_error": fit.energy_error,
        "fit_acceptance": fit.acceptance,
        "num_surrogate_transitions": fit.num_surrogate_transitions,
        "nuts_gradients_per_effective_sample": fit.nuts_gradients_per_effective_sample,
    }


def _own_fit(store: Checkpoint | None, make: Callable[[], Fit]) -> Fit:
    """A new fit, stored before it is used, or that of the run that is resumed."""
    if store is None:
        return make()
    arrays = store.load("fit")
    if arrays is None:
        arrays = make().to_arrays()
        store.save("fit", arrays)
    # A new fit goes through arrays too, so that both are the same bit for bit.
    return Fit.from_arrays(arrays)


def _network_identity(
    fit: Fit | None, hidden_units: tuple[int, ...], config: FitConfig
) -> str:
    if fit is None:
        return f"to be trained, hidden_units={tuple(hidden_units)}, {config}"
    digest = hashlib.sha256()
    for weight in fit.network.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()
