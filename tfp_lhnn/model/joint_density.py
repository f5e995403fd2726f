"""The density of a joint distribution given some of its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.model.density import (
    check_dtype,
    checked_value,
    digest,
    evaluate,
    trace_batch,
    untaken_batch_size,
)
from tfp_lhnn.support.compile_time import unknown_at_compile_time
from tfp_lhnn.support.compiled_cache import CompiledFunction
from tfp_lhnn.support.state_layout import StateLayout

__all__ = ["JointDensity"]

# Numbers constrained at once: 2 MB, however many draws there are.
_BLOCK_VALUES = 2**18

_Pinned = tfp.experimental.distributions.JointDistributionPinned


class JointDensity:
    """A joint distribution of which some variables are pinned, a `Density`.

    Attributes:
      source: The joint distribution.
      names: The names of the variables that are not pinned.
      shapes: The shape of each, by name.
      layout: Of their unconstrained forms in a flat `[n, dim]`.
      dtype: tf.float32 or tf.float64.
      num_evaluations: Densities evaluated to see whether it takes batches.
    """

    def __init__(self, jd: Any, pins: Mapping[str, Any]) -> None:
        """Pins and checks a joint distribution.

        Args:
          jd: A `tfd.JointDistribution*`, or one pinned by `experimental_pin`.
          pins: The observed values by name.

        Raises:
          TypeError: If a type is wrong.
          ValueError: As `Model.from_joint_distribution`.
        """
        if isinstance(jd, _Pinned):
            jd, pins = jd.distribution, {**jd.pins, **pins}
        names = _component_names(jd)
        _check_pin_names(pins, names)
        # Must be outside graphs: TFP caches these distributions for all later calls,
        # and inside a graph it would cache tensors of that graph.
        components, example = (
            _by_name(structure, names)
            for structure in jd.sample_distributions(seed=tf.constant([0, 0]))
        )
        _refuse_nested(components, example)
        _refuse_batch_shapes(jd, names)
        self._pins = {
            name: _checked_pin(name, value, example[name])
            for name, value in pins.items()
        }
        latent = {name: example[name] for name in names if name not in pins}
        self._kinds = [_unconstrained_kind(name, components[name]) for name in latent]
        self.dtype = _common_dtype(latent)
        self._pinned = jd.experimental_pin(**self._pins)
        self._structure = self._pinned.dtype
        self._vectorised = bool(jd.use_vectorized_map)
        self.source = jd
        self.names: tuple[str, ...] = tuple(latent)
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(value.shape) for name, value in latent.items()
        }
        unconstrained = self._inverse(list(latent.values()))
        self.layout = StateLayout(
            tuple(tuple(part.shape) for part in unconstrained), list
        )
        self.num_evaluations = 0
        if not self._vectorised:
            self._check_batches(f"tfd.{type(jd).__name__.lstrip('_')}AutoBatched")
        self._compiled: Callable[[tf.Tensor], list[tf.Tensor]] | None = None

    def _pack(self, parts: Sequence[tf.Tensor]) -> Any:
        """The structure in which TFP wants the parts."""
        if isinstance(self._structure, dict):
            return type(self._structure)(zip(self.names, parts, strict=True))
        if hasattr(self._structure, "_fields"):
            return type(self._structure)(*parts)
        return type(self._structure)(parts)

    def _unpack(self, structure: Any) -> list[tf.Tensor]:
        named = _by_name(structure, self.names)
        return [named[name] for name in self.names]

    # These methods take one point, or many if the distribution is written for that.
    # Bijectors are made anew, since they cache tensors of the graph in which they were
    # used.

    def _forward(self, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        bijector = self._pinned.experimental_default_event_space_bijector()
        return self._unpack(bijector.forward(self._pack(parts)))

    def _inverse(self, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        bijector = self._pinned.experimental_default_event_space_bijector()
        return self._unpack(bijector.inverse(self._pack(parts)))

    def _joint_density(self, parts: list[tf.Tensor]) -> tf.Tensor:
        bijector = self._pinned.experimental_default_event_space_bijector()
        point = self._pack(parts)
        value = _by_name(bijector.forward(point), self.names)
        return self._pinned.unnormalized_log_prob(
            **value
        ) + bijector.forward_log_det_jacobian(point, bijector.forward_min_event_ndims)

    def _for_many(self, fn: Callable[..., Any], parts: list[tf.Tensor]) -> Any:
        return tf.vectorized_map(fn, parts) if self._vectorised else fn(parts)

    def log_prob(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """Log densities `[n]` of unconstrained parts, with the Jacobian."""
        parts = unknown_at_compile_time(parts)
        value = self._for_many(self._joint_density, parts)
        return checked_value(value, self.dtype, "the log density")

    def unconstrain(self, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        """By the distributions' own bijectors."""
        return self._for_many(self._inverse, parts)

    def _check_batches(self, remedy: str) -> None:
        """Refuses a model that is right for one point but not for many."""
        message = (
            "the model is not written for many points at once: {}. Use " + remedy + ", "
            "which needs no care for batches."
        )
        try:
            trace_batch(self)
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise ValueError(message.format(error)) from error
        n = untaken_batch_size(self)
        q = np.random.default_rng(1).uniform(-1, 1, (n, self.layout.dim))
        together = evaluate(self, q)
        # Shapes may fit by chance although broadcasting mixes up the points.
        last = tf.constant(q[-1], self.dtype)
        alone = self._joint_density(self.layout.unflatten(last)).numpy()
        self.num_evaluations = n + 1
        if not np.allclose(together[-1], alone, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ValueError(
                message.format(
                    f"a point has log density {alone} alone, and {together[-1]} "
                    "among others"
                )
            )

    def constrain(self, rows: np.ndarray) -> list[np.ndarray]:
        """The variables, `[n, ...]` each, at `[n, dim]`; block by block."""
        out = [
            np.empty((len(rows), *shape), self.dtype.as_numpy_dtype)
            for shape in self.shapes.values()
        ]
        dim = self.layout.dim
        values = sum(int(np.prod(shape)) for shape in self.shapes.values()) + dim
        block = int(np.clip(_BLOCK_VALUES // values, 1, 4096))
        if self._compiled is None:
            self._compiled = tf.function(
                lambda q: self._for_many(self._forward, self.layout.unflatten(q)),
                autograph=False,
            ).get_concrete_function(tf.TensorSpec([block, dim], self.dtype))
        for begin in range(0, len(rows), block):
            # The last block is filled up, so that one compiled function suffices.
            index = np.minimum(np.arange(begin, begin + block), len(rows) - 1)
            parts = self._compiled(tf.constant(rows[index], self.dtype))
            for array, part in zip(out, parts, strict=True):
                array[begin : begin + block] = part[: len(rows) - begin]
        return out

    def prior(self, n: int, seed: tf.Tensor) -> np.ndarray:
        """Unconstrained draws `[n, dim]` of the variables, without the data."""

        # One draw at a time: TFP warns that vectorised seeded draws are slow.
        def draw(seed: tf.Tensor) -> tf.Tensor:
            sample = self._unpack(self._pinned.sample_unpinned(seed=seed))
            return self.layout.flatten(self._inverse(sample))

        seeds = tfp.random.split_seed(seed, n=n, salt="prior")
        compiled = CompiledFunction(draw, jit_compile=False)
        return np.stack([compiled(seed).numpy() for seed in tf.unstack(seeds)])

    def signature(self) -> list[str]:
        """The distributions, their bijectors, and the pins bit by bit."""
        pins = [f"{name} {digest(pin.numpy())}" for name, pin in self._pins.items()]
        return [*self._kinds, *sorted(pins)]


def _component_names(jd: Any) -> list[str]:
    """The names of a joint distribution's variables, in its order."""
    structure = jd.dtype
    if isinstance(structure, Mapping):
        return list(structure)
    if hasattr(structure, "_fields"):
        return list(structure._fields)
    if hasattr(jd, "resolve_graph"):
        return [name for name, _ in jd.resolve_graph()]
    raise ValueError(
        f"the variables of this {type(jd).__name__} have no names (`sample_dtype`?); "
        "expected some, to pin them by."
    )


def _by_name(structure: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(structure, Mapping):
        return dict(structure)
    if hasattr(structure, "_asdict"):
        return dict(structure._asdict())
    return dict(zip(names, structure, strict=True))


def _refuse_nested(components: Mapping[str, Any], example: Mapping[str, Any]) -> None:
    """Refuses variables that are joint distributions themselves."""
    for name, value in example.items():
        if tf.nest.is_nested(value):
            kind = type(components[name]).__name__
            raise ValueError(
                f"variable `{name}` is itself a {kind}; expected one array."
            )


def _common_dtype(latent: Mapping[str, tf.Tensor]) -> tf.DType:
    dtypes = {name: value.dtype for name, value in latent.items()}
    if len(set(dtypes.values())) > 1:
        listed = (f"{name} is {dtype.name}" for name, dtype in dtypes.items())
        raise TypeError(f"variables have dtypes: {', '.join(listed)}; expected one.")
    dtype = next(iter(dtypes.values()))
    check_dtype(dtype, "the state")
    return dtype


def _check_pin_names(pins: Mapping[str, Any], names: Sequence[str]) -> None:
    variables = ", ".join(names)
    unknown = [name for name in pins if name not in names]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: no variables of the model; it has {variables}."
        )
    if not pins:
        raise ValueError(
            "nothing is pinned, so there is no posterior: pass the observed variables "
            f"by name, such as `{names[-1]}=data`. The model has {variables}."
        )
    if len(pins) == len(names):
        raise ValueError(f"all of {variables} are pinned; nothing is left to sample.")


def _checked_pin(name: str, value: Any, example: tf.Tensor) -> tf.Tensor:
    """The pin as a Tensor in the dtype of its variable."""
    expected = tuple(example.shape)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"the pin `{name}` is a {type(value).__name__}; expected numbers."
        )
    if array.shape != expected:
        hint = ""
        if array.shape[1:] == expected:
            hint = (
                f" For {len(array)} independent observations, make the variable a "
                f"tfd.Sample(..., {len(array)})."
            )
        raise ValueError(
            f"the pin `{name}` has shape {array.shape}; in the model, `{name}` has "
            f"shape {expected}.{hint}"
        )
    converted = array.astype(example.dtype.as_numpy_dtype)
    if np.isnan(converted).any():
        raise ValueError(f"the pin `{name}` has NaNs; expected observed values only.")
    if converted.dtype.kind in "biu" and (converted != array).any():
        raise ValueError(
            f"the pin `{name}` has fractions; in the model, it is {converted.dtype}."
        )
    return tf.constant(converted)


def _refuse_batch_shapes(jd: Any, names: Sequence[str]) -> None:
    """Refuses a batch of models, where one was meant."""
    shape = jd.batch_shape
    if isinstance(shape, tf.TensorShape):
        if shape.rank:
            raise ValueError(
                f"the model has batch shape {shape}; expected one model: give it "
                "`batch_ndims=0`."
            )
        return
    batches = [
        f"{name} {part}" for name, part in _by_name(shape, names).items() if part.rank
    ]
    if batches:
        kind = type(jd).__name__.lstrip("_")
        raise ValueError(
            f"variables have batch shapes ({', '.join(batches)}), which make a tfd."
            f"{kind} many models. Use tfd.{kind}AutoBatched, or make each an event by "
            "tfd.Independent or tfd.Sample."
        )


def _unconstrained_kind(name: str, distribution: Any) -> str:
    """Says what a variable is; refuses one that can't be sampled by gradients."""
    kind = type(distribution).__name__
    bijector = None
    if distribution.dtype.is_floating:
        try:
            bijector = distribution.experimental_default_event_space_bijector()
        except Exception as error:  # whatever its constructor stumbled over
            raise ValueError(
                f"TFP cannot unconstrain variable `{name}`, a {kind}: {error}"
            ) from error
    if bijector is None:
        raise ValueError(
            f"variable `{name}`, a {kind}, is discrete or fixed: it has no gradient to "
            "sample by. Pin it, or sum it out of the model."
        )
    return f"{name} {kind} {bijector.name}"
