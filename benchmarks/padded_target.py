"""Seconds per effective sample on a target that costs about a millisecond a call.

The target is five curved ridges in ten dimensions, with exact draws to compare with,
padded by a chain of matrix products that enters the density with weight 1e-30: real
work, which XLA cannot drop, and no effect on the value. Its length is set at run time
so that one density of all chains takes about a millisecond on this machine. Every
sampler adapts its step size. Then all draw in turns, so that other load on the machine
affects them equally. The table goes into docs/algorithm.md, between its markers.

    python benchmarks/padded_target.py         # about 7 minutes on two cores
    python benchmarks/padded_target.py --tiny  # a check that it runs; writes nothing
"""

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scripts
import tensorflow as tf
import tensorflow_probability as tfp
from curved_ridges import DIM, exact_draws, log_prob

import tfp_lhnn

MARKERS = ("<!-- padded target: begin -->", "<!-- padded target: end -->")

NUM_CHAINS = 4
# Width of the padding's matrix: its 256 kB stay in the cache of a core.
PADDING_WIDTH = 256
DENSITY_MILLISECONDS = 1.0

LogProb = Callable[[tf.Tensor], tf.Tensor]


class Size(NamedTuple):
    """The size of a run.

    Attributes:
        num_draws: of each chain in a round; the warm-up is one round.
        num_rounds: of sampling.
        num_steps: leapfrog steps of each of the 40 training trajectories.
        num_training_steps: of the optimiser, at most.
        num_transitions: of the second delayed-acceptance sampler.
        max_tree_depth: of all samplers.
    """

    num_draws: int = 300
    num_rounds: int = 6
    num_steps: int = 99
    num_training_steps: int = 5000
    num_transitions: int = 4
    max_tree_depth: int = 10


TINY = Size(
    num_draws=5, num_rounds=2, num_steps=4, num_training_steps=10, max_tree_depth=3
)


class Row(NamedTuple):
    """One sampler; calls are those executed for all chains while sampling.

    Attributes:
        name: of the sampler.
        leaves: per draw and chain.
        moved: share of draws that left their start.
        gradients: calls for value and gradient.
        densities: calls for the value alone.
        ess: smallest over the moments `E[x_i]` and `E[x_i²]`.
        bias: `b²`, the largest squared error of these, over the variance of `x_i` or
            `x_i²`.
        chance: what `b²` stays below in 95 % of runs without bias.
        seconds: of sampling.
        total_seconds: training, compilation and warm-up too.
    """

    name: str
    leaves: float
    moved: float
    gradients: int
    densities: int
    ess: float
    bias: float
    chance: float
    seconds: float
    total_seconds: float


def padded(log_prob: LogProb, num_layers: int) -> LogProb:
    """The same density, after `num_layers` products with an orthogonal matrix."""
    generator = np.random.default_rng(0)
    square = generator.normal(size=(PADDING_WIDTH, PADDING_WIDTH))
    weights = tf.constant(np.linalg.qr(square)[0], tf.float32)
    embedding = tf.constant(generator.normal(size=(DIM, PADDING_WIDTH)), tf.float32)

    def padded_log_prob(q: tf.Tensor) -> tf.Tensor:
        x = tf.tanh(tf.matmul(q, embedding))
        for i in range(num_layers):
            # The matrix and its transpose alternate: each is the gradient of the other,
            # and they run at different speeds.
            x = tf.tanh(tf.matmul(x, weights, transpose_b=i % 2 == 1))
        return log_prob(q) + 1e-30 * tf.reduce_sum(x, axis=-1)

    return padded_log_prob


