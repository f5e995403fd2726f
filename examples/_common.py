"""What the examples share: options, training, energies, costs, ESS, bias, tables."""

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_lhnn

# Trajectories run in one batch, so many short ones cost no more time than few, and
# forty starts in a square of area 144 miss none of the eight modes.
NUM_TRAJECTORIES = 40
START_RADIUS = 6.0
TRAINING_STEP_SIZE = 0.3


def make_parser(description):
    """A parser with the options of every example and its docstring's first line."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--device",
        help="device to run on, such as CPU:0 or GPU:0 (default: TensorFlow's choice)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("figures"), help="directory of the figures"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--num-gradients",
        type=int,
        default=4000,
        help="true gradients to train on; rounded down to whole trajectories",
    )
    parser.add_argument(
        "--num-training-steps", type=int, default=5000, help="optimiser steps, at most"
    )
    parser.add_argument("--hidden-units", type=int, nargs="+", default=[64, 64, 64])
    parser.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compile with XLA; worth its seconds unless there are few draws",
    )
    return parser


def add_chain_arguments(parser, num_chains, num_draws):
    """Numbers of chains and draws; chains that adapt discard their warm-up."""
    parser.add_argument("--num-chains", type=int, default=num_chains)
    parser.add_argument(
        "--num-draws", type=int, default=num_draws, help="kept, per chain"
    )
    parser.add_argument("--num-warmup", type=int, default=500, help="per chain")


def parse_arguments(parser):
    """Parses; refuses a device that does not exist, and lists those that do."""
    args = parser.parse_args()
    names = [device.name for device in tf.config.list_logical_devices()]
    short = [name.removeprefix("/device:") for name in names]
    if args.device is not None and args.device.upper() not in (
        name.upper() for name in (*names, *short)
    ):
        parser.error(
            f"argument --device: there is no device {args.device!r}; TensorFlow sees "
            f"{', '.join(short)}."
        )
    return args


def device_scope(args):
    """A context in which ops go where `--device` says; None leaves the choice open."""
    return tf.device(args.device)


def dispersed_starts(num, dim, seed):
    """Starts all over a box: a network cannot learn a mode that no start is near."""
    generator = np.random.default_rng(seed)
    starts = generator.uniform(-START_RADIUS, START_RADIUS, size=(num, dim))
    return starts.astype(np.float32)


def train_network(log_prob, starts, args, *, dim, step_size):
    """Simulates true trajectories, trains on them, and prints the result."""
    begin = time.perf_counter()
    data = tfp_lhnn.simulate_training_data(
        log_prob,
        starts,
        num_trajectories=NUM_TRAJECTORIES,
        num_steps=max(1, args.num_gradients // NUM_TRAJECTORIES - 1),
        step_size=step_size,
        seed=args.seed,
        jit_compile=args.jit,
    )
    return fit_network(data, args, dim=dim, begin=begin), data


def fit_network(data, args, *, dim, begin):
    """Trains on data whose simulation began at `begin`, and prints the result."""
    network = tfp_lhnn.LatentHNN(dim, args.hidden_units)
    history = tfp_lhnn.train(
        network,
        data,
        seed=args.seed,
        num_steps=args.num_training_steps,
        jit_compile=args.jit,
    )
    print(
        f"Trained on {data.num_gradients} gradients in "
        f"{time.perf_counter() - begin:.1f} s ({history.num_steps} steps, compilation "
        f"included).\nHeld out: energy error {history.energy_error:.2g} nats, relative "
        f"gradient error {history.gradient_error:.2g}."
    )
    return network


def train_on_eight_gaussians(target, args):
    """The training of the paper's first example."""
    starts = dispersed_starts(NUM_TRAJECTORIES, target.dim, args.seed)
    return train_network(
        target.log_prob, starts, args, dim=target.dim, step_size=TRAINING_STEP_SIZE
    )


