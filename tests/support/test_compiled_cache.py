"""What is compiled once: built once whoever asks, traced once for every shape."""

import threading
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.support.compiled_cache import BuildOnce, CompiledFunction


def test_a_thing_is_built_once_and_the_oldest_goes():
    cache, built = BuildOnce(2), []

    def get(key):
        return cache.get(key, lambda: built.append(key) or key)

    for key in ("a", "b", "a", "c"):
        get(key)
    assert built == ["a", "b", "c"]
    # "b" was used longest ago.
    assert sorted(cache.values()) == ["a", "c"]
    get("b")
    assert built == ["a", "b", "c", "b"]


def test_a_thing_that_cannot_be_built_is_tried_again():
    cache = BuildOnce()

    def fail():
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError, match="not now"):
        cache.get("a", fail)
    assert cache.values() == []
    assert cache.get("a", lambda: 3) == 3


def test_threads_wait_for_what_another_builds_and_for_nothing_else():
    cache, built, other = BuildOnce(), [], threading.Event()

    def slow():
        # Another thing can be had meanwhile; if not, this would wait in vain.
        assert other.wait(10.0)
        built.append("slow")
        return "slow"

    results = []
    threads = [
        threading.Thread(target=lambda: results.append(cache.get("slow", slow)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert cache.get("other", lambda: "other") == "other"
    other.set()
    for thread in threads:
        thread.join(10.0)
    assert results == ["slow"] * 4
    assert built == ["slow"]


def test_a_function_is_traced_once_for_every_shape_and_dtype():
    traced = []

    def double(pair):
        traced.append(pair["x"].shape)
        return {"twice": 2 * pair["x"]}

    function = CompiledFunction(double, jit_compile=True)
    for n in (2, 3, 2, 3):
        out = function({"x": tf.ones([n])})
        np.testing.assert_array_equal(out["twice"], np.full(n, 2.0))
    assert function({"x": tf.ones([2], tf.float64)})["twice"].dtype == tf.float64
    assert len(traced) == function.num_traces == 3


def test_many_functions_of_one_piece_of_code_do_not_warn_of_retracing(caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(12):
            function = CompiledFunction(lambda x, i=i: x + i, jit_compile=False)
            assert function(tf.constant(1)).numpy() == 1 + i
    assert not [x for x in caplog.records if "retracing" in x.getMessage()]
