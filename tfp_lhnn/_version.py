"""The package's version, read by setup.cfg without importing TensorFlow."""

__version__ = "0.1.0"
