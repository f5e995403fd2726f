"""NUTS on the gradients of a latent Hamiltonian neural network, for TFP."""

import importlib
from typing import TYPE_CHECKING, Any

import tfp_lhnn.support.keras_backend  # noqa: F401  (first: it checks the backend)
from tfp_lhnn import targets
from tfp_lhnn._version import __version__
from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.simulation import simulate_training_data
from tfp_lhnn.mcmc import (
    LatentHNNDelayedAcceptanceResults,
    LatentHNNDelayedAcceptanceSampler,
    LatentHNNDelayedAcceptanceStats,
    LatentHNNKernelResults,
    LatentHNNNoUTurnSampler,
    LatentHNNStats,
    trace_stats,
)
from tfp_lhnn.model.model import Model
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training import TrainingHistory, train

if TYPE_CHECKING:
    from tfp_lhnn.learning.fit import fit
    from tfp_lhnn.learning.fit_result import Fit
    from tfp_lhnn.posterior import plots
    from tfp_lhnn.posterior.diagnostics import SamplingWarning, Summary, summarize
    from tfp_lhnn.posterior.html_report import report
    from tfp_lhnn.posterior.inference_data import to_inference_data
    from tfp_lhnn.sampling.sample import sample

__all__ = [
    "Fit",
    "FitConfig",
    "LatentHNN",
    "LatentHNNDelayedAcceptanceResults",
    "LatentHNNDelayedAcceptanceSampler",
    "LatentHNNDelayedAcceptanceStats",
    "LatentHNNKernelResults",
    "LatentHNNNoUTurnSampler",
    "LatentHNNStats",
    "Model",
    "SamplingWarning",
    "Summary",
    "TrainingData",
    "TrainingHistory",
    "__version__",
    "fit",
    "plots",
    "report",
    "sample",
    "simulate_training_data",
    "summarize",
    "targets",
    "to_inference_data",
    "trace_stats",
    "train",
]

# Modules of the names that need ArviZ. It takes a second to import, so users of the
# kernels alone should not have to wait for it.
_LAZY = {
    "Fit": "learning.fit_result",
    "SamplingWarning": "posterior.diagnostics",
    "Summary": "posterior.diagnostics",
    "fit": "learning.fit",
    "report": "posterior.html_report",
    "sample": "sampling.sample",
    "summarize": "posterior.diagnostics",
    "to_inference_data": "posterior.inference_data",
}


def __getattr__(name: str) -> Any:
    if name == "plots":
        return importlib.import_module("tfp_lhnn.posterior.plots")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfp_lhnn.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
