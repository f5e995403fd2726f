"""How far the paper's monitor moves the distribution that chains converge to.

Chains start from exact draws of a heavy-tailed target and run long enough for flags and
positions to settle; an exact kernel would leave the distribution unchanged. The network
is right in the core and goes wrong outside, as a trained one does; `stiffness` says how
fast. The table goes into docs/algorithm.md, between its markers, with the figure.

    python benchmarks/cooldown_bias.py         # about 8 minutes on two cores
    python benchmarks/cooldown_bias.py --tiny  # a check that it runs; writes nothing
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np
import scripts
import tensorflow as tf

import tfp_lhnn

FIGURE = scripts.ALGORITHM_PAGE.parent / "figures" / "cooldown_bias.png"
MARKERS = ("<!-- cooldown bias: begin -->", "<!-- cooldown bias: end -->")

DIM = 3
DEGREES_OF_FREEDOM = 6.0
CORE_RADIUS = 2.0
STEP_SIZE = 0.6
NUM_CHAINS = 50_000
# The longest memory is a cool-down of 20 draws; twice that lets flags settle.
NUM_DRAWS = 60
FAR_RADIUS = 4.0


def log_prob(q: tf.Tensor) -> tf.Tensor:
    """A multivariate Student density."""
    square = tf.reduce_sum(q**2, axis=-1)
    power = 0.5 * (DEGREES_OF_FREEDOM + DIM)
    return -power * tf.math.log1p(square / DEGREES_OF_FREEDOM)


def exact_draws(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scale = np.sqrt(rng.chisquare(DEGREES_OF_FREEDOM, (n, 1)) / DEGREES_OF_FREEDOM)
    return rng.normal(size=(n, DIM)) / scale


class CoreNetwork:
    """The true potential within `CORE_RADIUS`; outside, a spring is added.

    Args:
        stiffness: of the spring; the network's error in nats at distance `x` outside
            the core is half of it times `x²`.
    """

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, stiffness: float) -> None:
        self.stiffness = stiffness

    def stateless_call(self, trainable: Any, non_trainable: Any, x: tf.Tensor) -> Any:
        """The potential itself, as a single latent."""
        del trainable
        # The constant keeps the gradient of the norm finite at the origin.
        radius = tf.sqrt(tf.reduce_sum(x**2, axis=-1) + 1e-12)
        outside = tf.maximum(radius - CORE_RADIUS, 0.0)
        energy = -log_prob(x) + 0.5 * self.stiffness * outside**2
        return energy[:, tf.newaxis], non_trainable


class Row(NamedTuple):
    """One configuration and its results; distances are between CDFs of the radius."""

    stiffness: float
    monitor: str
    threshold: float
    num_fallback_samples: int
    fires_per_1000_draws: float
    true_gradient_share: float
    distance: float
    mean_error: float
    mean_standard_error: float
    far_ratio: float


def measure(
    stiffness: float, monitor: str, threshold: float, cooldown: int, num_chains: int
) -> Row:
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        log_prob,
        CoreNetwork(stiffness),
        STEP_SIZE,
        max_tree_depth=5,
        max_hnn_energy_diff=threshold,
        num_fallback_samples=cooldown,
        error_monitor=monitor,
    )
    one_step = tf.function(kernel.one_step, jit_compile=True, autograph=False)
    state = tf.constant(exact_draws(num_chains, 1), tf.float32)
    results = kernel.bootstrap_results(state)
    leapfrogs = 0.0
    for i in range(NUM_DRAWS):
        state, results = one_step(state, results, seed=tf.constant([i, 9]))
        leapfrogs += float(tf.reduce_sum(results.leapfrogs_taken))
    radius = np.sort(np.linalg.norm(state.numpy(), axis=-1))
    cdf = radius_cdf(radius)
    grid = np.arange(1, num_chains + 1) / num_chains
    exact = np.linalg.norm(exact_draws(4_000_000, 2), axis=-1)
    return Row(
        stiffness,
        monitor,
        threshold,
        cooldown,
        1000.0 * float(np.mean(results.num_fallbacks)) / NUM_DRAWS,
        float(np.sum(results.target_gradients)) / leapfrogs,
        float(np.max(np.abs(cdf - grid))),
        float(np.mean(radius) - np.mean(exact)),
        float(np.std(radius) / np.sqrt(num_chains)),
        float(np.mean(radius > FAR_RADIUS) / np.mean(exact > FAR_RADIUS)),
    )


def radius_cdf(radius: np.ndarray) -> np.ndarray:
    """P(|q| <= r): with `x = r²/ν`, a beta function of `x / (1 + x)`."""
    x = radius.astype(np.float64) ** 2 / DEGREES_OF_FREEDOM
    return tf.math.betainc(
        np.float64(DIM / 2), np.float64(DEGREES_OF_FREEDOM / 2), x / (1.0 + x)
    ).numpy()


def table(rows: list[Row], num_chains: int) -> str:
    lines = [
        "| network error 2 outside the core | monitor | Δ_hnn | N_lf | fires per 1000 "
        "draws | true-gradient leaves | CDF distance of the radius | error of its mean "
        f"| P(radius > {FAR_RADIUS:g}) / truth |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        is_cooldown = row.monitor == "cooldown"
        lines.append(
            f"| {2.0 * row.stiffness:g} nats | {row.monitor} "
            f"| {row.threshold if is_cooldown else '':} "
            f"| {row.num_fallback_samples if is_cooldown else '':} "
            f"| {row.fires_per_1000_draws:.1f} | {100 * row.true_gradient_share:.1f}% "
            f"| {row.distance:.4f} "
            f"| {row.mean_error:+.4f} ± {row.mean_standard_error:.4f} "
            f"| {row.far_ratio:.3f} |"
        )
    # Smallest distance that is significant at 1% (Dvoretzky-Kiefer-Wolfowitz).
    noise = np.sqrt(np.log(2.0 / 0.01) / (2.0 * num_chains))
    lines.append("")
    lines.append(
        f"{num_chains} chains, {NUM_DRAWS} draws each from exact starts; a distance "
        f"below {noise:.4f} is not distinguishable from none (1% level)."
    )
    return "\n".join(lines)


def plot(rows: list[Row], num_chains: int, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for threshold, cooldown in sorted(
        {(r.threshold, r.num_fallback_samples) for r in rows if r.monitor == "cooldown"}
    ):
        chosen = [
            r
            for r in rows
            if (r.monitor, r.threshold, r.num_fallback_samples)
            == ("cooldown", threshold, cooldown)
        ]
        axis.plot(
            [2.0 * r.stiffness for r in chosen],
            [r.distance for r in chosen],
            "o-",
            label=rf"cooldown, $\Delta_{{hnn}}$={threshold:g}, $N_{{lf}}$={cooldown}",
        )
    exact = [r for r in rows if r.monitor == "none"]
    axis.plot(
        [2.0 * r.stiffness for r in exact],
        [r.distance for r in exact],
        "ks--",
        label="none (exact)",
    )
    noise = np.sqrt(np.log(2.0 / 0.01) / (2.0 * num_chains))
    axis.axhspan(0.0, noise, color="0.9", label="not distinguishable from 0")
    axis.set(
        xscale="log",
        xlabel="network error 2 outside the core [nats]",
        ylabel="CDF distance of the radius from the truth",
        title="Bias of the cool-down monitor, heavy-tailed target",
    )
    errors = sorted({2.0 * r.stiffness for r in rows})
    axis.set_xticks(errors, [f"{error:g}" for error in errors])
    axis.set_xticks([], minor=True)
    axis.set_ylim(bottom=0.0)
    axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    args = scripts.parser(__doc__).parse_args()
    scripts.silence()
    num_chains = 500 if args.tiny else NUM_CHAINS
    configurations = [("none", 10.0, 20), ("cooldown", 10.0, 20)]
    if not args.tiny:
        configurations += [("cooldown", 2.0, 5), ("cooldown", 0.5, 20)]
    rows = []
    for stiffness in [1.0] if args.tiny else [0.1, 0.5, 2.0]:
        for monitor, threshold, cooldown in configurations:
            rows.append(measure(stiffness, monitor, threshold, cooldown, num_chains))
            print(rows[-1], flush=True)
    print(table(rows, num_chains))
    if not args.tiny:
        plot(rows, num_chains, FIGURE)
        scripts.insert(table(rows, num_chains), MARKERS, scripts.ALGORITHM_PAGE)


if __name__ == "__main__":
    main()
