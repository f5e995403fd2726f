"""fit: from a density and a gradient budget to a network and a tuned sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import compiled_target
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.fit_loop import least_budget, run_fit
from tfp_lhnn.learning.fit_result import Fit
from tfp_lhnn.model.model import Model, as_model
from tfp_lhnn.support.arguments import check_count, checked_hidden_units, stateless_seed
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["check_learnable", "checked_config", "fit", "fit_model"]


def fit(
    target_log_prob_fn: Callable[..., tf.Tensor],
    initial_state: Any,
    gradient_budget: int = 10_000,
    *,
    seed: Any,
    hidden_units: tuple[int, ...] = (64, 64, 64),
    config: FitConfig | None = None,
    jit_compile: bool = True,
    progress: bool | None = None,
) -> Fit:
    """Learns a target from as few true gradients as it takes.

    Chains come down from dispersed starts on short trajectories with true gradients.
    Each round then trains a network on all points evaluated so far, and the chains make
    exact transitions on the target with it: NUTS on the network proposes a point, value
    and gradient of the target are evaluated there, and delayed acceptance decides. When
    most proposals are accepted, true trajectories set out from the frontier of what is
    known. They go on as long as they find what the network does not know or a heavy
    tail leads farther out. All that is said of a network is measured at points that it
    has not learned from. `docs/fit.md` has the loop on one page.

    The fit stops when delayed acceptance accepts 95% of the network's proposals
    and true trajectories find nothing that the network misses, in two rounds in a row
    that agree with the one before them (`Fit.is_confirmed`). It also stops when the
    budget is spent. No network is trained for a target that is Gaussian to a tenth of a
    nat. The fit stops, too, if a network can learn nothing of what a Gaussian leaves
    over, such as ripples.

    Args:
        target_log_prob_fn: takes the parts of the state, `[n, event...]` each, and
            returns log densities `[n]`.
        initial_state: one point, or one for each of some chains; see
            `tfp_lhnn.Model.from_target`.
        gradient_budget: the largest number of true gradients to evaluate. It is never
            exceeded.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        hidden_units: widths of the network's hidden layers.
        config: the numbers that the fit uses; `None` for the usual ones.
        jit_compile: whether XLA compiles the target.
        progress: whether to show progress; `None` shows it in terminals and notebooks.

    Returns:
        The network, the tuned settings, the history and the cost.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if the budget is too small, or no start has a finite density; the
            message names the argument.
    """
    check_count("gradient_budget", gradient_budget, 1)
    hidden_units = checked_hidden_units(hidden_units)
    config = checked_config(config)
    words = stateless_seed(seed, "fit")
    model = as_model(target_log_prob_fn, initial_state)
    # Earlier evaluations by a `Model` that the user made are not costs of this fit.
    before = model.num_evaluations if model is target_log_prob_fn else 0
    check_learnable(model, gradient_budget, config)
    probe = model.probe()
    spent = model.num_evaluations - before
    target = compiled_target(model, probe.log_prob, {}, jit_compile)
    return fit_model(
        model,
        GradientLedger(target, gradient_budget, spent),
        words=words,
        hidden_units=hidden_units,
        reporter=ProgressReporter(progress),
        config=config,
    )


def checked_config(config: FitConfig | None) -> FitConfig:
    """The settings of a fit.

    Raises:
        TypeError: if it is something else.
    """
    if config is None:
        return FitConfig()
    if not isinstance(config, FitConfig):
        raise TypeError(
            f"`config` is a {type(config).__name__}; expected a tfp_lhnn.FitConfig."
        )
    return config


def check_learnable(model: Model, gradient_budget: int, config: FitConfig) -> None:
    """Refuses a model that `fit` can't learn.

    Args:
        model: the model.
        gradient_budget: the largest number of true gradients to evaluate.
        config: of the fit.

    Raises:
        ValueError: if the model has no gradient, or the budget is too small.
    """
    least = least_budget(model.dim, config)
    if gradient_budget < least:
        raise ValueError(
            f"`gradient_budget` is {gradient_budget}; a model of {model.dim} "
            f"dimensions needs {least} or more."
        )
    model.check_gradient()


def fit_model(
    model: Model,
    ledger: GradientLedger,
    *,
    words: tf.Tensor,
    hidden_units: tuple[int, ...],
    reporter: ProgressReporter,
    config: FitConfig,
) -> Fit:
    """`fit` of a `Model`, with arguments that have been checked.

    Args:
        model: the model.
        ledger: with the target's compiled functions and the budget.
        words: of `stateless_seed`, `[2]` int32.
        hidden_units: as in `fit`.
        reporter: of progress.
        config: of the fit.
    """
    generator = np.random.default_rng(words.numpy().view(np.uint32))
    return run_fit(model, ledger, generator, hidden_units, reporter, config)
