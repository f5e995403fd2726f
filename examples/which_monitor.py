"""Four ways to use a network that is wrong in the tail, beside TFP's NUTS.

The target is a Student density in three dimensions. The network has seen gradients
within radius 2 only, as after too short a pilot run: it knows two thirds of the mass,
and its energy is far too high beyond. All samplers have the same step size and start
from the same exact draws, so that any difference from the truth is caused by the
sampler:

1. `"cooldown"`, the paper's monitor: cheap, and never stuck, but it loses the tail;
2. `"pointwise"`: exact, true gradients wherever the network is wrong;
3. `"none"`: exact, no gradient at all, but chains in the tail get stuck;
4. delayed acceptance: exact, one density per draw, with occasional true transitions
   that free stuck chains.

A stuck chain is exact but says little: look at the Monte Carlo error, which comes from
the differences between chains, before the bias.

    python examples/which_monitor.py --output figures
"""

import time
import warnings
from typing import NamedTuple

import _common
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

DIM = 3
DEGREES_OF_FREEDOM = 6.0
# The network has seen only what is within the first; 1.5 % of the mass is beyond the
# second.
CORE_RADIUS, FAR_RADIUS = 2.0, 5.0
STEP_SIZE = 0.6
NUM_CHUNKS = 4


class Run(NamedTuple):
    """Distances of the draws from the origin, `[draws, chains]`, and their cost."""

    radius: np.ndarray
    is_exact: bool
    moved: float
    cost: _common.Cost


def log_prob(q):
    """A multivariate Student density, unnormalised."""
    square = tf.reduce_sum(q**2, axis=-1)
    power = 0.5 * (DEGREES_OF_FREEDOM + DIM)
    return -power * tf.math.log1p(square / DEGREES_OF_FREEDOM)


def exact_draws(n, seed):
    generator = np.random.default_rng(seed)
    square = generator.chisquare(DEGREES_OF_FREEDOM, (n, 1)) / DEGREES_OF_FREEDOM
    return generator.normal(size=(n, DIM)) / np.sqrt(square)


def spread_starts(n, truth, seed):
    """Exact draws, one from each of `n` shells of equal mass.

    Stuck chains keep the luck of their starts. With these starts, the number of chains
    that begin far out is not random.

    Args:
      n: how many.
      truth: distances of many exact draws from the origin.
      seed: of directions and of places within a shell.

    Returns:
      Positions `[n, dim]`.
    """
    generator = np.random.default_rng(seed)
    radius = np.quantile(truth, (np.arange(n) + generator.uniform(size=n)) / n)
    direction = generator.normal(size=(n, DIM))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    return tf.constant(radius[:, np.newaxis] * direction, tf.float32)


def train_on_core(args):
    """A network that knows the target within `CORE_RADIUS` and nowhere else."""
    begin = time.perf_counter()
    # One in three lies outside; twice as many draws as needed are enough.
    draws = exact_draws(2 * args.num_gradients, args.seed)
    inside = draws[np.linalg.norm(draws, axis=-1) < CORE_RADIUS][: args.num_gradients]
    position = tf.constant(inside, tf.float32)
    value, gradient = tfp.math.value_and_gradient(log_prob, position)
    data = tfp_lhnn.TrainingData.from_gradients(
        position.numpy(), gradient.numpy(), value.numpy(), seed=args.seed
    )
    return _common.fit_network(data, args, dim=DIM, begin=begin), data


def make_kernels(network, args):
    """TFP's NUTS and the four modes, by the names they have in table and figure."""
    depth = args.max_tree_depth
    kernels = {
        "tfp NUTS": tfp.mcmc.NoUTurnSampler(log_prob, STEP_SIZE, max_tree_depth=depth)
    }
    for monitor in ("cooldown", "pointwise", "none"):
        kernels[monitor] = tfp_lhnn.LatentHNNNoUTurnSampler(
            log_prob, network, STEP_SIZE, max_tree_depth=depth, error_monitor=monitor
        )
    kernels["delayed"] = tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
        log_prob,
        network,
        STEP_SIZE,
        max_tree_depth=depth,
        true_transition_probability=args.true_transition_probability,
    )
    return kernels


