"""NUTS on the gradients of a latent Hamiltonian neural network, for TFP."""

from tfp_lhnn._version import __version__

__all__ = ["__version__"]
