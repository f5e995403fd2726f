"""The shortcut for Gaussian surrogates gives what the chain itself would."""

import numpy as np
import pytest

from tfp_lhnn import LatentHNN
from tfp_lhnn.learning.gaussian_chain import gaussian_run
from tfp_lhnn.learning.surrogate_chain import run_surrogate_chain


@pytest.mark.parametrize("dim", [3, 40])
def test_it_agrees_with_nuts_on_a_silent_network(dim):
    network = LatentHNN(dim, (8,), base="diagonal", seed=1)
    network.silence()
    generator = np.random.default_rng(1)
    start = generator.standard_normal((32, dim)).astype(np.float32)
    chain = run_surrogate_chain(network, start, np.array([1, 2]), largest_step=2.0)
    direct = gaussian_run((128, 32, dim), generator, largest_step=2.0)
    assert direct.position.shape == chain.position.shape
    # Dual averaging's own scatter, and steps of a tenth here.
    assert direct.step_size == pytest.approx(chain.step_size, rel=0.3)
    # Trees of three or seven leaves. In few dimensions seven long steps are a whole
    # turn, which NUTS does not notice: a few trees of a thousand make up the mean.
    assert direct.leapfrogs_per_draw == 7.0
    if dim > 10:
        assert chain.leapfrogs_per_draw == pytest.approx(7.0, rel=0.5)
    for run in (chain, direct):
        # 4096 draws, of which a chain of NUTS may waste two thirds: 5 standard errors.
        assert np.mean(run.position**2) == pytest.approx(1.0, abs=0.2 / np.sqrt(dim))


def test_tempered_and_limited():
    generator = np.random.default_rng(2)
    run = gaussian_run((100, 30, 5), generator, largest_step=0.01, temperature=4.0)
    assert run.step_size == 0.01
    assert np.var(run.position) == pytest.approx(4.0, rel=0.06)
