"""Two threads that train at the same time do what they would do one after the other."""

import threading

import numpy as np
import pytest

import tfp_lhnn

NUM_STEPS = 500


def make_data(seed):
    position = np.random.default_rng(seed).normal(size=(600, 2)).astype(np.float32)
    frequency = 1.0 + seed
    return tfp_lhnn.TrainingData.from_gradients(
        position,
        -position - frequency * np.cos(frequency * position),
        -np.sum(0.5 * position**2 + np.sin(frequency * position), axis=-1),
        seed=seed,
    )


def weights_of(data, start, **kwargs):
    network = tfp_lhnn.LatentHNN(2, (8, 8), seed=0)
    start.wait()
    tfp_lhnn.train(network, data, seed=1, num_steps=NUM_STEPS, batch_size=32, **kwargs)
    return network.get_weights()


@pytest.mark.parametrize("jit_compile", [True, False])
def test_two_threads_train_as_in_turn(jit_compile):
    tasks = [make_data(seed) for seed in (0, 1)]
    results = [None, None]
    together = threading.Barrier(2)

    def work(i):
        results[i] = weights_of(tasks[i], together, jit_compile=jit_compile)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = threading.Barrier(1)
    serial = [weights_of(data, alone, jit_compile=jit_compile) for data in tasks]
    for a, b in zip(results, serial, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert not np.allclose(serial[0][0], serial[1][0])
