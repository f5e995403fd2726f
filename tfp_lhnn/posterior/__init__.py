"""What a run is looked at with: ArviZ, diagnostics, plots, report."""
