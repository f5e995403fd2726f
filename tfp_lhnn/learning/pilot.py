"""The pilot of `fit`: short true-gradient trajectories, every evaluated point kept.

Chains come down from wherever they start, precondition themselves by regressing the
gradients they have met, and then move about the bulk of the target. They need not
sample it exactly: what counts is where their points are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.evaluation.gradient_ledger import EvaluatedPoints, GradientLedger
from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    select_chains,
    start_step,
)
from tfp_lhnn.network.gaussian_base import GaussianBase, fit_gaussian_base, near_points
from tfp_lhnn.support.compiled_cache import CompiledFunction

__all__ = [
    "LARGEST_STEP",
    "NUM_LEAPFROG_STEPS",
    "ChainStates",
    "Pace",
    "Pilot",
]

NUM_LEAPFROG_STEPS = 8

# Mean acceptance over a trajectory that steps are adapted to. Lower than usual: points
# with an energy error of a nat are as good to learn from as any.
_TARGET_ACCEPTANCE = 0.7

# Whitened steps above this leave no two points of a trajectory close to each other;
# leapfrog is unstable from 2 on.
LARGEST_STEP = 0.9

# Up to so many products a dense regression takes less time than the eye notices;
# beyond, one is made only when there are so many times as many points as at the last.
_CHEAP_REGRESSION = 2e7
_WORTHWHILE_GROWTH = 1.25


class Pace(NamedTuple):
    """Steps of one trajectory of every chain, and what they are measured in.

    Attributes:
        base: that whitens.
        step: `[chains]`, whitened.
        push: momentum beside the random one, whitened, `[chains, dim]`.
    """

    base: GaussianBase
    step: np.ndarray
    push: np.ndarray


class ChainStates(NamedTuple):
    """Where chains are, and what the target is there.

    Attributes:
        position: `[chains, dim]`.
        log_prob: `[chains]`.
        gradient: of the log density, `[chains, dim]`.
    """

    position: Any
    log_prob: Any
    gradient: Any

    def where(self, chosen: np.ndarray, others: ChainStates) -> ChainStates:
        """The `others`' states for the chosen chains, `[chains]` bool."""
        return ChainStates(
            np.where(chosen[:, np.newaxis], others.position, self.position),
            np.where(chosen, others.log_prob, self.log_prob),
            np.where(chosen[:, np.newaxis], others.gradient, self.gradient),
        )


class _Trajectory(NamedTuple):
    """Leaves of all chains, `[steps, chains, ...]`; the next state; the acceptance."""

    leaves: ChainStates
    state: ChainStates
    acceptance: tf.Tensor


Trajectories = Callable[..., _Trajectory]