class CallCost:
    """Times calls for all chains, in a compiled loop in which each call needs the last.

    Args:
        log_prob: what is called.
        with_gradient: whether for value and gradient.
    """

    NUM_CALLS = 50

    def __init__(self, log_prob: LogProb, with_gradient: bool) -> None:
        def call(i: tf.Tensor, q: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if with_gradient:
                value, gradient = tfp.math.value_and_gradient(log_prob, q)
                return i + 1, q + 1e-6 * (gradient + value[:, tf.newaxis])
            return i + 1, q + 1e-6 * log_prob(q)[:, tf.newaxis]

        @tf.function(jit_compile=True, autograph=False)
        def run(q: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(lambda i, _: i < self.NUM_CALLS, call, (0, q))[1]

        self._run = run
        self._run(tf.zeros([NUM_CHAINS, DIM]))
        self._milliseconds: list[float] = []

    def measure(self) -> None:
        """A few more times."""
        for _ in range(5):
            begin = time.perf_counter()
            self._run(tf.zeros([NUM_CHAINS, DIM])).numpy()
            seconds = time.perf_counter() - begin
            self._milliseconds.append(1e3 * seconds / self.NUM_CALLS)

    @property
    def milliseconds(self) -> float:
        """Median of all calls so far: other load also slows down the samplers."""
        return statistics.median(self._milliseconds)


def calibrate() -> int:
    """Number of layers at which a density costs `DENSITY_MILLISECONDS`."""
    num_layers = 40
    for _ in range(2):  # Other load on the machine may spoil one measurement.
        cost = CallCost(padded(log_prob, num_layers), with_gradient=False)
        for _ in range(5):
            cost.measure()
        num_layers = max(
            1, round(num_layers * DENSITY_MILLISECONDS / cost.milliseconds)
        )
    return num_layers


def train(target: LogProb, size: Size) -> tuple[tfp_lhnn.LatentHNN, int, str]:
    """The network, its cost in gradients, and its error."""
    num_trajectories = 40
    # Spread more widely than the target: the network knows only what it has seen.
    starts = 1.5 * np.random.default_rng(1).normal(size=(num_trajectories, DIM))
    data = tfp_lhnn.simulate_training_data(
        target,
        starts.astype(np.float32),
        num_trajectories=num_trajectories,
        num_steps=size.num_steps,
        step_size=0.2,
        seed=1,
    )
    network = tfp_lhnn.LatentHNN(DIM, hidden_units=(64, 64, 64))
    history = tfp_lhnn.train(network, data, seed=2, num_steps=size.num_training_steps)
    return network, data.num_gradients, f"{history.energy_error:.2g} nats"


def make_kernels(target: LogProb, network: Any, size: Size) -> dict[str, Any]:
    """The samplers, each in a wrapper with the acceptance that suits it.

    Plain NUTS does best at 0.8. If leaves cost no gradient, smaller steps are better.
    """
    common = {"step_size": 0.2, "max_tree_depth": size.max_tree_depth}
    kernels: dict[str, Any] = {"tfp NUTS": tfp.mcmc.NoUTurnSampler(target, **common)}
    for monitor in ("cooldown", "pointwise", "none"):
        kernels[f'"{monitor}"'] = tfp_lhnn.LatentHNNNoUTurnSampler(
            target, network, error_monitor=monitor, **common
        )
    for number in (1, size.num_transitions):
        kernels[f"delayed acceptance, K = {number}"] = (
            tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
                target, network, num_surrogate_transitions=number, **common
            )
        )
    return {
        name: tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel,
            num_adaptation_steps=int(0.8 * size.num_draws),
            target_accept_prob=0.8 if name == "tfp NUTS" else 0.9,
        )
        for name, kernel in kernels.items()
    }


class Chains:
    """Chains that can be continued, a round at a time.

    Args:
        kernel: the sampler, in a wrapper that adapts its step size.
        num_draws: of each chain in a round; the first round is the warm-up.
    """

    def __init__(self, kernel: tfp.mcmc.TransitionKernel, num_draws: int) -> None:
        self._advance = scripts.compiled_chunk(
            kernel,
            num_draws,
            lambda _, results: (
                results.inner_results.leapfrogs_taken,
                results.inner_results.is_accepted,
            ),
        )
        self.state = tf.constant(exact_draws(NUM_CHAINS, 3), tf.float32)
        self.results = kernel.bootstrap_results(self.state)
        self.draws: list[np.ndarray] = []
        self.leaves: list[np.ndarray] = []
        self.moved: list[np.ndarray] = []
        self.seconds: list[float] = []
        self.calls = [self._executed()]

    def advance(self, seed: int) -> None:
        """One round."""
        begin = time.perf_counter()
        draws, (leaves, moved), self.results = self._advance(
            self.state, self.results, tf.constant([seed, 4])
        )
        self.draws.append(draws.numpy())
        self.seconds.append(time.perf_counter() - begin)
        self.state = draws[-1]
        self.leaves.append(leaves.numpy())
        self.moved.append(moved.numpy())
        self.calls.append(self._executed())

    def _executed(self) -> tuple[int, int]:
        """Calls so far for value and gradient, and for the value alone."""
        inner = self.results.inner_results
        if hasattr(inner, "target_gradient_calls"):
            gradients = int(inner.target_gradient_calls)
            return gradients, int(inner.target_evaluation_calls) - gradients
        # Plain NUTS: all chains step until the largest tree of the draw is done.
        return sum(int(np.max(leaves, axis=1).sum()) for leaves in self.leaves), 0

    def row(self, name: str, training_seconds: float) -> Row:
        """The results of all rounds except the first, which is the warm-up."""
        draws = np.concatenate(self.draws[1:]).astype(np.float64)
        ess, bias, chance = quality(draws)
        gradients, densities = np.subtract(self.calls[-1], self.calls[1])
        return Row(
            name,
            float(np.mean(self.leaves[1:])),
            float(np.mean(self.moved[1:])),
            int(gradients),
            int(densities),
            ess,
            bias,
            chance,
            sum(self.seconds[1:]),
            sum(self.seconds) + training_seconds,
        )


