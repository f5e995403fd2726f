"""The network, its base, its loss and its training."""
