"""In which precision a network works, whatever Keras' global policy is."""

import keras
import numpy as np
import pytest

import tfp_lhnn
from tfp_lhnn.network.dtype_policy import checked_dtype_policy


@pytest.fixture(autouse=True)
def global_policy():
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("mixed_float16", "float32"),
        ("mixed_bfloat16", "float32"),
    ],
)
def test_a_global_policy_counts_by_its_variables(global_policy, policy, expected):
    global_policy(policy)
    assert checked_dtype_policy(None).name == expected
    network = tfp_lhnn.LatentHNN(2, (4,))
    assert network.compute_dtype == expected
    dtypes = {v.dtype for v in network.layer_variables}
    assert dtypes == {expected}


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_a_global_policy_of_half_precision_is_named(global_policy, policy):
    global_policy(policy)
    with pytest.raises(ValueError, match=f"global dtype policy is '{policy}'.*float64"):
        tfp_lhnn.LatentHNN(2, (4,))
    assert tfp_lhnn.LatentHNN(2, (4,), dtype="float64").compute_dtype == "float64"


@pytest.mark.parametrize(
    "dtype",
    [
        *["int32", "bool", "float16", "mixed_float16", "int8_from_float32", "single"],
        *[3.5, [1], {}, keras.DTypePolicy("mixed_bfloat16")],
    ],
)
def test_other_dtypes_are_named(dtype):
    with pytest.raises(ValueError, match=r"`dtype` is .*; a LatentHNN computes in"):
        tfp_lhnn.LatentHNN(2, (4,), dtype=dtype)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_training_and_files_under_a_mixed_policy(global_policy, policy, tmp_path):
    q = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    log_prob = -np.sum(0.5 * q**2 + np.sin(q), axis=-1)
    data = tfp_lhnn.TrainingData.from_gradients(q, -q - np.cos(q), log_prob, seed=0)
    run = {"seed": 1, "num_steps": 30, "jit_compile": False}
    plain = tfp_lhnn.LatentHNN(2, (8,), seed=1)
    tfp_lhnn.train(plain, data, **run)

    global_policy(policy)
    network = tfp_lhnn.LatentHNN(2, (8,), seed=1)
    tfp_lhnn.train(network, data, **run)
    for a, b in zip(plain.get_weights(), network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)

    network.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    loss = network.fit(data, epochs=5, verbose=0).history["loss"]
    assert loss[-1] < loss[0]
    network.save(tmp_path / "a.keras")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_array_equal(loaded.potential(q), network.potential(q))
    assert loaded(q).dtype == "float32"
