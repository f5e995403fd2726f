"""Suites, problems, samplers and metrics; `python -m benchmarks.run --help`."""
