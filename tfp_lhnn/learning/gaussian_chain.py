"""What a NUTS chain on a standard normal surrogate would give, without running it.

If the Gaussian base alone is good enough, its draws need no chain, and its step size no
adaptation: there is nothing to compile.
"""

import numpy as np

from tfp_lhnn.learning.surrogate_chain import TARGET_ACCEPTANCE, SurrogateRun
from tfp_lhnn.mcmc.integrator import PhasePoint, leapfrog

__all__ = ["gaussian_run"]

_NUM_TRIALS = 400


def gaussian_run(
    shape: tuple[int, int, int],
    generator: np.random.Generator,
    *,
    largest_step: float,
    temperature: float = 1.0,
) -> SurrogateRun:
    """Independent draws, and a step size with the acceptance that NUTS is tuned to.

    Args:
        shape: draws, chains, dim.
        generator: of the draws.
        largest_step: that may be found.
        temperature: of the draws.
    """
    step = largest_step
    while _acceptance(step, shape[-1], generator) < TARGET_ACCEPTANCE:
        step *= 0.9
    position = np.sqrt(temperature) * generator.standard_normal(shape)
    # Trees double until half a turn is made.
    depth = np.ceil(np.log2(1.0 + np.pi / step))
    return SurrogateRun(position.astype(np.float32), step, float(2.0**depth - 1.0))


def _acceptance(step: float, dim: int, generator: np.random.Generator) -> float:
    """Mean over leapfrog trajectories of half a turn on a standard normal."""
    position, momentum = generator.standard_normal((2, _NUM_TRIALS, dim))
    # The gradient of the energy of a standard normal is the position itself.
    point = PhasePoint(position, momentum, position)
    first = 0.5 * np.sum(position**2 + momentum**2, axis=-1)
    acceptances = []
    for _ in range(int(np.ceil(np.pi / step))):
        point, potential = leapfrog(
            point, step, None, lambda q, _: (0.5 * np.sum(q**2, axis=-1), q)
        )
        error = potential + 0.5 * np.sum(point.momentum**2, axis=-1) - first
        acceptances.append(np.exp(-np.maximum(error, 0.0)))
    return float(np.mean(acceptances))
