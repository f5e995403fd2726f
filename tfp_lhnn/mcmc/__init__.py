"""One transition: the pieces of a NUTS step whose gradients a network supplies."""
