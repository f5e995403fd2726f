"""Energies, potentials and forces of a network of latents."""

from typing import Any

import tensorflow as tf

from tfp_lhnn.network.physics_loss import PhysicsModel, check_last_dimension

__all__ = ["LearnedEnergy"]


class LearnedEnergy(PhysicsModel):
    """A Keras model whose latents sum to a learned energy, up to a constant.

    The constant is the mean height of the potential. A large one would round away the
    differences between points. So it is added last, in the dtype of the caller, which
    may be wider than that of the network.

    Subclasses have a `dim`, say whether they are `separable`, and have the two methods
    `varying_latents` and `constant`.
    """

    separable: bool

    def varying_latents(self, x: tf.Tensor) -> tf.Tensor:
        """Latents without the constant.

        Args:
            x: positions, `[n, dim]`, or positions and momenta, `[n, 2 dim]`; in the
                dtype of the network.

        Returns:
            Latents, `[n, dim]`.
        """
        raise NotImplementedError

    def constant(self, dtype: Any) -> tf.Tensor:
        """The energy minus the sum of the varying latents, `[]`."""
        raise NotImplementedError

    def latents(self, q: Any, p: Any = None) -> tf.Tensor:
        """Latents at `q` (and `p`, which a joint network needs).

        Args:
            q: positions, `[..., dim]`, any leading dimensions, also none.
            p: momenta, `[..., dim]`; only for a joint network.

        Returns:
            Latents, `[..., dim]`, in the dtype of `q`, as all methods here do. Each
            has its share of the constant.
        """
        varying = self._varying(q, p)
        return varying + self.constant(varying.dtype) / self.dim

    def energy(self, q: Any, p: Any) -> tf.Tensor:
        """The learned Hamiltonian `H_θ(q, p)`, `[...]`."""
        if not self.separable:
            varying = self._varying(q, p)
            return tf.reduce_sum(varying, axis=-1) + self.constant(varying.dtype)
        q = self._convert(q, "q")
        p = self._convert(p, "p", q)
        return self.potential(q) + 0.5 * tf.reduce_sum(tf.square(p), axis=-1)

    def potential(self, q: Any) -> tf.Tensor:
        """The learned potential `U_θ(q)`, `[...]`; after `train`, about `-log π(q)`.

        For a joint network, which has no potential, the energy at `p = 0`.
        """
        q = self._convert(q, "q")
        varying = self._varying(q, None if self.separable else tf.zeros_like(q))
        return tf.reduce_sum(varying, axis=-1) + self.constant(q.dtype)

    def potential_gradient(self, q: Any, p: Any = None) -> tf.Tensor:
        """`∂H_θ/∂q`, which drives leapfrog, `[..., dim]`; `p` for a joint network."""
        q = self._convert(q, "q")
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(q)
            energy = tf.reduce_sum(self._varying(q, p), axis=-1)
        return tape.gradient(energy, q)

    def time_derivatives(self, q: Any, p: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Hamilton's equations of the learned energy.

        Args:
            q: positions, `[..., dim]`.
            p: momenta, `[..., dim]`.

        Returns:
            `dq/dt = ∂H_θ/∂p` (`p` itself for a separable network) and
            `dp/dt = −∂H_θ/∂q`, each `[..., dim]`.
        """
        q = self._convert(q, "q")
        p = self._convert(p, "p", q)
        if self.separable:
            return p, -self.potential_gradient(q)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([q, p])
            energy = tf.reduce_sum(self._varying(q, p), axis=-1)
        force, velocity = tape.gradient(energy, [q, p])
        return velocity, -force

    def _varying(self, q: Any, p: Any) -> tf.Tensor:
        """`varying_latents` of any leading dimensions, in the dtype of `q`."""
        q = self._convert(q, "q")
        if self.separable:
            x = q
        else:
            if p is None:
                raise ValueError("`p` is None; a joint network needs it.")
            x = tf.concat([q, self._convert(p, "p", q)], axis=-1)
        rows = tf.cast(tf.reshape(x, [-1, x.shape[-1]]), self.compute_dtype)
        return tf.cast(tf.reshape(self.varying_latents(rows), tf.shape(q)), q.dtype)

    def _convert(self, x: Any, name: str, like: tf.Tensor | None = None) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        if like is not None:
            x = tf.cast(x, like.dtype)
        elif not x.dtype.is_floating:
            x = tf.cast(x, self.compute_dtype)
        check_last_dimension(x, self.dim, name)
        return x
