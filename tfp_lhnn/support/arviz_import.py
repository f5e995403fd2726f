"""ArviZ without the announcement that it makes at its first import of a day."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    try:
        import arviz as az
    except FileNotFoundError:
        # At the first import of a day ArviZ writes a file with the date. Of two
        # processes that do so at once one fails. The date is there then.
        import arviz as az

__all__ = ["az"]
