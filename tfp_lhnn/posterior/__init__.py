"""Tools to examine a run: ArviZ, diagnostics, plots, report."""
