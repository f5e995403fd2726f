"""fit: from a density and a gradient budget to a network and a tuned sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import compiled_target
from tfp_lhnn.learning.fit_result import Fit
from tfp_lhnn.learning.fit_run import FitRun, least_budget
from tfp_lhnn.model.model import Model, as_model
from tfp_lhnn.support.arguments import check_count, checked_hidden_units, stateless_seed
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["check_learnable", "fit", "fit_model"]


def fit(
    target_log_prob_fn: Callable[..., tf.Tensor],
    initial_state: Any,
    gradient_budget: int = 10_000,
    *,
    seed: Any,
    hidden_units: tuple[int, ...] = (64, 64, 64),
    jit_compile: bool = True,
    progress: bool | None = None,
) -> Fit:
    """Learns a target from as few true gradients as it takes.

    A pilot runs short trajectories with true gradients from dispersed starts; every
    point it evaluates is learned from. Then, round by round, a network is trained, NUTS
    is run on the network alone, and the true density and gradient are evaluated at a
    few of the points it went to: first at random, which tells how good the fit is, and
    then, if it is not good yet, where the error is probably large. True trajectories
    set out from the farthest of them, and go on as long as they find what the network
    does not know or a heavy tail leads farther out. It stops when delayed acceptance
    would accept 95% of the network's proposals and nothing escapes it, in two rounds in
    a row that agree with the one before them (`Fit.is_confirmed`), or when the budget
    is spent. Of a target that is Gaussian to a tenth of a nat no network is trained; if
    one can make nothing of what a Gaussian leaves over, such as ripples, that is the
    end, too.

    Args:
        target_log_prob_fn: takes the parts of the state, `[n, event...]` each, and
            returns log densities `[n]`.
        initial_state: one point, or one for each of some chains; see
            `tfp_lhnn.Model.from_target`.
        gradient_budget: most true gradients to evaluate. It is never exceeded.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        hidden_units: widths of the network's hidden layers.
        jit_compile: whether XLA compiles the target.
        progress: whether to show progress; `None`: in terminals and notebooks.

    Returns:
        The network, the tuned settings, the history and what it cost.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if the budget is too small, or no start has a finite density; the
            message names the argument.
    """
    check_count("gradient_budget", gradient_budget, 1)
    hidden_units = checked_hidden_units(hidden_units)
    words = stateless_seed(seed, "fit")
    model = as_model(target_log_prob_fn, initial_state)
    # What a model that the user made has evaluated before is not this fit's.
    before = model.num_evaluations if model is target_log_prob_fn else 0
    check_learnable(model, gradient_budget)
    probe = model.probe()
    spent = model.num_evaluations - before
    target = compiled_target(model, probe.log_prob, {}, jit_compile)
    return fit_model(
        model,
        GradientLedger(target, gradient_budget, spent),
        words=words,
        hidden_units=hidden_units,
        reporter=ProgressReporter(progress),
    )


def check_learnable(model: Model, gradient_budget: int) -> None:
    """Refuses what `fit` can't learn from.

    Args:
        model: the model.
        gradient_budget: most true gradients to evaluate.

    Raises:
        ValueError: if the model has no gradient, or the budget is too small.
    """
    least = least_budget(model.dim)
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
) -> Fit:
    """`fit` of a `Model`, with arguments that have been checked.

    Args:
        model: the model.
        ledger: with the target's compiled functions and the budget.
        words: of `stateless_seed`, `[2]` int32.
        hidden_units: as in `fit`.
        reporter: of progress.
    """
    generator = np.random.default_rng(words.numpy().view(np.uint32))
    return FitRun(model, ledger, generator, hidden_units, reporter).result()
