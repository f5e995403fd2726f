"""Evaluated points of phase space, as the data a network learns from."""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.support.arguments import check_count, stateless_seed
from tfp_lhnn.support.npz_files import read_npz, write_npz

__all__ = ["TrainingData"]

# Raised when a saved field changes its meaning, so that old files are refused by name.
_FORMAT_VERSION = 1
# Below this many trajectories, holding out a whole one would take away more than a
# fifth of the data, and perhaps the only visit to a region.
_MIN_TRAJECTORIES_TO_HOLD_OUT = 5
_FLOATS = ("position", "momentum", "position_rate", "momentum_rate", "log_prob")
_ARRAYS = (*_FLOATS, "trajectory")
_COUNTS = ("num_gradients", "num_dropped")


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingData:
    """Points of phase space with the exact time derivatives there.

    NumPy arrays of `n` points in `d` dimensions. All floats have one dtype, float32 or
    float64; only log densities, which may be large, can be float64 beside float32. The
    arrays are checked when the object is made. If the state has several parts, their
    columns follow each other in order.

    Attributes:
      position: `q`, `[n, d]`.
      momentum: `p`, `[n, d]`.
      position_rate: `dq/dt = ∂H/∂p`, `[n, d]`; equals `p`, as the mass is one.
      momentum_rate: `dp/dt = -∂H/∂q`, the gradient of the log density, `[n, d]`.
      log_prob: The log density, `[n]`.
      trajectory: Which trajectory the point came from, int32 `[n]`. Neighbours on a
        trajectory are almost copies, so `split` keeps them together.
      num_gradients: All gradients evaluated, including those of dropped points.
      num_dropped: Points left out because something in them was not finite, or
        because the trajectory had diverged there.
    """

    position: np.ndarray
    momentum: np.ndarray
    position_rate: np.ndarray
    momentum_rate: np.ndarray
    log_prob: np.ndarray
    trajectory: np.ndarray
    num_gradients: int
    num_dropped: int = 0

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        self._check_arrays({name: getattr(self, name) for name in _ARRAYS})
        for name in _FLOATS:
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"`{name}` has values that are not finite.")
        object.__setattr__(self, "trajectory", self.trajectory.astype(np.int32))
        check_count("num_dropped", self.num_dropped, minimum=0)
        # Every point cost a gradient: a smaller count would understate the cost.
        paid = len(self) + self.num_dropped
        check_count("num_gradients", self.num_gradients, minimum=paid)

    @staticmethod
    def _check_arrays(arrays: dict[str, np.ndarray]) -> None:
        """Checks shapes and dtypes against those of the positions."""
        shape, dtype = arrays["position"].shape, arrays["position"].dtype
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"`position` has shape {shape}; expected [n, d] with n, d >= 1."
            )
        if dtype not in (np.float32, np.float64):
            raise TypeError(f"`position` is {dtype}; expected float32 or float64.")
        for name, array in arrays.items():
            expected = shape[:1] if name in ("log_prob", "trajectory") else shape
            if array.shape != expected:
                raise ValueError(
                    f"`{name}` has shape {array.shape}; expected {expected}."
                )
            if name == "trajectory":
                if array.dtype.kind not in "iu":
                    raise TypeError(f"`{name}` is {array.dtype}; expected int32.")
            elif array.dtype != dtype and (
                name != "log_prob" or array.dtype != np.float64
            ):
                raise TypeError(f"`{name}` is {array.dtype}; expected {dtype}.")

    def __len__(self) -> int:
        return len(self.position)

    @property
    def num_points(self) -> int:
        """The number of points, `n`."""
        return len(self)

    @property
    def dim(self) -> int:
        """The number of coordinates, `d`."""
        return self.position.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of positions, momenta and rates."""
        return self.position.dtype

    @classmethod
    def from_gradients(
        cls,
        position: Any,
        gradient: Any,
        log_prob: Any,
        seed: Any,
        *,
        trajectory: Any = None,
    ) -> TrainingData:
        """Makes data from gradients evaluated elsewhere, with momenta from N(0, I).

        Args:
          position: `[n, d]`, float32 or float64.
          gradient: The gradients of the log density there, `[n, d]`.
          log_prob: The log densities there, `[n]`, in the same dtype or float64.
          seed: An int, a pair of ints, or an integer Tensor `[2]`.
          trajectory: Integers `[n]`, equal for related points; None if no points are
            related.

        Returns:
          The points at which everything is finite. The others are only counted.

        Raises:
          TypeError: If the dtypes are not the same float32 or float64.
          ValueError: If shapes do not fit, or no point is finite.
        """
        if trajectory is None:
            trajectory = np.arange(np.asarray(log_prob).size)
        position, gradient, log_prob, trajectory = map(
            np.asarray, (position, gradient, log_prob, trajectory)
        )
        cls._check_arrays(
            {
                "position": position,
                "gradient": gradient,
                "log_prob": log_prob,
                "trajectory": trajectory,
            }
        )
        momentum = tf.random.stateless_normal(
            position.shape, stateless_seed(seed, "from_gradients"), dtype=position.dtype
        ).numpy()
        return cls.of_finite_points(position, momentum, log_prob, gradient, trajectory)

    @classmethod
    def of_finite_points(
        cls,
        position: np.ndarray,
        momentum: np.ndarray,
        log_prob: np.ndarray,
        gradient: np.ndarray,
        trajectory: np.ndarray,
        *,
        is_usable: np.ndarray | None = None,
    ) -> TrainingData:
        """Keeps the points at which everything is finite, and counts the others.

        Args:
          position: `[n, d]`.
          momentum: `[n, d]`.
          log_prob: The log densities, `[n]`.
          gradient: The gradients of the log density, `[n, d]`.
          trajectory: Integers `[n]` that tie related points.
          is_usable: Which of them to keep if they are finite, bool `[n]`; None for all.

        Raises:
          ValueError: If no point is finite.
        """
        finite = np.isfinite(log_prob)
        if is_usable is not None:
            finite &= is_usable
        for matrix in (position, momentum, gradient):
            finite &= np.isfinite(matrix).all(axis=-1)
        if not finite.any():
            raise ValueError(f"none of the {len(finite)} points is finite.")
        return cls(
            position=position[finite],
            momentum=momentum[finite],
            position_rate=momentum[finite],
            momentum_rate=gradient[finite],
            log_prob=log_prob[finite],
            trajectory=trajectory[finite],
            num_gradients=len(finite),
            num_dropped=int(np.sum(~finite)),
        )

    def _take(self, rows: np.ndarray, **counts: Any) -> TrainingData:
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return TrainingData(**arrays, **counts)

    def split(
        self, held_out_fraction: float, seed: Any
    ) -> tuple[TrainingData, TrainingData]:
        """Splits off points for a held-out loss.

        Whole trajectories are held out if there are five or more, otherwise random
        points. The held-out part has at least one point and leaves at least one.

        Args:
          held_out_fraction: The share of points to hold out, in (0, 1); met as closely
            as whole trajectories allow.
          seed: An int, a pair of ints, or an integer Tensor `[2]`.

        Returns:
          The pair `(train, held_out)`, points in their old order. Each held-out point
          takes its one gradient along. All other gradients, including those of dropped
          points, stay with `train`, so the two counts add up to that of the whole.

        Raises:
          ValueError: If the fraction is not in (0, 1) or there is only one point.
        """
        is_number = isinstance(held_out_fraction, numbers.Real)
        if not is_number or not 0.0 < held_out_fraction < 1.0:
            raise ValueError(
                f"`held_out_fraction` is {held_out_fraction!r}; expected a number "
                "between 0 and 1, both excluded."
            )
        if len(self) == 1:
            raise ValueError("one point cannot be split; expected two or more.")
        _, group, sizes = np.unique(
            self.trajectory, return_inverse=True, return_counts=True
        )
        if len(sizes) < _MIN_TRAJECTORIES_TO_HOLD_OUT:
            group, sizes = np.arange(len(self)), np.ones(len(self), int)
        order = tf.random.experimental.stateless_shuffle(
            tf.range(len(sizes)), seed=stateless_seed(seed, "split")
        ).numpy()
        held_out = _choose_groups(sizes, order, held_out_fraction * len(self))[group]
        num_held_out = int(held_out.sum())
        return (
            self._take(
                ~held_out,
                num_gradients=self.num_gradients - num_held_out,
                num_dropped=self.num_dropped,
            ),
            self._take(held_out, num_gradients=num_held_out, num_dropped=0),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[TrainingData]) -> TrainingData:
        """Joins data sets; trajectories stay apart and counts add up.

        Args:
          parts: One or more data sets of one dimension and dtype.

        Returns:
          The points of all of them, in order.

        Raises:
          TypeError: If a part is something else, or dtypes differ.
          ValueError: If there is none, or dimensions differ.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("`parts` is empty; expected one TrainingData or more.")
        trajectories, next_id = [], 0
        for i, part in enumerate(parts):
            if not isinstance(part, TrainingData):
                raise TypeError(
                    f"`parts[{i}]` is a {type(part).__name__}; expected TrainingData."
                )
            if part.dim != parts[0].dim:
                raise ValueError(
                    f"`parts[{i}]` has dim {part.dim}; expected {parts[0].dim}."
                )
            if part.dtype != parts[0].dtype:
                raise TypeError(
                    f"`parts[{i}]` is {part.dtype}; expected {parts[0].dtype}."
                )
            ids, numbered = np.unique(part.trajectory, return_inverse=True)
            trajectories.append(numbered + next_id)
            next_id += len(ids)
        fields: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in _FLOATS
        }
        for name in _COUNTS:
            fields[name] = sum(getattr(part, name) for part in parts)
        return cls(trajectory=np.concatenate(trajectories), **fields)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the data atomically to exactly `path`, a NumPy `.npz` file."""
        fields = {name: getattr(self, name) for name in (*_ARRAYS, *_COUNTS)}
        write_npz(path, _FORMAT_VERSION, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainingData:
        """Reads what `save` wrote; nothing in the file is executed.

        Args:
          path: The file.

        Returns:
          The data, bit for bit.

        Raises:
          FileNotFoundError: If there is no such file.
          ValueError: If the file is damaged, foreign, or of another version.
        """
        names = (*_ARRAYS, *_COUNTS)
        fields: dict[str, Any] = dict(
            read_npz(path, _FORMAT_VERSION, names, "TrainingData")
        )
        try:
            return cls(**fields | {name: int(fields[name]) for name in _COUNTS})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} holds bad TrainingData: {error}") from error


def _choose_groups(sizes: np.ndarray, order: np.ndarray, goal: float) -> np.ndarray:
    """Chooses groups, in the given order, so that their sizes sum to about `goal`.

    Args:
      sizes: Points in each group, `[groups]`; two groups or more.
      order: A permutation of the groups, `[groups]`.
      goal: The sum wanted.

    Returns:
      Which groups are chosen, bool `[groups]`: at least one, and not all.
    """
    chosen = np.zeros(len(sizes), bool)
    total = 0
    for group in order:
        if abs(total + sizes[group] - goal) < abs(total - goal):
            chosen[group] = True
            total += sizes[group]
    smallest = order[np.argmin(sizes[order])]  # the first of them in `order`
    if not chosen.any() or chosen.all():
        chosen[smallest] = not chosen[smallest]
    return chosen
