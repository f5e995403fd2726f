"""A fit in a file: plain fields that go together, and no code."""

import ast
import dataclasses
import inspect
import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_file import load_fit
from tfp_lhnn.learning.fit_result import Fit
from tfp_lhnn.learning.network_arrays import network_from_arrays
from tfp_lhnn.learning.round import Round
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training import TrainingHistory
from tfp_lhnn.sampling.sample import sample


@keras.saving.register_keras_serializable(package="test_fit_file")
def bump(x):
    return tf.exp(-tf.square(x))


def made_fit(dim=2, activation="sine", **settings):
    """A fit that nothing was learned for."""
    rng = np.random.default_rng(0)
    network = LatentHNN(dim, (4, 3), activation, seed=5, **settings)
    network.set_weights(
        [np.asarray(rng.normal(size=w.shape), w.dtype) for w in network.get_weights()]
    )
    momentum = rng.normal(size=(6, dim)).astype(np.float32)
    data = TrainingData(
        position=rng.normal(size=(6, dim)).astype(np.float32),
        momentum=momentum,
        position_rate=momentum,
        momentum_rate=rng.normal(size=(6, dim)).astype(np.float32),
        log_prob=rng.normal(size=6).astype(np.float32),
        trajectory=np.arange(6),
        num_gradients=np.int64(9),
        num_dropped=2,
    )
    curves = [np.arange(3), *rng.normal(size=(4, 3))]
    history = TrainingHistory(*curves, 0.1, np.float32(0.2), np.nan, "network", 750, 1)
    nan = np.nan
    return Fit(
        network=network,
        step_size=np.float32(0.3),
        leapfrogs_per_draw=7.5,
        num_surrogate_transitions=4,
        states=rng.normal(size=(3, dim)).astype(np.float32),
        data=data,
        rounds=(
            Round("pilot", 5, 5, nan, nan, nan, 0.1, None, 0.5),
            Round("refinement", 9, 6, 0.1, 0.9, 0.8, 0.3, history, 2.5),
        ),
        num_gradients=9,
        num_evaluations=11,
        gradient_budget=np.int64(50),
        energy_error=0.1,
        acceptance=0.9,
        held_out=(rng.normal(size=5), rng.normal(size=5)),
        radius=2.0,
        nuts_gradients_per_effective_sample=12.0,
        is_confirmed=np.True_,
        message="The fit is good.",
        seconds=3.0,
    )


def assert_same(one, other):
    if dataclasses.is_dataclass(one):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = tuple(one.values()), tuple(other.values())
    if isinstance(one, LatentHNN):
        assert one.get_config() | {"name": ""} == other.get_config() | {"name": ""}
        one, other = one.get_weights(), other.get_weights()
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "swish", "base": "diagonal"},
        {"activation": bump, "base": "none", "dtype": "float64"},
        {"separable": False, "dim": 1},
    ],
)
def test_a_fit_comes_back(tmp_path, settings):
    fit = made_fit(**settings)
    fit.save(tmp_path / "fit")
    assert_same(Fit.load(tmp_path / "fit"), fit)
    again = Fit.from_arrays(fit.to_arrays())
    assert_same(again, fit)
    assert again.network.activation is fit.network.activation
    assert type(again.num_gradients) is int
    assert type(again.is_confirmed) is bool


def test_keras_deserialiser_is_not_asked(tmp_path, monkeypatch):
    fit = made_fit()

    def refuse(*_, **__):
        raise AssertionError("deserialised")

    for name in ("serialize_keras_object", "deserialize_keras_object"):
        monkeypatch.setattr(keras.saving, name, refuse)
    fit.save(tmp_path / "fit")
    Fit.load(tmp_path / "fit")
    with np.load(tmp_path / "fit") as saved:
        text = saved["text"].tobytes()
    network = json.loads(text)["network"]
    assert network["activation"] == "sine"
    assert b"class_name" not in text
    assert b"module" not in text


def test_an_activation_without_a_name_is_refused(tmp_path):
    class Callable:
        def __call__(self, x):
            return x

    for activation in (lambda x: x, Callable(), keras.layers.LeakyReLU()):
        fit = made_fit(activation=activation)
        with pytest.raises(ValueError, match="register it by"):
            fit.save(tmp_path / "fit")
    assert not (tmp_path / "fit").exists()


def changed_text(arrays, change):
    text = json.loads(arrays["text"].tobytes())
    change(text)
    return {"text": np.frombuffer(json.dumps(text).encode(), np.uint8)}


