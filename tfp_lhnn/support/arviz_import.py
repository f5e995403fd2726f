"""ArviZ without the announcement that it makes at its first import of a day."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az

__all__ = ["az"]
