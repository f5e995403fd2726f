"""Steps per second of `tfp_lhnn.train` against other ways to run the same steps.

All ways train the same separable network on the same data, batch size and loss, in one
process, in turns; the fastest turn of each counts, since other load on the machine can
only slow it down. Compilation is not counted.

    python benchmarks/training.py            # two minutes
    python benchmarks/training.py --tiny     # seconds; checks that it runs
"""

import argparse
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.network import training_loop
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.physics_loss import physics_arrays

LEARNING_RATE = 1e-3
VALUE_WEIGHT = 0.1


def make_data(dim: int, num_points: int) -> TrainingData:
    """A banana in the first two coordinates, a Gaussian in the others."""
    generator = np.random.default_rng(0)
    position = generator.normal(size=(num_points, dim)).astype(np.float32)
    gradient = -position.copy()
    bend = position[:, 1] - position[:, 0] ** 2
    gradient[:, 1] = -bend
    gradient[:, 0] += 2.0 * position[:, 0] * bend
    log_prob = -0.5 * (np.sum(position**2, axis=1) - position[:, 1] ** 2 + bend**2)
    return TrainingData.from_gradients(position, gradient, log_prob, seed=0)


def as_points(data: TrainingData) -> training_loop.Points:
    """What the layers learn on top of the standard Gaussian, as `train` prepares it."""
    energy = 0.5 * np.sum(data.position**2, axis=1)
    return training_loop.Points(
        data.position, -data.momentum_rate - data.position, -data.log_prob - energy
    )


def make_network(args: argparse.Namespace) -> LatentHNN:
    return LatentHNN(args.dim, args.hidden_units, seed=0)


def train_loop(args: argparse.Namespace, data: TrainingData) -> Callable[[], None]:
    """The loop of `train`: Keras variables and optimiser in one XLA `while_loop`."""
    points = as_points(data)
    loop = training_loop.TrainingLoop(
        make_network(args),
        points,
        training_loop.Points(*(x[:64] for x in points)),
        gradient_scale=np.ones(args.dim),
        recipe=training_loop.Recipe(
            LEARNING_RATE, args.steps, 0.03, VALUE_WEIGHT, jit_compile=True
        ),
    )
    rows = make_rows(args)
    return lambda: loop.run(rows, args.steps)


def make_rows(args: argparse.Namespace) -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.integers(0, args.points, size=(args.steps, args.batch_size))


def bare_loss(
    layers: list[tf.Tensor], activation: Callable, batch: list[tf.Tensor]
) -> tf.Tensor:
    """The loss of `train`, written out on a list of weights."""
    inputs, gradient, value = batch
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        hidden = inputs
        for kernel, bias in zip(layers[:-1:2], layers[1:-1:2], strict=True):
            hidden = activation(tf.matmul(hidden, kernel) + bias)
        energy = tf.reduce_sum(tf.matmul(hidden, layers[-1]), axis=-1)
    error = tape.gradient(energy, inputs) - gradient
    value_error = energy - value
    value_error -= tf.reduce_mean(value_error)
    robust = [tf.sqrt(1.0 + tf.square(e)) - 1.0 for e in (error, value_error)]
    return tf.reduce_mean(robust[0]) + VALUE_WEIGHT * tf.reduce_mean(robust[1])


def adam(
    weights: list[tf.Tensor],
    first: list[tf.Tensor],
    second: list[tf.Tensor],
    gradients: list[tf.Tensor],
    step: tf.Tensor,
) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """One step of Adam on plain tensors."""
    time_step = tf.cast(step + 1, tf.float32)
    rate = LEARNING_RATE * tf.sqrt(1.0 - 0.999**time_step) / (1.0 - 0.9**time_step)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [
        0.999 * v + 0.001 * tf.square(g) for v, g in zip(second, gradients, strict=True)
    ]
    weights = [
        w - rate * m / (tf.sqrt(v) + 1e-7)
        for w, m, v in zip(weights, first, second, strict=True)
    ]
    return weights, first, second


