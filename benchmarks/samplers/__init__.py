"""Samplers by name, each `(job, **options) -> Run`.

A gradient is one value and gradient of one chain's point, for all samplers alike. What
finished chains compute while others continue is not counted.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.problem import Run

__all__ = ["PEERS", "SAMPLERS", "Sampler", "missing_packages"]


class Sampler(NamedTuple):
    """Where to find a sampler.

    Attributes:
        module: in this package; imported when it is used.
        function: in that module.
        packages: what has to be installed beyond this package's own needs.
        options: that distinguish it from others of the same function.
        title: for tables.
    """

    module: str
    function: str
    packages: tuple[str, ...]
    options: dict[str, Any]
    title: str

    def load(self) -> Callable[..., Run]:
        """The function, with its options."""
        module = importlib.import_module(f"benchmarks.samplers.{self.module}")
        return functools.partial(getattr(module, self.function), **self.options)


_JAX = ("jax", "numpyro"), ("jax", "blackjax")

SAMPLERS: dict[str, Sampler] = {
    "ours": Sampler(
        "ours", "sample", (), {"method": "delayed_acceptance"}, "delayed acceptance"
    ),
    "ours_nuts": Sampler("ours", "sample", (), {"method": "nuts"}, "network NUTS"),
    "published": Sampler(
        "published", "sample", (), {"error_monitor": "cooldown"}, "paper's algorithm"
    ),
    "published_pointwise": Sampler(
        "published", "sample", (), {"error_monitor": "pointwise"}, "paper's, pointwise"
    ),
    "published_none": Sampler(
        "published", "sample", (), {"error_monitor": "none"}, "paper's, no monitor"
    ),
    "tfp_nuts": Sampler("tfp_peers", "nuts", (), {}, "TFP NUTS"),
    "tfp_windowed": Sampler("tfp_peers", "windowed_nuts", (), {}, "TFP windowed NUTS"),
    "numpyro_nuts": Sampler("jax_peers", "numpyro_nuts", _JAX[0], {}, "NumPyro NUTS"),
    "blackjax_nuts": Sampler(
        "jax_peers", "blackjax_nuts", _JAX[1], {}, "BlackJAX NUTS"
    ),
    "blackjax_mclmc": Sampler(
        "jax_peers", "blackjax_mclmc", _JAX[1], {}, "BlackJAX adjusted MCLMC"
    ),
}

# What a user would choose instead; claims are about the tuned NUTS among them.
PEERS = (
    "tfp_nuts",
    "tfp_windowed",
    "numpyro_nuts",
    "blackjax_nuts",
    "blackjax_mclmc",
)


def missing_packages(name: str) -> list[str]:
    """Packages that the sampler of that name needs and that are not installed."""
    return [p for p in SAMPLERS[name].packages if importlib.util.find_spec(p) is None]