def true_gradient_fn(log_prob):
    """`∂U/∂q` of the target, with the signature of `network.potential_gradient`."""

    def gradient(q):
        with tf.GradientTape() as tape:
            tape.watch(q)
            potential = -log_prob(q)
        return tape.gradient(potential, q)

    return gradient


def energy_along_trajectories(
    log_prob, gradient_fn, starts, step_size, num_steps, jit_compile
):
    """True `H` along leapfrog trajectories that `gradient_fn` drives.

    Args:
      log_prob: the target's log density.
      gradient_fn: `∂U/∂q`, true or learned, `[starts, dim] -> [starts, dim]`.
      starts: positions and momenta, `[starts, dim]` each.
      step_size: of leapfrog.
      num_steps: how many steps.
      jit_compile: whether XLA compiles the step.

    Returns:
      Energies `[num_steps + 1, starts]` and positions `[num_steps + 1, starts, dim]`.
    """

    @tf.function(jit_compile=jit_compile, autograph=False)
    def advance(q, p, gradient):
        p = p - step_size / 2.0 * gradient
        q = q + step_size * p
        gradient = gradient_fn(q)
        return q, p - step_size / 2.0 * gradient, gradient

    q, p = map(tf.constant, starts)
    gradient = gradient_fn(q)
    positions, momenta = [q], [p]
    for _ in range(num_steps):
        q, p, gradient = advance(q, p, gradient)
        positions.append(q)
        momenta.append(p)
    positions, momenta = tf.stack(positions), tf.stack(momenta)
    energies = 0.5 * tf.reduce_sum(momenta**2, axis=-1) - log_prob(positions)
    return energies.numpy(), positions.numpy()


def compare_energies(target, network, num_starts, step_size, num_steps, args):
    """Energies and positions by true and by network gradients, from exact draws.

    Returns:
      Pairs as of `energy_along_trajectories`, by the name of the gradients.
    """
    position = target.sample(num_starts, args.seed).astype(np.float32)
    momentum = np.random.default_rng(args.seed).normal(size=position.shape)
    return {
        name: energy_along_trajectories(
            target.log_prob,
            gradient_fn,
            (position, momentum.astype(np.float32)),
            step_size,
            num_steps,
            args.jit,
        )
        for name, gradient_fn in (
            ("true gradients", true_gradient_fn(target.log_prob)),
            ("network gradients", network.potential_gradient),
        )
    }


class Cost(NamedTuple):
    """The cost of all draws, warm-up included.

    Gradients and densities are counted for each chain that needed them; "executed"
    are those computed, for all chains at once as soon as one needs them.
    """

    gradients: int
    densities: int
    executed_gradients: int
    executed_densities: int
    compile_seconds: float
    run_seconds: float

    @classmethod
    def of_nuts(cls, leapfrogs, compile_seconds, run_seconds):
        """Of TFP's NUTS, from the leapfrog steps of its draws, `[draws, chains]`."""
        num_chains = leapfrogs.shape[1]
        # A leapfrog step evaluates value and gradient once, and so does the bootstrap;
        # all chains step until the largest tree of the draw is done.
        needed = leapfrogs.sum() + num_chains
        executed = (leapfrogs.max(axis=1).sum() + 1) * num_chains
        return cls(needed, needed, executed, executed, compile_seconds, run_seconds)

    @classmethod
    def of_lhnn(cls, tallies, num_chains, compile_seconds, run_seconds):
        """Of this package's kernels, from their results or their last statistics."""
        return cls(
            np.sum(tallies.target_gradients),
            np.sum(tallies.target_evaluations),
            int(tallies.target_gradient_calls) * num_chains,
            int(tallies.target_evaluation_calls) * num_chains,
            compile_seconds,
            run_seconds,
        )


def cost_rows(costs):
    """Rows of a table, the same for all samplers: executed calls, and seconds."""
    executed = [
        (
            f"{kind} executed in lockstep",
            [getattr(c, f"executed_{kind}") for c in costs],
        )
        for kind in ("gradients", "densities")
    ]
    seconds = [
        (f"seconds, {phase}", [f"{getattr(c, f'{phase}_seconds'):.1f}" for c in costs])
        for phase in ("compile", "run")
    ]
    return executed, seconds


