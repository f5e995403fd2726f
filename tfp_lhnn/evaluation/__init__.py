"""Asking the target, and the ledger of what was asked."""
