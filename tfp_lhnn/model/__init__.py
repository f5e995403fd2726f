"""The user's model in any form, as one flat unconstrained density."""