def bare_loop(args: argparse.Namespace, data: TrainingData) -> Callable[[], None]:
    """(a) A bare XLA `while_loop` with a hand-written Adam."""
    network = make_network(args)
    start = [tf.constant(v.numpy()) for v in network.trainable_variables]
    points = [tf.constant(x) for x in as_points(data)]
    rows = tf.constant(make_rows(args), tf.int32)

    @tf.function(jit_compile=True, autograph=False)
    def run(weights: list[tf.Tensor]) -> list[tf.Tensor]:
        def body(i: tf.Tensor, weights: list, first: list, second: list) -> tuple:
            batch = [tf.gather(x, rows[i]) for x in points]
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = bare_loss(weights, network.activation, batch)
            gradients = tape.gradient(loss, weights)
            return (i + 1, *adam(weights, first, second, gradients, i))

        zeros = [tf.zeros_like(w) for w in weights]
        return tf.while_loop(
            lambda i, *_: i < args.steps, body, (0, weights, zeros, zeros)
        )[1]

    return lambda: run(start)[0].numpy()


def python_loop(args: argparse.Namespace, data: TrainingData) -> Callable[[], None]:
    """(b) A Python loop that calls one compiled step at a time."""
    network = make_network(args)
    optimizer = keras.optimizers.Adam(LEARNING_RATE)
    variables = network.trainable_variables
    optimizer.build(variables)
    points = [tf.constant(x) for x in as_points(data)]
    rows = tf.constant(make_rows(args), tf.int32)
    weights = [v.value for v in variables]

    @tf.function(jit_compile=True, autograph=False)
    def step(batch_rows: tf.Tensor) -> tf.Tensor:
        batch = [tf.gather(x, batch_rows) for x in points]
        with tf.GradientTape() as tape:
            values = [tf.convert_to_tensor(w) for w in weights]
            loss = bare_loss(values, network.activation, batch)
        optimizer.apply(tape.gradient(loss, weights))
        return loss

    def run() -> None:
        for i in range(args.steps):
            loss = step(rows[i])
        loss.numpy()

    return run


def keras_fit(
    args: argparse.Namespace, data: TrainingData, steps_per_execution: int
) -> Callable[[], None]:
    """Keras' own `fit`; its loss is the plain physics loss, slightly less work."""
    network = make_network(args)
    network.compile(
        keras.optimizers.Adam(LEARNING_RATE),
        steps_per_execution=steps_per_execution,
        jit_compile=True,
    )
    x, y = physics_arrays(data)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat()
    batches = batches.batch(args.batch_size, drop_remainder=True).prefetch(2)
    return lambda: network.fit(
        batches, steps_per_epoch=args.steps, shuffle=False, verbose=0
    )


def measure(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """The fastest turn of each, in seconds. First turns compile and do not count."""
    for run in runs.values():
        run()
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--hidden-units", type=int, nargs="+", default=[64, 64, 64])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--points", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=500, help="steps per turn")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--tiny", action="store_true", help="a run of seconds")
    args = parser.parse_args()
    if args.tiny:
        args.dim, args.hidden_units, args.points = 2, [8], 300
        args.steps, args.repeats = 20, 1
    return args


def main() -> None:
    args = parse_arguments()
    data = make_data(args.dim, args.points)
    runs = {
        "bare XLA loop, hand-written Adam (a)": bare_loop(args, data),
        "train": train_loop(args, data),
        "Python loop of compiled steps (b)": python_loop(args, data),
        "fit, steps_per_execution=1": keras_fit(args, data, 1),
        "fit, steps_per_execution=100": keras_fit(args, data, min(100, args.steps)),
    }
    seconds = measure(runs, args.repeats)
    bare = next(iter(seconds.values()))
    print(
        f"dim {args.dim}, hidden {args.hidden_units}, batch {args.batch_size}, "
        f"fastest of {args.repeats} turns of {args.steps} steps"
    )
    for name, elapsed in seconds.items():
        print(
            f"{name:38s} {args.steps / elapsed:8.0f} steps/s {bare / elapsed:6.2f} of a"
        )


if __name__ == "__main__":
    main()
