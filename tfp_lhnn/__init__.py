"""NUTS on the gradients of a latent Hamiltonian neural network, for TFP."""

from tfp_lhnn import targets
from tfp_lhnn._version import __version__
from tfp_lhnn.mcmc import (
    LatentHNNDelayedAcceptanceResults,
    LatentHNNDelayedAcceptanceSampler,
    LatentHNNDelayedAcceptanceStats,
    LatentHNNKernelResults,
    LatentHNNNoUTurnSampler,
    LatentHNNStats,
    trace_stats,
)
from tfp_lhnn.network import LatentHNN
from tfp_lhnn.training import TrainingHistory, train
from tfp_lhnn.training_data import TrainingData, simulate_training_data

__all__ = [
    "LatentHNN",
    "LatentHNNDelayedAcceptanceResults",
    "LatentHNNDelayedAcceptanceSampler",
    "LatentHNNDelayedAcceptanceStats",
    "LatentHNNKernelResults",
    "LatentHNNNoUTurnSampler",
    "LatentHNNStats",
    "TrainingData",
    "TrainingHistory",
    "__version__",
    "simulate_training_data",
    "targets",
    "trace_stats",
    "train",
]
