"""Checks of a kernel's arguments and state, each with a message that helps."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.support.arguments import check_count
from tfp_lhnn.support.target_calls import call_target, missing_gradient

__all__ = [
    "check_choice",
    "check_depth",
    "check_gradient",
    "check_log_prob",
    "check_max_energy_diff",
    "check_num_transitions",
    "check_probability",
    "check_residual_rule",
    "check_step_size",
    "check_target",
    "check_thresholds",
    "check_trust",
    "step_size_tensors",
    "target_value",
]


def check_target(target_log_prob_fn: Any) -> None:
    """Refuses a target that cannot be called."""
    if not callable(target_log_prob_fn):
        raise TypeError(
            "`target_log_prob_fn` must be callable; got "
            f"{type(target_log_prob_fn).__name__}."
        )


def check_step_size(step_size: Any) -> None:
    """Refuses step sizes that are not positive, where their values are known."""
    steps = step_size if isinstance(step_size, (list, tuple)) else [step_size]
    if not steps:
        raise ValueError("`step_size` is empty; expected at least one value.")
    for step in steps:
        if step is None or isinstance(step, (Mapping, list, tuple)):
            raise TypeError(
                f"`step_size` must be a number, or a flat list of them; got {step!r}."
            )
        if tf.is_tensor(step) and not step.dtype.is_floating:
            raise TypeError(
                f"`step_size` must be a floating-point number; got {step.dtype.name}."
            )
        value = tf.get_static_value(step) if tf.is_tensor(step) else step
        if isinstance(value, tf.Variable):
            value = value.numpy() if tf.executing_eagerly() else None
        if value is None:
            continue
        value = np.asarray(value)
        if value.dtype.kind not in "fiu":
            raise TypeError(f"`step_size` must be a number; got {step!r}.")
        if not (np.isfinite(value) & (value > 0)).all():
            raise ValueError(f"`step_size` must be positive and finite; got {value}.")


def step_size_tensors(step_size: Any, dtype: tf.DType) -> Any:
    """The step sizes as Tensors of the state's dtype, in the same structure."""
    for step in tf.nest.flatten(step_size):
        if tf.is_tensor(step) and step.dtype != dtype:
            raise TypeError(
                f"`step_size` is {step.dtype.name}; expected {dtype.name}, as the "
                "state is."
            )
    return tf.nest.map_structure(
        lambda step: tf.convert_to_tensor(step, dtype, name="step_size"), step_size
    )


def check_num_transitions(value: Any, name: str) -> None:
    """Refuses what is no count of 1 or more, where its value is known."""
    if not tf.is_tensor(value):
        check_count(name, value, 1)
        return
    if not value.dtype.is_integer or value.shape.rank not in (0, None):
        raise TypeError(
            f"`{name}` is {value.dtype.name} of shape {value.shape}; expected one "
            "integer."
        )
    static = None if isinstance(value, tf.Variable) else tf.get_static_value(value)
    if static is not None:
        check_count(name, int(static), 1)


def target_value(
    target_log_prob_fn: Callable[..., Any], parts: Sequence[tf.Tensor]
) -> tf.Tensor:
    """What the target says of a state, as a Tensor; refuses what cannot be one."""
    value = call_target(target_log_prob_fn, parts)
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`target_log_prob_fn` returned a {type(value).__name__}; expected a "
            "Tensor of log densities."
        ) from error


def check_gradient(
    target_log_prob_fn: Callable[..., Any], parts: Sequence[tf.Tensor]
) -> None:
    """Refuses a target without a gradient; traces it and evaluates nothing."""
    try:
        reason = missing_gradient(target_log_prob_fn, parts)
    except Exception:
        # Calling it for the state will tell; some targets run eagerly alone.
        return
    if reason is not None:
        raise ValueError(
            f"`target_log_prob_fn` has no gradient: {reason}. Without one, use "
            '`error_monitor="none"`, or delayed acceptance with '
            "`true_transition_probability=0`."
        )


def check_thresholds(max_hnn_energy_diff: float, max_energy_diff: float) -> None:
    """Refuses thresholds that are not positive, or in the wrong order."""
    _check_number(max_hnn_energy_diff, "max_hnn_energy_diff")
    if not (max_hnn_energy_diff > 0 or max_hnn_energy_diff == -math.inf):
        raise ValueError(
            "`max_hnn_energy_diff` must be positive (or minus infinity, for true "
            f"gradients throughout); got {max_hnn_energy_diff}."
        )
    check_max_energy_diff(max_energy_diff)
    if max_hnn_energy_diff > max_energy_diff:
        raise ValueError(
            f"`max_hnn_energy_diff` ({max_hnn_energy_diff}) must not exceed "
            f"`max_energy_diff` ({max_energy_diff}): the first asks for true "
            "gradients, the second gives up."
        )


