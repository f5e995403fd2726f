"""A run that can be stopped at any moment and resumed where it was.

Interrupt it (Ctrl-C, or kill -9) and start it again: the draws are those of a run that
was never stopped.

    python examples/resume.py --checkpoint run
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np

import tfp_lhnn


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=Path("run"))
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--gradient-budget", type=int, default=5000)
    args = parser.parse_args()
    target = tfp_lhnn.targets.eight_gaussians()
    posterior = tfp_lhnn.sample(
        args.draws,
        target.log_prob,
        initial_state=np.zeros(target.dim, np.float32),
        gradient_budget=args.gradient_budget,
        seed=1,
        checkpoint=args.checkpoint,
    )
    draws = posterior.posterior["x"].values
    print("mean       ", draws.mean((0, 1)), "truth", target.mean)
    print("variance   ", draws.var((0, 1)), "truth", target.variance)
    print("fingerprint", hashlib.sha256(draws.tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