class Pilot:
    """Chains that run on true gradients and remember all they evaluate.

    Args:
        ledger: where all points are entered, and whose target is asked.
        position: starts, `[chains, dim]`, of finite density.
        generator: source of seeds.
        dense: whether a dense preconditioner is worth its cost.
        temperature: of every second chain, which so goes farther out than the target's
            mass lies: what is not met in the tails is not learned.
    """

    def __init__(
        self,
        ledger: GradientLedger,
        position: np.ndarray,
        generator: np.random.Generator,
        *,
        dense: bool,
        temperature: float,
    ) -> None:
        self._ledger = ledger
        self._trajectories: Trajectories = ledger.target.compiled(
            "pilot trajectories",
            lambda: _compile_trajectories(
                ledger.target.log_prob, ledger.target.jit_compile
            ),
        )
        self._generator = generator
        self._dense = dense
        first = ledger.evaluate_chains(position)
        self._chains = ChainStates(*first[:3])
        # Counted here: to find the own points, they are copied.
        self._num_gradients = len(position)
        self._is_scaled = False
        self._num_regressed = 0
        num_chains, dim = position.shape
        self._temperature = np.where(np.arange(num_chains) % 2 == 1, temperature, 1.0)
        self._base = GaussianBase(np.zeros(dim), np.ones(dim))
        # The first move is then about a unit long, or as long as a quadratic with that
        # gradient a unit away can take.
        size = np.linalg.norm(self._chains.gradient, axis=-1)
        self._step = np.minimum(0.5, 1.0 / np.sqrt(1e-12 + size))
        self._step = np.where(np.isfinite(self._step), self._step, 1e-3)

    @property
    def cost(self) -> int:
        """Gradients that a trajectory of all chains costs."""
        return NUM_LEAPFROG_STEPS * len(self._step)

    @property
    def num_gradients(self) -> int:
        """Gradients that these chains have evaluated so far."""
        return self._num_gradients

    @property
    def chains(self) -> ChainStates:
        """Where the chains are."""
        return self._chains

    @property
    def is_hot(self) -> np.ndarray:
        """Which chains have a temperature above one, `[chains]` bool."""
        return self._temperature > 1.0

    @property
    def step_size(self) -> float:
        """Median over the chains, whitened."""
        return float(np.median(self._step))

    @property
    def is_far(self) -> np.ndarray:
        """Which chains are still on their way down, `[chains]` bool."""
        return self._is_far(self._chains)

    def settled_chains(self) -> ChainStates:
        """Where the chains are; those still on their way down are put to others.

        Some may never arrive: on the way is a valley so narrow that steps are tiny.
        """
        is_far = self.is_far
        settled = np.flatnonzero(~is_far)
        if not len(settled):
            return self._chains
        others = self._generator.choice(settled, len(is_far))
        return self._chains.where(
            is_far, ChainStates(*(x[others] for x in self._chains))
        )

    def run(self) -> np.ndarray:
        """One trajectory of every chain; acceptance, `[chains]`."""
        self._chains, acceptance, _ = self.run_from(self._chains)
        return acceptance

    def run_from(
        self, chains: ChainStates, pace: Pace | None = None, *, exact: bool = False
    ) -> tuple[ChainStates, np.ndarray, EvaluatedPoints]:
        """One trajectory of every chain from given states; its own chains stay.

        Args:
            chains: where the trajectories begin, one for each chain.
            pace: of this trajectory, if somebody knows better than the pilot itself
                does by what it met before.
            exact: whether this is a transition that leaves the target as it is: to the
                end of the trajectory, or nowhere. Else chains go to any of its points,
                and those that are far up go down.

        Returns:
            Where the chains come to, acceptance, `[chains]`, and the points of the
            trajectories.
        """
        is_own = pace is None
        # A chain whose own step followed where it has been would not stay exact.
        own = np.full_like(self._step, np.median(self._step)) if exact else self._step
        base, step, push = pace or Pace(
            self._base, own, np.zeros(chains.position.shape)
        )
        scale = base.unwhitening
        if self._dense and scale.ndim == 1:
            scale = np.diag(scale)
        dtype = chains.position.dtype
        # Steps of random length keep periodic motion from coming back to its start.
        step = step * self._generator.uniform(0.7, 1.1, step.shape)
        result = self._trajectories(
            ChainStates(*map(tf.constant, chains)),
            tf.constant(scale, dtype),
            tf.constant(step[:, np.newaxis], dtype),
            tf.constant(np.ones_like(step) if exact else self._temperature, dtype),
            tf.constant(push, dtype),
            tf.constant(np.zeros(len(step), bool) if exact else self._is_far(chains)),
            tf.constant(exact),
            tf.constant(self._generator.integers(2**31, size=2), tf.int32),
        )
        points = _flat(result.leaves)
        self._ledger.add(points)
        self._num_gradients += len(points.log_prob)
        acceptance = result.acceptance.numpy()
        if is_own:
            # Quick on purpose: there are only a few dozen trajectories.
            excess = (np.mean(acceptance) if exact else acceptance) - _TARGET_ACCEPTANCE
            factor = np.clip(np.exp(1.5 * excess), 0.3, 1.6)
            self._step = np.minimum(self._step * factor, LARGEST_STEP)
            self._precondition()
        reached = ChainStates(*(x.numpy() for x in result.state))
        return reached, acceptance, points

    def _precondition(self) -> None:
        points = self._ledger.points
        arrays = [x[points.is_finite] for x in points[:3]]
        near = near_points(-arrays[1], arrays[0].shape[1])
        number = int(np.sum(near))
        if number < 2 * NUM_LEAPFROG_STEPS or (
            number * self._base.location.size**2 > _CHEAP_REGRESSION
            and number < _WORTHWHILE_GROWTH * self._num_regressed
        ):
            return
        self._num_regressed = number
        position, log_prob, gradient = (x[near] for x in arrays)
        try:
            base = fit_gaussian_base(
                position, gradient, log_prob, dense=self._dense, by_gradient=True
            )
        except (ValueError, np.linalg.LinAlgError):
            return  # Points too few or too much alike: go on as before.
        if not np.all(np.isfinite(base.whitening)):
            return
        if not self._is_scaled:
            # From here on steps are in units of the target's own width.
            self._step = np.full_like(self._step, 0.3)
            self._is_scaled = True
        self._base = base

    def _is_far(self, chains: ChainStates) -> np.ndarray:
        log_prob = self._ledger.log_prob
        dim = chains.position.shape[1]
        best = np.quantile(log_prob[np.isfinite(log_prob)], 0.95)
        return ~(chains.log_prob >= best - dim - 10.0 * np.sqrt(dim) - 10.0)


def _flat(leaves: ChainStates) -> EvaluatedPoints:
    steps, chains, dim = leaves.position.shape
    return EvaluatedPoints(
        leaves.position.numpy().reshape(-1, dim),
        leaves.log_prob.numpy().reshape(-1),
        leaves.gradient.numpy().reshape(-1, dim),
        np.tile(np.arange(chains), steps),
    )


