"""The sampler while it learns: `fit` and what serves it."""