def effective_sample_size(draws):
    """ArviZ's bulk ESS of each column of `[draws, chains, dim]`; `[dim]`."""
    with warnings.catch_warnings():
        # ArviZ announces its next major version at every import.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

    columns = np.moveaxis(np.asarray(draws, np.float64), (1, 0, 2), (0, 1, 2))
    return np.array(
        [
            float(arviz.ess(columns[..., i], method="bulk"))
            for i in range(draws.shape[2])
        ]
    )


def squared_bias(draws, target, seed):
    """The error of first and second moments, and its size by chance alone.

    The bias `b²` is the squared error of `E[x_i]` or `E[x_i²]` over the variance of
    `x_i` or `x_i²` under the target, the largest over coordinates and both moments. An
    exact sampler has `b² ≈ 1/ESS`, so its level under Monte Carlo error alone is
    returned beside it.

    Args:
      draws: `[draws, chains, dim]`.
      target: a `tfp_lhnn.targets.Target` with an exact sampler.
      seed: of the exact draws that give the variance of `x_i²`.

    Returns:
      `b²`, and the value that it stays below in 95 % of runs if there is no bias.
    """
    moments = np.concatenate([draws, draws**2], axis=-1, dtype=np.float64)
    truth = np.concatenate([target.mean, target.variance + target.mean**2])
    # 10⁵ draws give the variances, which are only scales here, to a percent.
    exact = target.sample(100_000, seed)
    scale = np.concatenate([target.variance, np.var(exact**2, axis=0)])
    error = (moments.mean(axis=(0, 1)) - truth) ** 2 / scale
    noise = 1.0 / effective_sample_size(moments)
    # The largest of k independent normal errors; dependence makes it smaller.
    level = (1.0 + 0.95 ** (1.0 / len(noise))) / 2.0
    return error.max(), noise.max() * statistics.NormalDist().inv_cdf(level) ** 2


def print_table(header, rows):
    """Columns as wide as needed; the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for i, row in enumerate(cells):
        rest = [f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([f"{row[0]:<{widths[0]}}", *rest]))
        if i == 0:
            print("  ".join("-" * w for w in widths))


def three_panels(width_ratios=(1.4, 1, 1), **kwargs):
    """A figure with three panels, the first one wider, drawn without a display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(
        1,
        3,
        figsize=(13, 4.2),
        width_ratios=width_ratios,
        layout="constrained",
        **kwargs,
    )


def plot_density(axes, target, radius=7.5):
    """Grey contours of the target's density, in a square about the origin."""
    grid = np.linspace(-radius, radius, 200, dtype=np.float32)
    points = np.stack(np.meshgrid(grid, grid), axis=-1)
    density = np.exp(target.log_prob(points).numpy())
    axes.contour(grid, grid, density, levels=6, colors="0.6", linewidths=0.6)
    limits, ticks = (-radius, radius), [-6, -3, 0, 3, 6]
    axes.set(aspect="equal", xlim=limits, ylim=limits, xticks=ticks, yticks=ticks)
    axes.set(xlabel="$q_1$", ylabel="$q_2$")


def plot_energy(axes, step_size, trajectories):
    """Energy errors of what `compare_energies` returns, against time."""
    for (name, (energy, _)), colour in zip(
        trajectories.items(), ("C0", "C1"), strict=True
    ):
        error = energy - energy[:1]
        lines = axes.plot(step_size * np.arange(len(error)), error, colour, lw=0.7)
        lines[0].set_label(name)
    axes.axhline(0.0, color="0.3", lw=0.6)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axes.set(xlabel="time along the trajectory", ylabel="true $H - H_0$ (nats)")
    axes.legend(loc="upper right", ncols=2)


def save_figure(figure, directory, name):
    """Writes the figure and says where."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    figure.savefig(path, dpi=150)
    print(f"Figure: {path}")
