"""Whatever the user hands over, as one flat unconstrained density."""