def check_residual_rule(
    max_residual: float, network_energy_offset: float, trust_network_fn: Any
) -> None:
    """Refuses what cannot say where the network is trusted."""
    _check_number(max_residual, "max_residual")
    _check_number(network_energy_offset, "network_energy_offset")
    # Finite, so that an energy that is not is never trusted.
    if not 0 <= max_residual < math.inf:
        raise ValueError(
            f"`max_residual` must be finite and not negative; got {max_residual}."
        )
    if not math.isfinite(network_energy_offset):
        raise ValueError(
            f"`network_energy_offset` must be finite; got {network_energy_offset}."
        )
    if trust_network_fn is not None and not callable(trust_network_fn):
        raise TypeError(
            "`trust_network_fn` must be callable; got "
            f"{type(trust_network_fn).__name__}."
        )


def check_trust(is_trusted: Any, log_prob: tf.Tensor) -> None:
    """Refuses what a rule returned if it is not one answer for each chain."""
    is_trusted = tf.convert_to_tensor(is_trusted)
    if is_trusted.dtype != tf.bool or not is_trusted.shape.is_compatible_with(
        log_prob.shape
    ):
        raise ValueError(
            f"`trust_network_fn` returned {is_trusted.dtype.name} of shape "
            f"{is_trusted.shape}; expected bool of shape {log_prob.shape}, one for "
            "each chain."
        )


def check_probability(value: Any, name: str) -> None:
    """Refuses what is no probability."""
    _check_number(value, name)
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be between 0 and 1; got {value}.")


def check_max_energy_diff(max_energy_diff: float) -> None:
    """Refuses a threshold that is not positive and finite."""
    _check_number(max_energy_diff, "max_energy_diff")
    # Finite, since the energy error of a leaf that is not finite counts as infinite.
    if not 0 < max_energy_diff < math.inf:
        raise ValueError(
            f"`max_energy_diff` must be positive and finite; got {max_energy_diff}."
        )


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}.")


def check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Refuses what is not one of the names."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {tuple(choices)}; got {value!r}.")


def check_depth(max_tree_depth: int) -> None:
    """Refuses trees whose directions and leaves do not fit into 32 bits."""
    if max_tree_depth > 24:
        raise ValueError(
            f"`max_tree_depth` is {max_tree_depth}; expected 24 or less (a tree of 24 "
            "doublings has 16 million leaves)."
        )


def check_log_prob(log_prob: tf.Tensor, parts: Sequence[tf.Tensor]) -> None:
    """Refuses values of the target that no chain can start with.

    The finiteness of values is checked when they are known (eagerly), and by an
    assertion in a graph; XLA drops assertions.
    """
    if not log_prob.dtype.is_floating or log_prob.dtype != parts[0].dtype:
        raise TypeError(
            f"`target_log_prob_fn` returned {log_prob.dtype.name} for a state of "
            f"{parts[0].dtype.name}; expected the same floating type."
        )
    for part in parts:
        rank = log_prob.shape.rank
        if rank is None or part.shape.rank is None:
            raise ValueError(
                f"`target_log_prob_fn` returned shape {log_prob.shape} for a state of "
                f"shape {part.shape}; both ranks must be known before running."
            )
        if not part.shape[rank:].is_fully_defined():
            raise ValueError(
                f"`init_state` has shape {part.shape}; expected an event shape (after "
                f"{rank} dimensions of chains) known before running: say it by "
                "tf.ensure_shape, or in the `input_signature`."
            )
        if not part.shape[:rank].is_compatible_with(log_prob.shape):
            raise ValueError(
                f"`target_log_prob_fn` returned shape {log_prob.shape} for a state of "
                f"shape {part.shape}; expected the leading (chain) dimensions of the "
                "state."
            )
    is_finite = tf.reduce_all(tf.math.is_finite(log_prob))
    message = (
        "`init_state` has a log density that is not finite in some chain; start every "
        "chain where `target_log_prob_fn` is finite."
    )
    if tf.executing_eagerly():
        if not bool(is_finite):
            raise ValueError(f"{message} Got {log_prob.numpy()}.")
    else:
        tf.debugging.Assert(is_finite, [message])
