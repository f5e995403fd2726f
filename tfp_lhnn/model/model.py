"""What `fit` and `sample` work on: one flat, unconstrained density."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.model.density import (
    Density,
    batch_log_prob,
    digest,
    evaluate,
    untaken_batch_size,
)
from tfp_lhnn.model.joint_density import JointDensity
from tfp_lhnn.model.starts import Starts, find_starts
from tfp_lhnn.model.target_density import TargetDensity
from tfp_lhnn.support.arguments import check_count, stateless_seed
from tfp_lhnn.support.target_calls import gradient_fault

__all__ = ["Model", "Probe", "Starts", "as_model"]

# Distances of a probe's points from the initial state. The farthest point may be
# outside of the support; the nearest hardly ever is.
_DISTANCES = (1.0, 0.1, 0.01)

_JointDistribution = tfp.distributions.JointDistribution
_Pinned = tfp.experimental.distributions.JointDistributionPinned


def as_model(
    model: Any, initial_state: Any = None, pins: Mapping[str, Any] | None = None
) -> Model:
    """Makes a `Model` of whatever the user passes as one.

    Args:
      model: A `target_log_prob_fn`, a `tfd.JointDistribution*`, one of these pinned by
        `experimental_pin`, or a `Model`, which comes back as it is.
      initial_state: As in `Model.from_target` or `Model.from_joint_distribution`.
      pins: Observed values by name, for a joint distribution.

    Returns:
      The model.

    Raises:
      TypeError: If `model` is none of these, or has no use for the other arguments.
      ValueError: As the two constructors.
    """
    if isinstance(model, (_JointDistribution, _Pinned)):
        return Model.from_joint_distribution(model, pins or {}, initial_state)
    if pins:
        raise TypeError(
            f"unexpected arguments {', '.join(pins)}; only the variables of a "
            "tfd.JointDistribution can be pinned."
        )
    if isinstance(model, Model):
        if initial_state is not None:
            raise TypeError("`initial_state` was given with a Model, which has one.")
        return model
    if not callable(model):
        raise TypeError(
            f"`model` is a {type(model).__name__}; expected a target_log_prob_fn (of a "
            "distribution, its `log_prob`) or a tfd.JointDistribution."
        )
    return Model.from_target(model, initial_state)


class Probe(NamedTuple):
    """Values by which a density is recognised.

    Attributes:
      log_prob: Log densities at fixed points, `[n]`, in the model's dtype. Some may not
        be finite.
      num_evaluations: Densities evaluated.
    """

    log_prob: np.ndarray
    num_evaluations: int


class Model:
    """A density on `R^dim`, and the way between its points and the user's variables.

    Make one with `from_target`, `from_joint_distribution` or `as_model`, outside
    graphs.

    Attributes:
      dim: The number of unconstrained coordinates.
      dtype: tf.float32 or tf.float64.
      names: The variables' names.
      shapes: The shape of one draw of each variable, by name.
      source: The callable or the joint distribution that the density comes from.
      num_evaluations: Densities that this object has evaluated on its own account so
        far: to check the model, in `starts` and in `probe`.
    """

    def __init__(self, density: Density, initial_state: Any) -> None:
        """Makes a model of a density.

        Args:
          density: The density of the variables.
          initial_state: Values of the variables, as `to_flat` takes them, or None.

        Raises:
          TypeError: As `to_flat`.
          ValueError: As `to_flat`, or if there are no coordinates.
        """
        self._density = density
        self.source = density.source
        self.names = density.names
        self.shapes = dict(density.shapes)
        self.dtype = density.dtype
        self.dim = density.layout.dim
        self.num_evaluations = density.num_evaluations
        if not self.dim:
            raise ValueError("the state has no coordinates; expected one or more.")
        # The user's starts, [m, dim].
        self._given = None if initial_state is None else self.to_flat(initial_state)

    @staticmethod
    def from_target(
        target_log_prob_fn: Callable[..., tf.Tensor], initial_state: Any
    ) -> Model:
        """Makes a model of a log density without constraints.

        Args:
          target_log_prob_fn: Takes the parts of the state, each with a leading
            dimension `[n]`, and returns log densities `[n]`.
          initial_state: Its shapes are those of the state. A Tensor is passed as one
            argument (and named `x`), a list as positional arguments (`x0`, `x1`, ...),
            a dict as keyword arguments under their names. It is one point, at which the
            target is a scalar, or several points with a leading dimension of chains, at
            which the target is a vector.

        Returns:
          The model.

        Raises:
          TypeError: If a type is wrong, or the state is nested.
          ValueError: If there is no initial state, it isn't finite, or the target
            doesn't return one value per point.
        """
        return Model(TargetDensity(target_log_prob_fn, initial_state), initial_state)

    @staticmethod
    def from_joint_distribution(
        jd: Any, pins: Mapping[str, Any], initial_state: Any = None
    ) -> Model:
        """Makes a model of a joint distribution given some of its variables.

        Args:
          jd: A `tfd.JointDistribution*`, or one pinned by `experimental_pin`.
          pins: The observed values by name, in the shapes of the variables.
          initial_state: Constrained values of the others, as a dict or as
            `sample_unpinned` gives them, with or without a leading dimension of
            chains. None starts from the prior.

        Returns:
          The model, unconstrained by the distributions' own bijectors.

        Raises:
          TypeError: If a type is wrong.
          ValueError: If nothing or everything is pinned, a pin has an unknown name or
            another shape, a variable is discrete, or the model can't take batches.
        """
        return Model(JointDensity(jd, pins), initial_state)

    def log_prob(self, q: Any) -> tf.Tensor:
        """The log density of unconstrained points, with the Jacobian.

        Args:
          q: `[n, dim]`.

        Returns:
          Log densities `[n]`, up to a constant.

        Raises:
          TypeError: If `q` or the user's density has another dtype.
          ValueError: If one of them has a wrong shape.
        """
        q = tf.convert_to_tensor(q)
        if q.dtype != self.dtype:
            raise TypeError(f"`q` is {q.dtype.name}; expected {self.dtype.name}.")
        if q.shape.rank != 2 or not q.shape[1:].is_compatible_with([self.dim]):
            raise ValueError(f"`q` has shape {q.shape}; expected [n, {self.dim}].")
        return batch_log_prob(self._density, q)

    def check_gradient(self) -> None:
        """Refuses a density that has no gradient.

        Tracing shows this without an evaluation. Only a density with a `tf.py_function`
        is evaluated, at one point.

        Raises:
          ValueError: If it has none.
        """
        n = untaken_batch_size(self._density)

        def one_point() -> list[tf.Tensor]:
            self.num_evaluations += 2  # by itself, and with its gradient
            centre = np.zeros(self.dim) if self._given is None else self._given[0]
            return [tf.constant(centre[np.newaxis], self.dtype)]

        reason = gradient_fault(
            self.log_prob, [tf.TensorSpec([n, self.dim], self.dtype)], one_point
        )
        if reason is not None:
            raise ValueError(
                f"`target_log_prob_fn` has no gradient: {reason}. Expected one, to "
                "learn from."
            )

    def to_draws(self, q: Any) -> dict[str, np.ndarray]:
        """Turns unconstrained points into values of the user's variables.

        Args:
          q: `[..., dim]`.

        Returns:
          Arrays `[..., *shape]` by name; views of `q` if the model has no constraints.

        Raises:
          ValueError: If the last dimension is not `dim`.
        """
        q = np.asarray(q)
        if q.shape[-1:] != (self.dim,):
            raise ValueError(f"`q` has shape {q.shape}; expected [..., {self.dim}].")
        parts = self._density.constrain(q.reshape(-1, self.dim))
        return {
            name: part.reshape(*q.shape[:-1], *self.shapes[name])
            for name, part in zip(self.names, parts, strict=True)
        }

    def to_flat(self, state: Any) -> np.ndarray:
        """Turns values of the user's variables into unconstrained points.

        Args:
          state: Values in the form of the model's `initial_state`, or a dict by name;
            with or without one leading dimension.

        Returns:
          `[n, dim]`; one point gives `n = 1`.

        Raises:
          TypeError: If a value is no array.
          ValueError: If variables are missing or unknown, shapes don't fit, or a value
            is not finite or outside its variable's support.
        """
        arrays, batches = [], []
        for name, value in zip(self.names, self._ordered(state), strict=True):
            try:
                array = np.asarray(value, self.dtype.as_numpy_dtype)
            except (TypeError, ValueError) as error:
                raise TypeError(f"`initial_state`: {name} is no array.") from error
            shape = self.shapes[name]
            if array.shape not in (shape, (*array.shape[:1], *shape)):
                raise ValueError(
                    f"`initial_state`: {name} has shape {array.shape}; expected "
                    f"{shape}, or that after one dimension of chains."
                )
            batches.append(() if array.shape == shape else array.shape[:1])
            arrays.append(array if batches[-1] else array[np.newaxis])
        if len(set(batches)) > 1 or not len(arrays[0]):
            raise ValueError(
                f"`initial_state`: the variables {', '.join(self.names)} have leading "
                f"dimensions {batches}; expected the same of all, and not zero."
            )
        parts = self._density.unconstrain([tf.constant(array) for array in arrays])
        for name, part in zip(self.names, parts, strict=True):
            if not np.isfinite(part).all():
                raise ValueError(
                    f"`initial_state`: {name} has values that are not finite, or are "
                    "outside the support of its distribution."
                )
        return self._density.layout.flatten(parts).numpy()

    def _ordered(self, state: Any) -> Sequence[Any]:
        """The values of a state in the order of the names."""
        if isinstance(state, Mapping):
            if set(state) != set(self.names):
                raise ValueError(
                    f"`initial_state` has {', '.join(map(str, state))}; expected "
                    f"{', '.join(self.names)}."
                )
            return [state[name] for name in self.names]
        values = state if isinstance(state, (list, tuple)) else [state]
        if len(values) != len(self.names):
            raise ValueError(
                f"`initial_state` has {len(values)} parts; expected "
                f"{len(self.names)} ({', '.join(self.names)})."
            )
        return values

    def starts(self, n: int, seed: Any) -> Starts:
        """Finds dispersed points of finite density to start chains from.

        The user's initial states come first, then these with standard normal noise. A
        joint distribution without initial states starts at draws from the prior. Points
        at which the density is not finite are replaced by points ever nearer to a
        finite one, and in the end by copies of that. As long as none is finite, they
        are replaced by points spread more and more widely, around the initial states
        and in a box around the origin.

        Args:
          n: Number of points.
          seed: An int, a pair of ints, or an integer Tensor `[2]`.

        Returns:
          The points, with their cost.

        Raises:
          ValueError: If no point of finite density was found.
        """
        check_count("n", n, minimum=1)
        stateless = stateless_seed(seed, "starts")
        rng = np.random.default_rng(stateless.numpy().view(np.uint32))
        first = self._first_starts(n, stateless, rng).astype(self.dtype.as_numpy_dtype)
        return find_starts(self.evaluate, first, self._given, rng)

    def _first_starts(
        self, n: int, seed: tf.Tensor, rng: np.random.Generator
    ) -> np.ndarray:
        if self._given is None:
            drawn = self._density.prior(n, seed)
            return rng.uniform(-2, 2, (n, self.dim)) if drawn is None else drawn
        noise = rng.standard_normal((n, self.dim))
        noise[: len(self._given)] = 0.0
        return self._given[np.arange(n) % len(self._given)] + noise

    def evaluate(self, q: np.ndarray) -> np.ndarray:
        """Evaluates the density afresh, not compiled by XLA, and counts that.

        Args:
          q: `[n, dim]`.

        Returns:
          Log densities `[n]`.
        """
        self.num_evaluations += len(q)
        return evaluate(self._density, q)

    def fingerprint(self) -> str:
        """Identifies the form of the model, across processes.

        It depends on names, shapes, dtype, distributions and bijectors, initial states,
        and pins bit by bit. It does not depend on values of the density; see `probe`.
        """
        signature = [
            repr((self.shapes, self.dtype.name, self._density.layout.event_shapes)),
            *self._density.signature(),
            "none" if self._given is None else digest(self._given),
        ]
        return hashlib.sha256("\n".join(signature).encode()).hexdigest()

    def probe(self) -> Probe:
        """Evaluates the density afresh at a few fixed points.

        The points lie near the first initial state (or the origin). If the density is
        finite at none of them, points found by `starts` are used instead. Two densities
        with the same values at these points are taken to be the same, so a change that
        shows only elsewhere is not noticed.
        """
        centre = np.zeros(self.dim) if self._given is None else self._given[0]
        noise = np.random.default_rng(5).standard_normal((len(_DISTANCES), self.dim))
        values = self.evaluate(centre + noise * np.reshape(_DISTANCES, [-1, 1]))
        num_evaluations = len(values)
        if not np.isfinite(values).any():
            starts = self.starts(len(_DISTANCES), seed=5)
            values = starts.log_prob
            num_evaluations += starts.num_evaluations
        return Probe(values, num_evaluations)