def network_with(**settings):
    return lambda text: text["network"].update(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (network_with(activation="nobody>knows"), "'nobody>knows' is not known here"),
        (network_with(activation="tfp_lhnn>LatentHNN"), "is not known here"),
        (network_with(activation="deserialize"), "is not known here"),
        (network_with(activation={"module": "os"}), "no valid `activation`"),
        (network_with(dim=3), "need .* or more"),
        (network_with(dim=10**9, base="diagonal"), "need .* or more"),
        (network_with(dim=-2), "`dim`"),
        (network_with(dim=True), "no valid `dim`"),
        (network_with(hidden_units=[10**6, 10**6]), "need .* or more"),
        (network_with(hidden_units=[1] * 1000), "need .* or more"),
        (network_with(hidden_units=[3, 4]), "of shape"),
        (network_with(hidden_units=[4.0, 3.0]), "no integers"),
        (network_with(hidden_units=[]), "hidden_units"),
        (network_with(base="odd"), "`base`"),
        (network_with(base="diagonal"), "of shape"),
        (network_with(base="none"), "9 arrays of weights; expected 7"),
        (network_with(dtype="float64"), "is float32 of shape"),
        (network_with(dtype="int8"), "int8"),
        (lambda text: text.pop("network"), "`network` is a NoneType"),
        (lambda text: text["network"].pop("seed"), "no valid `seed`"),
        (lambda text: text.pop("rounds"), "`rounds` is no list"),
        (lambda text: text["rounds"].append(3), "`round 2` is a int"),
        (lambda text: text["rounds"][1].update(kind=1), "`kind` = 1; expected str"),
        (lambda text: text["rounds"][0].update(history={}), "`history of round 0`"),
        (lambda text: text["values"].update(step_size="1"), "`step_size` = '1'"),
        (lambda text: text["values"].update(is_confirmed=1), "`is_confirmed` = 1"),
        (lambda text: text["values"].update(step_size=-1.0), "`step_size` is -1"),
        (lambda text: text["values"].update(step_size=np.nan), "`step_size` is nan"),
        (
            lambda text: text["values"].update(num_surrogate_transitions=10**12),
            "`num_surrogate_transitions` is",
        ),
        (
            lambda text: text["values"].update(num_surrogate_transitions=0),
            "`num_surrogate_transitions` is 0",
        ),
        (lambda text: text["values"].update(num_gradients=-1), "`num_gradients` is"),
        (
            lambda text: text["values"].update(gradient_budget=10**30),
            "`gradient_budget` is",
        ),
        (lambda text: text["values"].pop("radius"), "`radius` = None"),
        (lambda text: text["data"].update(num_gradients=1), "num_gradients"),
    ],
)
def test_bad_settings_are_named(tmp_path, change, message):
    arrays = made_fit().to_arrays()
    arrays |= changed_text(arrays, change)
    with pytest.raises(ValueError, match=message):
        Fit.from_arrays(arrays)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("text", np.frombuffer(b"{", np.uint8), "`text` is no JSON"),
        ("text", np.frombuffer(b"[1]", np.uint8), "`text` is no dictionary"),
        ("text", np.frombuffer(b"[" * 10**5, np.uint8), "`text` is no JSON"),
        ("text", None, "no `text`"),
        ("states", np.zeros([3, 5], np.float32), r"shape \(3, 5\).*\[chains, 2\]"),
        ("states", np.zeros([0, 2], np.float32), "`states`"),
        ("states", np.zeros([3, 2], int), "`states` is int64"),
        ("states", np.full([3, 2], np.nan, np.float32), "expected finite"),
        ("states", None, "no `states`"),
        ("weight_0", np.zeros(3, np.float32), r"`weight_0` is float32 of shape \(3,\)"),
        ("weight_0", np.zeros(2), "`weight_0` is float64"),
        ("weight_1", np.full([2, 2], np.nan, "f"), "`weight_1` has .* not finite"),
        ("weight_3", None, "no `weight_8`|no `weight_3`"),
        ("weight_9", np.zeros(2), "10 arrays of weights; expected 9"),
        ("data_position", np.zeros([5, 2], np.float32), "shape"),
        ("data_log_prob", np.zeros(6, np.float16), "bad `data`.*float16"),
        ("held_out_error", np.zeros(4), "`held_out_error`.*as many as"),
        ("held_out_error", np.zeros([5, 1]), "`held_out_error`"),
        ("round_1_value_loss", np.zeros(2), "`round_1_value_loss`.*as many as"),
        ("round_1_value_loss", None, "no `round_1_value_loss`"),
    ],
)
def test_arrays_that_do_not_go_together_are_named(tmp_path, name, array, message):
    arrays = made_fit().to_arrays() | {name: array}
    arrays = {key: value for key, value in arrays.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        Fit.from_arrays(arrays)
    np.savez(tmp_path / "odd.npz", format_version=3, **arrays)
    with pytest.raises(ValueError, match=rf"odd\.npz is not a fit file.*({message})"):
        Fit.load(tmp_path / "odd.npz")


def test_data_of_another_dimension(tmp_path):
    other = made_fit(dim=3).to_arrays()
    arrays = made_fit().to_arrays()
    arrays |= {name: other[name] for name in other if name.startswith("data_")}
    with pytest.raises(ValueError, match="`data` has 3 dimensions; the network has 2"):
        Fit.from_arrays(arrays)


def test_old_files_are_refused_by_their_version(tmp_path):
    np.savez(tmp_path / "fit.npz", format_version=2, **made_fit().to_arrays())
    with pytest.raises(ValueError, match="format version 2; expected 3"):
        Fit.load(tmp_path / "fit.npz")


@pytest.mark.parametrize("function", [load_fit, network_from_arrays, sample])
def test_checks_are_no_asserts(function):
    # Python leaves those out if told to be quick.
    tree = ast.parse(inspect.getsource(sys.modules[function.__module__]))
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_the_file_does_not_know_the_class():
    """Either module may be imported first: there is no cycle to be careful about."""
    assert tfp_lhnn.Fit is Fit
    source = sys.modules["tfp_lhnn.learning.fit_file"]
    assert not hasattr(source, "Fit")
