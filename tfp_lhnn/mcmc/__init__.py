"""One transition: the pieces of a NUTS step whose gradients a network supplies."""

from tfp_lhnn.mcmc.nuts import LatentHNNNoUTurnSampler
from tfp_lhnn.mcmc.results import LatentHNNKernelResults, LatentHNNStats, trace_stats

__all__ = [
    "LatentHNNKernelResults",
    "LatentHNNNoUTurnSampler",
    "LatentHNNStats",
    "trace_stats",
]
