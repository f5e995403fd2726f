"""One transition: the pieces of a NUTS step whose gradients a network supplies."""

from tfp_lhnn.mcmc.delayed_acceptance import LatentHNNDelayedAcceptanceSampler
from tfp_lhnn.mcmc.nuts import LatentHNNNoUTurnSampler
from tfp_lhnn.mcmc.results import (
    LatentHNNDelayedAcceptanceResults,
    LatentHNNDelayedAcceptanceStats,
    LatentHNNKernelResults,
    LatentHNNStats,
    trace_stats,
)

__all__ = [
    "LatentHNNDelayedAcceptanceResults",
    "LatentHNNDelayedAcceptanceSampler",
    "LatentHNNDelayedAcceptanceStats",
    "LatentHNNKernelResults",
    "LatentHNNNoUTurnSampler",
    "LatentHNNStats",
    "trace_stats",
]
