"""What a round of `fit` makes of its points: a network, or the base alone."""

import numpy as np
import pytest

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.surrogate import (
    Surrogate,
    new_seed,
    temperature,
    train_surrogate,
)
from tfp_lhnn.learning.surrogate_chain import NUM_DRAWS
from tfp_lhnn.support.progress import ProgressReporter

DIM = 3


@pytest.fixture(scope="module")
def gaussian():
    """A surrogate of points of a Gaussian, of which no network need be trained."""
    rng = np.random.default_rng(0)
    position = rng.normal(2.0, 3.0, size=(200, DIM)).astype(np.float32)
    centred = (position - 2.0) / 9.0
    data = TrainingData.from_gradients(
        position,
        -centred,
        -4.5 * np.sum(centred**2, axis=-1),
        seed=0,
        trajectory=np.arange(200),
    )
    return train_surrogate(
        data,
        (4,),
        rng,
        ProgressReporter(False),
        "training",
        FitConfig(),
        try_base=True,
    )


def test_of_a_gaussian_the_base_suffices(gaussian):
    assert isinstance(gaussian, Surrogate)
    assert gaussian.is_gaussian
    assert gaussian.history.num_steps == 0
    np.testing.assert_allclose(gaussian.base.location, 2.0, atol=1e-3)
    # Whitened, its largest frequency is one.
    assert gaussian.largest_step == pytest.approx(1.0, rel=1e-3)


def test_its_chains_are_draws_of_the_base_cold_and_hot(gaussian):
    rng = np.random.default_rng(1)
    run = gaussian.chain(np.zeros((5, DIM)), rng)
    hot = gaussian.chain(np.zeros((5, DIM)), rng, temperature(DIM))
    assert run.position.shape == hot.position.shape == (NUM_DRAWS, 5, DIM)
    number = run.position.size
    for one, variance in ((run, 1.0), (hot, temperature(DIM))):
        # Independent draws; the variance has a relative error of sqrt(2 / n), and
        # five of these are a false alarm in two million.
        limit = 5.0 * np.sqrt(2.0 / number)
        assert abs(np.mean(one.position**2) / variance - 1.0) < limit


def test_hot_chains_are_less_hot_in_many_dimensions():
    assert temperature(1) == 3.0
    temperatures = [temperature(dim) for dim in (1, 4, 16, 100, 10_000)]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[-1] == pytest.approx(1.02)


def test_seeds_follow_from_the_generator():
    one, same = (new_seed(np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert one.shape == (2,)
