"""Checks of arguments: what they let through, and what messages name."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.support.arguments import (
    check_count,
    check_network_seed,
    check_path,
    checked_hidden_units,
    checked_step_size,
    stateless_seed,
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(200)])
def test_counts(value):
    check_count("n", value, 3)


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, [3], tf.constant(3)])
def test_what_is_no_count(value):
    with pytest.raises(TypeError, match=r"`n` is .*; expected an int\."):
        check_count("n", value, 1)


def test_counts_out_of_range():
    with pytest.raises(ValueError, match=r"`n` is 2; expected 3 or more\."):
        check_count("n", 2, 3)


def test_seeds_of_networks():
    check_network_seed(None)
    check_network_seed(0)
    with pytest.raises(ValueError, match="`seed` is -1"):
        check_network_seed(-1)
    for seed in (1.5, "1", True, (1, 2)):
        with pytest.raises(TypeError, match="`seed` is"):
            check_network_seed(seed)


def test_paths():
    check_path("path", "run")
    check_path("path", pathlib.Path("run"))
    for value in (1, None, True, b"run", ["run"]):
        with pytest.raises(TypeError, match=r"`path` is .*; expected a path: a str or"):
            check_path("path", value)
    with pytest.raises(ValueError, match="`path` is empty"):
        check_path("path", "")


def test_hidden_units():
    found = checked_hidden_units([np.int64(3), 4])
    assert found == (3, 4)
    assert [type(units) for units in found] == [int, int]
    for value in ("34", 3, None, {3}, np.array([3, 4])):
        with pytest.raises(TypeError, match="`hidden_units` is"):
            checked_hidden_units(value)
    with pytest.raises(ValueError, match="`hidden_units` is empty"):
        checked_hidden_units([])
    with pytest.raises(ValueError, match=r"`hidden_units\[1\]` is 0"):
        checked_hidden_units([3, 0])
    with pytest.raises(TypeError, match=r"`hidden_units\[0\]` is 2\.5"):
        checked_hidden_units([2.5])


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), 1, tf.constant(0.5)])
def test_step_sizes(value):
    found = checked_step_size(value)
    assert type(found) is float
    assert found == float(value)


@pytest.mark.parametrize(
    "value", [1j, "0.1", True, None, [0.1], [1, [2]], {}, tf.constant([0.1])]
)
def test_what_is_no_step_size(value):
    with pytest.raises(TypeError, match=r"`step_size` is .*; expected one number\."):
        checked_step_size(value)


@pytest.mark.parametrize("value", [0.0, -1, np.nan, np.inf])
def test_step_sizes_out_of_range(value):
    with pytest.raises(ValueError, match=r"`step_size` is .* finite number above 0"):
        checked_step_size(value)


def test_a_step_size_without_a_value():
    @tf.function(autograph=False)
    def trace(step_size):
        with pytest.raises(TypeError, match="`step_size` is"):
            checked_step_size(step_size)
        with pytest.raises(TypeError, match="`seed` is"):
            stateless_seed(tf.cast([step_size, step_size], tf.int32), "a")

    trace.get_concrete_function(tf.TensorSpec([], tf.float32))


def test_seeds_draw_the_same_numbers_every_time():
    seeds = [stateless_seed(7, "a").numpy().tolist() for _ in range(3)]
    assert seeds[0] == seeds[1] == seeds[2]
    assert stateless_seed(np.int64(7), "a").numpy().tolist() == seeds[0]
    pair = stateless_seed(tf.constant([7, 0]), "a")
    assert pair.dtype == tf.int32
    assert pair.numpy().tolist() == seeds[0]


def test_other_seeds_and_other_purposes_draw_other_numbers():
    seeds = (0, 1, -1, 2**31, 2**32, 2**40, (5, 6), (6, 5))
    arguments = [*((seed, "a") for seed in seeds), (0, "b")]
    found = {tuple(stateless_seed(*each).numpy()) for each in arguments}
    assert len(found) == len(arguments)


@pytest.mark.parametrize(
    "seed", [None, 1.5, "1", True, [1], [1, 2, 3], [1.0, 2.0], [1, [2]], {}]
)
def test_what_is_no_seed(seed):
    with pytest.raises(TypeError, match=r"`seed` is .*; expected an int, a pair"):
        stateless_seed(seed, "a")
