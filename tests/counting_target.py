"""A small density that counts its own calls, outside the graph."""

import tensorflow as tf


def skewed(q):
    """`[n, 2] -> [n]`: a Gumbel variable, and a normal one that leans on it."""
    x, y = q[:, 0], q[:, 1]
    return -x - tf.exp(-x) - 2.0 * (y - 0.8 * x) ** 2


def funnel(q):
    """Neal's funnel, `[n, dim] -> [n]`."""
    return -(q[:, 0] ** 2) / 18 - 0.5 * tf.reduce_sum(
        q[:, 1:] ** 2 * tf.exp(-q[:, :1]) + q[:, :1], axis=-1
    )


class CountingTarget:
    """`skewed`, with counts of the points that it was evaluated at."""

    def __init__(self):
        self.gradients = self.evaluations = 0

    def _count(self, name, q):
        def count(n):
            setattr(self, name, getattr(self, name) + int(n))

        return tf.numpy_function(count, [tf.shape(q)[0]], [])

    def __call__(self, q):
        @tf.custom_gradient
        def log_prob(q):
            with tf.GradientTape() as tape:
                tape.watch(q)
                value = skewed(q)
            slope = tape.gradient(value, q)
            with tf.control_dependencies([self._count("evaluations", q)]):
                value = tf.identity(value)

            def gradient(upstream):
                with tf.control_dependencies([self._count("gradients", q)]):
                    return upstream[:, tf.newaxis] * slope

            return value, gradient

        return log_prob(q)
