"""Draws in chunks, checkpoints, and `sample`."""