def sample(kernel, starts, args):
    """Draws in equal chunks of one compiled call; the first has to be compiled."""

    @tf.function(jit_compile=args.jit, autograph=False)
    def run(state, results, seed):
        return tfp.mcmc.sample_chain(
            args.num_draws // NUM_CHUNKS,
            state,
            kernel=kernel,
            previous_kernel_results=results,
            return_final_kernel_results=True,
            trace_fn=lambda _, results: (results.leapfrogs_taken, results.is_accepted),
            seed=seed,
        )

    state, results = starts, kernel.bootstrap_results(starts)
    chunks, seconds = [], []
    with warnings.catch_warnings():
        # True of "cooldown", and the subject of this example.
        warnings.filterwarnings("ignore", message=".*is not calibrated")
        for i in range(NUM_CHUNKS):
            begin = time.perf_counter()
            draws, trace, results = run(state, results, tf.constant([args.seed, i]))
            chunks.append([x.numpy() for x in (draws, *trace)])
            seconds.append(time.perf_counter() - begin)
            state = draws[-1]
    draws, leapfrogs, is_accepted = map(np.concatenate, zip(*chunks, strict=True))
    run_seconds = np.mean(seconds[1:]) * NUM_CHUNKS
    seconds = sum(seconds) - run_seconds, run_seconds
    if isinstance(kernel, tfp.mcmc.NoUTurnSampler):
        cost = _common.Cost.of_nuts(leapfrogs, *seconds)
    else:
        cost = _common.Cost.of_lhnn(results, args.num_chains, *seconds)
    return Run(
        np.linalg.norm(draws.astype(np.float64), axis=-1),
        kernel.is_calibrated,
        is_accepted.mean(),
        cost,
    )


def mean_and_error(values):
    """Mean of `[draws, chains]`, and its standard error from the spread of chains."""
    chains = values.mean(axis=0)
    return chains.mean(), chains.std(ddof=1) / np.sqrt(len(chains))


def radius_ess(run):
    return float(_common.effective_sample_size(run.radius[..., np.newaxis])[0])


def far_share(run, truth):
    """Share of draws beyond `FAR_RADIUS` over the true share, and its error."""
    scale = np.mean(truth > FAR_RADIUS)
    mean, error = mean_and_error(run.radius > FAR_RADIUS)
    return mean / scale, error / scale


def print_comparison(runs, truth, num_training_gradients, args):
    names, each = list(runs), list(runs.values())
    ess = [radius_ess(run) for run in each]
    training = [0] + [num_training_gradients] * (len(each) - 1)
    costs = [run.cost for run in each]
    executed, seconds = _common.cost_rows(costs)
    total = [cost.gradients + n for cost, n in zip(costs, training, strict=True)]

    def per(counts):
        return [f"{e / n:.3f}" if n else "-" for e, n in zip(ess, counts, strict=True)]

    def with_error(mean, error, digits=3):
        return f"{mean:.{digits}f} ± {error:.{digits}f}"

    def mean_error(run):
        mean, error = mean_and_error(run.radius)
        return with_error(mean - truth.mean(), error)

    rows = [
        ("exact", ["yes" if r.is_exact else "no" for r in each]),
        ("draws, all chains", [r.radius.size for r in each]),
        ("share moved", [f"{r.moved:.3f}" for r in each]),
        ("gradients, sampling", [c.gradients for c in costs]),
        ("gradients, with training", total),
        ("densities", [c.densities for c in costs]),
        *executed,
        ("ESS of the radius", [f"{e:.0f}" for e in ess]),
        ("ESS per gradient, sampling", per([c.gradients for c in costs])),
        ("ESS per gradient, with training", per(total)),
        ("ESS per density", per([c.densities for c in costs])),
        ("error of the mean radius", [mean_error(r) for r in each]),
        (
            f"share beyond {FAR_RADIUS:g} / truth",
            [with_error(*far_share(r, truth), 2) for r in each],
        ),
        *seconds,
    ]
    print(f"\n{args.num_chains} chains, {args.num_draws} draws each from exact starts.")
    _common.print_table(["", *names], [[name, *cells] for name, cells in rows])
    print(
        "A value with its gradient counts as one of each. Executed in lockstep: all "
        "chains compute\nwhat one of them needs. ± is one Monte Carlo standard error."
    )


