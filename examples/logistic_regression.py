"""Logistic regression with many rows: a density too expensive for NUTS.

python examples/logistic_regression.py --rows 100000 --output figures
"""

import argparse
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfp_lhnn

DIM = 25


def make_data(rows, seed=0):
    """Standard normal features with an intercept, and labels of known coefficients."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, DIM)).astype(np.float32)
    features[:, -1] = 1.0
    truth = rng.normal(scale=0.5, size=DIM).astype(np.float32)
    labels = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-features @ truth))
    return features, labels.astype(np.float32), truth


def make_log_prob(features, labels):
    """`[n, DIM] -> [n]`, with a standard normal prior.

    The terms of the rows are computed in single precision, which is fast. They are
    summed in the precision of `q`. With a million rows the sum is near -4e5, where
    neighbouring numbers of single precision are 0.03 apart: too far for differences of
    log densities.
    """
    features, labels = tf.constant(features), tf.constant(labels)

    def log_prob(q):
        logits = tf.matmul(tf.cast(q, features.dtype), features, transpose_b=True)
        likelihood = labels * logits - tf.math.softplus(logits)
        total = tf.reduce_sum(tf.cast(likelihood, q.dtype), -1)
        return total - 0.5 * tf.reduce_sum(q**2, -1)

    return log_prob


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device to run on, such as CPU:0 or GPU:0")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--gradient-budget", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=Path("figures"))
    args = parser.parse_args()
    features, labels, truth = make_data(args.rows)
    with tf.device(args.device):
        posterior = tfp_lhnn.sample(
            args.draws,
            make_log_prob(features, labels),
            initial_state=np.zeros(DIM),  # float64
            gradient_budget=args.gradient_budget,
            seed=1,
        )
    print(tfp_lhnn.summarize(posterior))
    draws = posterior.posterior["x"].values
    score = (draws.mean((0, 1)) - truth) / draws.std((0, 1))
    # Of 25 true coefficients about 24 lie within two posterior standard deviations.
    print(
        f"coefficients within 2 sd of the truth: {np.sum(np.abs(score) < 2)} of {DIM}"
    )
    print(f"seconds: {posterior.attrs['seconds']:.0f}")
    path = tfp_lhnn.report(posterior, args.output / "logistic_regression.html")
    print(f"Report: {path}")


if __name__ == "__main__":
    main()
