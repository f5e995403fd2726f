"""A model of TFP: constrained, in several parts, with its own names (eight schools).

python examples/joint_distribution.py --output figures
"""

import argparse
from pathlib import Path

import arviz as az
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

tfd = tfp.distributions

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12], np.float32)
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18], np.float32)


def eight_schools():
    """Effects of coaching in eight schools, non-centred: `theta = mu + tau z`."""
    return tfd.JointDistributionNamedAutoBatched(
        {
            "mu": tfd.Normal(0.0, 5.0),
            "tau": tfd.HalfNormal(5.0),
            "z": tfd.Sample(tfd.Normal(0.0, 1.0), 8),
            "y": lambda z, tau, mu: tfd.Normal(mu + tau * z, ERRORS),
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device to run on, such as CPU:0 or GPU:0")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--gradient-budget", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=Path("figures"))
    args = parser.parse_args()
    with tf.device(args.device):
        posterior = tfp_lhnn.sample(
            args.draws,
            eight_schools(),
            n_chains=4,
            gradient_budget=args.gradient_budget,
            seed=1,
            y=EFFECTS,
        )
    print(az.summary(posterior, kind="stats", round_to=2))
    print(tfp_lhnn.summarize(posterior))
    path = tfp_lhnn.report(
        posterior, args.output / "eight_schools.html", title="Eight schools"
    )
    print(f"Report: {path}")


if __name__ == "__main__":
    main()
