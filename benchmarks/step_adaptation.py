"""How step-size adaptation works with a network that is wrong by a known amount.

The target is a 2-D Gaussian and the network's energy is `U + a sin(2 q_0)`, so that no
step, however small, conserves the true energy. TFP's dual averaging adapts the step,
which is then kept. The table goes into docs/algorithm.md, between its markers.

    python benchmarks/step_adaptation.py         # about 10 minutes on two cores
    python benchmarks/step_adaptation.py --tiny  # a check that it runs; writes nothing

`--json FILE` writes the rows to a file; `--before FILE` adds such rows, of an earlier
version of the package, to the table. The script uses nothing but public names:

    PYTHONPATH=<earlier version> python benchmarks/step_adaptation.py --json before.json
    python benchmarks/step_adaptation.py --before before.json
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import scripts
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

MARKERS = ("<!-- step adaptation: begin -->", "<!-- step adaptation: end -->")

ERRORS = (0.0, 0.3, 1.0, 2.0)  # nats
MODES = ("none", "cooldown", "pointwise", "delayed acceptance")
NUM_CHAINS = 16
NUM_ADAPTATION = 400
NUM_DRAWS = 500
FIRST_STEP = 0.5
TARGET_ACCEPTANCE = 0.8
# Seeds 1 to 5 were used to choose the numbers above.
SEEDS = range(11, 15)


def log_prob(q: tf.Tensor) -> tf.Tensor:
    """A standard Gaussian, `[chains, 2] -> [chains]`."""
    return -0.5 * tf.reduce_sum(q**2, axis=-1)


class WavyNetwork:
    """The true potential and a wave on top.

    Args:
        amplitude: of the wave, in nats; the energy is wrong by up to this.
    """

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, amplitude: float) -> None:
        self.amplitude = amplitude

    def stateless_call(self, trainable: Any, non_trainable: Any, x: tf.Tensor) -> Any:
        """The potential itself, as a single latent."""
        del trainable
        energy = -log_prob(x) + self.amplitude * tf.sin(2.0 * x[:, 0])
        return energy[:, tf.newaxis], non_trainable


class Row(NamedTuple):
    """One mode with one network: means over seeds, chains and draws."""

    error: float
    mode: str
    step: float
    leaves: float
    densities: float
    gradients: float
    driving_accept: float
    true_accept: float
    ess_per_draw: float
    mean_error: float
    mean_standard_error: float
    square_error: float
    square_standard_error: float


def make_kernel(amplitude: float, mode: str) -> tfp.mcmc.TransitionKernel:
    network = WavyNetwork(amplitude)
    if mode == "delayed acceptance":
        kernel = tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
            log_prob, network, FIRST_STEP
        )
    else:
        kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
            log_prob, network, FIRST_STEP, error_monitor=mode
        )
    return tfp.mcmc.DualAveragingStepSizeAdaptation(
        kernel, NUM_ADAPTATION, target_accept_prob=TARGET_ACCEPTANCE
    )


def ess_per_draw(values: np.ndarray) -> float:
    """The smallest ESS of some averages, `[draws, chains, averages]`, per draw."""
    ess = tfp.mcmc.effective_sample_size(
        tf.constant(values), cross_chain_dims=1, filter_beyond_positive_pairs=True
    )
    return float(tf.reduce_min(ess)) / (values.shape[0] * values.shape[1])


def measure(amplitude: float, mode: str, seeds: Any, num_draws: int) -> Row:
    kernel = make_kernel(amplitude, mode)

    @tf.function(jit_compile=True, autograph=False)
    def sample(state: tf.Tensor, seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            num_draws,
            state,
            kernel=kernel,
            num_burnin_steps=NUM_ADAPTATION,
            trace_fn=tfp_lhnn.trace_stats,
            seed=seed,
        )

    runs = []
    for seed in seeds:
        # Exact draws, so that any later error is caused by the kernel.
        state = np.random.default_rng(seed).normal(size=(NUM_CHAINS, 2))
        draws, stats = sample(tf.constant(state, tf.float32), tf.constant([seed, 3]))
        x = draws.numpy().astype(np.float64)
        values = np.concatenate([x, x**2], axis=-1)
        true_accept = getattr(stats, "log_true_accept_ratio", None)
        if mode == "delayed acceptance":
            true_accept = np.minimum(stats.log_delayed_accept_ratio, 0.0)
        elif true_accept is None:  # versions in which this was the only ratio
            true_accept = stats.log_accept_ratio
        tallies = [
            (tally[-1] - tally[0]).numpy().mean() / (num_draws - 1)
            for tally in (stats.target_evaluations, stats.target_gradients)
        ]
        runs.append(
            (
                float(stats.step_size[-1]),
                float(np.mean(stats.leapfrogs_taken)),
                *tallies,
                float(np.mean(np.exp(stats.log_accept_ratio))),
                float(np.mean(np.exp(true_accept))),
                ess_per_draw(values),
                *chain_means(values[..., 0]),
                *chain_means(values[..., 2] - 1.0),
            )
        )
    columns = np.array(runs, np.float64)
    summary = columns.mean(axis=0)
    # Standard errors of independent runs.
    for column in (8, 10):
        summary[column] = np.sqrt(np.sum(columns[:, column] ** 2)) / len(runs)
    return Row(amplitude, mode, *(float(value) for value in summary))


def chain_means(errors: np.ndarray) -> tuple[float, float]:
    """Mean of `[draws, chains]`, and its standard error: chains are independent."""
    means = errors.mean(axis=0)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(means.size))


def table(rows: list[Row], before: list[Row]) -> str:
    old = {(row.error, row.mode): row for row in before}
    lines = [
        "| network wrong by | mode | step | leaves | densities | gradients "
        "| acceptance, driving | acceptance, true | ESS "
        "| error of E[q₀] | error of E[q₀²] |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        earlier = old.get((row.error, row.mode))
        cells = [
            _cell(row, earlier, field, digits)
            for field, digits in (
                ("step", "{:.2g}"),
                ("leaves", "{:.3g}"),
                ("densities", "{:.3g}"),
                ("gradients", "{:.3g}"),
                ("driving_accept", "{:.2f}"),
                ("true_accept", "{:.2f}"),
                ("ess_per_draw", "{:.2f}"),
            )
        ]
        lines.append(
            f"| {row.error:g} nats | {row.mode} | {' | '.join(cells)} "
            f"| {row.mean_error:+.3f} ± {row.mean_standard_error:.3f} "
            f"| {row.square_error:+.3f} ± {row.square_standard_error:.3f} |"
        )
    return "\n".join(lines)


def _cell(row: Row, before: Row | None, field: str, digits: str) -> str:
    value = digits.format(getattr(row, field))
    if before is None or field == "driving_accept":
        return value
    return f"{digits.format(getattr(before, field))} → {value}"


def main() -> None:
    parser = scripts.parser(__doc__)
    parser.add_argument("--json", help="write the rows to this file, not to the page")
    parser.add_argument("--before", help="rows of an earlier version, from --json")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    args = parser.parse_args()
    scripts.silence()
    seeds, num_draws = (args.seeds[:1], 20) if args.tiny else (args.seeds, NUM_DRAWS)
    rows = []
    for error in ERRORS[2:3] if args.tiny else ERRORS:
        for mode in MODES:
            rows.append(measure(error, mode, seeds, num_draws))
            print(rows[-1], flush=True)
    before = []
    if args.before:
        stored = json.loads(pathlib.Path(args.before).read_text())
        before = [Row(**row) for row in stored]
    text = table(rows, before)
    print(text)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps([row._asdict() for row in rows]))
    elif not args.tiny:
        scripts.insert(text, MARKERS, scripts.ALGORITHM_PAGE)


if __name__ == "__main__":
    main()
