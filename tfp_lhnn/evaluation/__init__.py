"""Evaluating the target, and the ledger of its evaluations."""