def draw_figure(runs, truth, network, num_training_gradients, args):
    """The error of the network, and the cost and bias of each mode."""
    figure, (energy, cost, bias) = _common.three_panels(width_ratios=(1, 1.3, 1))
    radius = np.linspace(0.0, 8.0, 200, dtype=np.float32)
    line = np.stack([radius, 0 * radius, 0 * radius], axis=-1)
    energy.axvspan(0.0, CORE_RADIUS, color="0.92")
    energy.text(CORE_RADIUS / 2, 17.2, "seen in\ntraining", ha="center", va="top")
    energy.plot(radius, -log_prob(line), "k", label="target $U$")
    energy.plot(radius, network.potential(line), "C3--", label=r"network $U_\theta$")
    energy.set(title="(a) The network is wrong in the tail", xlabel="radius")
    energy.set(xlim=(0.0, 8.0), ylim=(0.0, 18.0), ylabel="energy (nats)")
    energy.legend(loc="lower right")

    names = [n if r.is_exact else f"{n}\n(not exact)" for n, r in runs.items()]
    rows = np.arange(len(names))
    plot_cost(cost, rows, list(runs.values()), num_training_gradients)
    for row, run in zip(rows, runs.values(), strict=True):
        mean, error = far_share(run, truth)
        colour = "k" if run.is_exact else "C3"
        bias.errorbar(mean, row, xerr=2 * error, fmt="o", color=colour, capsize=4)
    bias.axvline(1.0, color="0.5", lw=0.8, zorder=0)
    bias.set(title=f"(c) Draws beyond radius {FAR_RADIUS:g}", ylim=(4.6, -0.6))
    bias.set(xlabel="their share / true share, ± 2 standard errors")
    for axes in (cost, bias):
        axes.set_yticks(rows, names)
    _common.save_figure(figure, args.output, "which_monitor.png")


def plot_cost(axes, rows, runs, num_training_gradients):
    """Bars of calls per effective sample; behind them, in pale, the calls executed."""
    ess = np.array([radius_ess(run) for run in runs])
    training = num_training_gradients * (rows > 0)
    for offset, label, colour, needed, executed in (
        (
            -0.2,
            "gradients, training included",
            "C3",
            [r.cost.gradients for r in runs] + training,
            [r.cost.executed_gradients for r in runs] + training,
        ),
        (
            0.2,
            "densities",
            "C0",
            np.array([r.cost.densities for r in runs]),
            np.array([r.cost.executed_densities for r in runs]),
        ),
    ):
        axes.barh(rows + offset, executed / ess, 0.38, color=colour, alpha=0.25)
        bars = axes.barh(rows + offset, needed / ess, 0.38, color=colour, label=label)
        labels = [f"{n:.0f}" if n >= 10 else f"{n:.2g}" for n in needed / ess]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set(xscale="log", ylim=(4.6, -1.1), title="(b) What an effective sample costs")
    axes.set(xlabel="per effective sample of the radius (pale: run in lockstep)")
    axes.set_xlim(right=2.0 * axes.get_xlim()[1])  # room for the labels
    axes.legend(loc="upper right", ncols=2, fontsize=8)


def parse_arguments():
    parser = _common.make_parser(__doc__)
    # A small network is enough for the core of a Student density.
    parser.set_defaults(num_gradients=2000, num_training_steps=2000)
    parser.set_defaults(hidden_units=[32, 32])
    parser.add_argument("--num-chains", type=int, default=512)
    parser.add_argument("--num-draws", type=int, default=1000, help="per chain")
    parser.add_argument("--max-tree-depth", type=int, default=6)
    parser.add_argument(
        "--true-transition-probability",
        type=float,
        default=0.1,
        help="of delayed acceptance; the kernel's own default suits a good network",
    )
    return _common.parse_arguments(parser)


def main():
    args = parse_arguments()
    truth = np.linalg.norm(exact_draws(4_000_000, args.seed + 1), axis=-1)
    with _common.device_scope(args):
        network, data = train_on_core(args)
        starts = spread_starts(args.num_chains, truth, args.seed + 2)
        runs = {
            name: sample(kernel, starts, args)
            for name, kernel in make_kernels(network, args).items()
        }
        print_comparison(runs, truth, data.num_gradients, args)
        draw_figure(runs, truth, network, data.num_gradients, args)


if __name__ == "__main__":
    main()