def _compile_trajectories(
    log_prob: Callable[[tf.Tensor], tf.Tensor], jit_compile: bool
) -> Trajectories:
    """A trajectory of all chains as one compiled function.

    Args:
        log_prob: `[chains, dim] -> [chains]`.
        jit_compile: whether XLA compiles it.

    Returns:
        A function of state, scale (`[dim]` or `[dim, dim]`: position per whitened
        unit), step `[chains, 1]`, temperature `[chains]`, a push (`[chains, dim]`:
        whitened momentum), which chains shall go downhill, `[chains]`, whether only the
        last leaf may be chosen, and seed.
    """

    def run(
        state: ChainStates,
        scale: tf.Tensor,
        step: tf.Tensor,
        temperature: tf.Tensor,
        push: tf.Tensor,
        downhill: tf.Tensor,
        exact: tf.Tensor,
        seed: Any,
    ) -> _Trajectory:
        momentum_seed, choice_seed = tf.unstack(tfp.random.split_seed(seed))
        shape, dtype = tf.shape(state.position), state.position.dtype
        momentum = tf.random.stateless_normal(shape, momentum_seed, dtype=dtype)
        momentum = momentum * tf.sqrt(temperature)[:, tf.newaxis] + push
        momentum = tf.where(downhill[:, tf.newaxis], tf.zeros_like(momentum), momentum)
        leaves, energies = _leapfrogs(log_prob, state, momentum, scale, step)
        first = kinetic_energy(momentum, None) - state.log_prob
        gain = (first - energies) / temperature
        infinity = tf.constant(float("inf"), dtype)
        gain = tf.where(tf.math.is_finite(gain), gain, -infinity)
        acceptance = tf.reduce_mean(tf.exp(tf.minimum(gain, 0.0)), axis=0)
        # A point of the trajectory by its weight, the start among them, or all that a
        # diverging one leaves to choose from is far away; on the way down the lowest.
        log_uniform = tf.math.log(
            tf.random.stateless_uniform(
                [NUM_LEAPFROG_STEPS + 1, shape[0]],
                choice_seed,
                minval=1e-30,
                dtype=dtype,
            )
        )
        noise = -tf.math.log(-log_uniform)
        height = tf.where(tf.math.is_finite(gain), leaves.log_prob, -infinity)
        score = tf.where(downhill, height, gain + noise[1:])
        is_last = tf.range(NUM_LEAPFROG_STEPS)[:, tf.newaxis] == NUM_LEAPFROG_STEPS - 1
        score = tf.where(exact, tf.where(is_last, gain, -infinity), score)
        best = tf.argmax(score, axis=0, output_type=tf.int32)
        chosen = tf.nest.map_structure(
            lambda x: tf.gather(
                tf.transpose(x, [1, 0, *range(2, x.shape.rank)]), best, batch_dims=1
            ),
            leaves,
        )
        hurdle = tf.where(downhill, state.log_prob, noise[0])
        hurdle = tf.where(exact, log_uniform[0], hurdle)
        moves = tf.reduce_max(score, axis=0) > hurdle
        return _Trajectory(leaves, select_chains(moves, chosen, state), acceptance)

    return CompiledFunction(run, jit_compile=jit_compile)


def _leapfrogs(
    log_prob: Callable[[tf.Tensor], tf.Tensor],
    state: ChainStates,
    momentum: tf.Tensor,
    scale: tf.Tensor,
    step: tf.Tensor,
) -> tuple[ChainStates, tf.Tensor]:
    """`NUM_LEAPFROG_STEPS` leaves and their energies, `[steps, chains]`."""

    def to_position(z: tf.Tensor) -> tf.Tensor:
        return (
            z * scale
            if scale.shape.rank == 1
            else tf.matmul(z, scale, transpose_b=True)
        )

    def to_whitened(gradient: tf.Tensor) -> tf.Tensor:
        return gradient * scale if scale.shape.rank == 1 else tf.matmul(gradient, scale)

    arrays = [
        tf.TensorArray(state.position.dtype, NUM_LEAPFROG_STEPS, element_shape=shape)
        for shape in (*(x.shape for x in state), state.log_prob.shape)
    ]

    def body(i: Any, state: ChainStates, momentum: tf.Tensor, *arrays: Any) -> Any:
        # Leapfrog runs on the whitened displacement from where the step begins.
        point = PhasePoint(
            tf.zeros_like(momentum), momentum, -to_whitened(state.gradient)
        )
        displacement, half_momentum = start_step(point, step, None)
        position = state.position + to_position(displacement)
        state = ChainStates(position, *tfp.math.value_and_gradient(log_prob, position))
        momentum = finish_step(half_momentum, -to_whitened(state.gradient), step)
        energy = kinetic_energy(momentum, None) - state.log_prob
        written = [a.write(i, x) for a, x in zip(arrays, (*state, energy), strict=True)]
        return (i + 1, state, momentum, *written)

    _, _, _, *arrays = tf.while_loop(
        lambda i, *_: i < NUM_LEAPFROG_STEPS, body, (0, state, momentum, *arrays)
    )
    *leaves, energies = [a.stack() for a in arrays]
    return ChainStates(*leaves), energies
