"""From a log density to a posterior, in one call.

python examples/quickstart.py
"""

import numpy as np

import tfp_lhnn


def log_prob(q):  # x ~ N(0, 1), y | x ~ N(x²/2, 1)
    x, y = q[..., 0], q[..., 1]
    return -0.5 * x**2 - 0.5 * (y - x**2 / 2.0) ** 2


start = np.zeros(2, np.float32)
posterior = tfp_lhnn.sample(1000, log_prob, initial_state=start, seed=1)
print(tfp_lhnn.summarize(posterior))
print("mean of y:", float(posterior.posterior["x"][..., 1].mean()), "(true: 0.5)")