def quality(draws: np.ndarray) -> tuple[float, float, float]:
    """ESS, `b²` and its level by chance, of `[draws, chains, dim]`; see `Row`."""
    with warnings.catch_warnings():
        # ArviZ announces its next major version at every import.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

    moments = np.concatenate([draws, draws**2], axis=-1)
    # A million exact draws: ten times more precise than the chains.
    exact = exact_draws(1_000_000, 5)
    exact = np.concatenate([exact, exact**2], axis=-1)
    error = (moments.mean(axis=(0, 1)) - exact.mean(axis=0)) ** 2 / exact.var(axis=0)
    ess = [
        float(arviz.ess(moments[..., i].T, method="mean"))
        for i in range(moments.shape[-1])
    ]
    # The largest of that many independent normal errors.
    level = statistics.NormalDist().inv_cdf((1.0 + 0.95 ** (1.0 / len(ess))) / 2.0)
    return min(ess), float(error.max()), level**2 / min(ess)


def measure(size: Size) -> tuple[list[Row], str]:
    """All samplers in turns, and a sentence on what was measured."""
    target = padded(log_prob, calibrate())
    density, gradient = (CallCost(target, with_gradient=b) for b in (False, True))
    begin = time.perf_counter()
    network, num_gradients, energy_error = train(target, size)
    training_seconds = time.perf_counter() - begin
    chains = {
        name: Chains(kernel, size.num_draws)
        for name, kernel in make_kernels(target, network, size).items()
    }
    for i in range(1 + size.num_rounds):
        for name, chain in chains.items():
            chain.advance(seed=i)
            print(f"round {i}, {name}: {chain.seconds[-1]:.1f} s", flush=True)
        density.measure()
        gradient.measure()
    sentence = (
        f"{NUM_CHAINS} chains, {size.num_rounds * size.num_draws} draws each. One call "
        f"for all chains: density {density.milliseconds:.2f} ms, with gradient "
        f"{gradient.milliseconds:.2f} ms. The network: {num_gradients} gradients, "
        f"{training_seconds:.0f} s, held-out energy error {energy_error}."
    )
    rows = [chain.row(name, training_seconds) for name, chain in chains.items()]
    return rows, sentence


def table(rows: list[Row], sentence: str) -> str:
    """A table of costs per effective sample, with the bias."""
    peer = rows[0].seconds / rows[0].ess
    lines = [
        "| sampler | leaves per draw | moved | ESS | b² (by chance below) | gradient "
        "calls per ESS | density calls per ESS | ms per ESS | against tfp NUTS | ms "
        "per ESS with training, warm-up, compilation |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = row.seconds / row.ess
        lines.append(
            f"| {row.name} | {row.leaves:.1f} | {100 * row.moved:.0f}% | {row.ess:.0f} "
            f"| {row.bias:.4f} ({row.chance:.4f}) | {row.gradients / row.ess:.2f} "
            f"| {row.densities / row.ess:.2f} | {1e3 * cost:.1f} "
            f"| {peer / cost:.1f} times | {1e3 * row.total_seconds / row.ess:.0f} |"
        )
    return "\n".join([*lines, "", sentence])


def main() -> None:
    args = scripts.parser(__doc__).parse_args()
    scripts.silence()
    text = table(*measure(TINY if args.tiny else Size()))
    print(text)
    if not args.tiny:
        scripts.insert(text, MARKERS, scripts.ALGORITHM_PAGE)


if __name__ == "__main__":
    main()
