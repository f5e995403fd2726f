"""LatentHNN: energies, gradients, weights of others, saving, bad arguments."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

from ..processes import run_python


def make_network(dim=3, separable=True, **kwargs):
    """A float64 network with a base that is neither centred nor round."""
    network = tfp_lhnn.LatentHNN(
        dim, (8, 7), separable=separable, dtype="float64", seed=3, **kwargs
    )
    if network.dense_base:
        generator = np.random.default_rng(0)
        network.whitening.assign(np.eye(dim) + 0.3 * generator.normal(size=(dim, dim)))
        network.location.assign(generator.normal(size=dim))
        network.energy_scale.assign(1.7)
        network.offset.assign(-4.0)
    return network


@pytest.fixture
def phase_space():
    generator = np.random.default_rng(1)
    return generator.normal(size=(5, 3)), generator.normal(size=(5, 3))


def finite_differences(function, x, step=1e-5):
    columns = []
    for i in range(x.shape[-1]):
        shift = step * np.eye(x.shape[-1])[i]
        columns.append((function(x + shift) - function(x - shift)) / (2 * step))
    return np.stack(columns, axis=-1)


class TestEnergy:
    @pytest.mark.parametrize("base", ["dense", "diagonal", "none"])
    def test_separable_energy_is_sum_of_latents_plus_kinetic(self, base, phase_space):
        q, p = phase_space
        network = make_network(base=base)
        potential = np.sum(network.latents(q), axis=-1)
        np.testing.assert_allclose(network.potential(q), potential, rtol=1e-12)
        kinetic = 0.5 * np.sum(p**2, axis=-1)
        np.testing.assert_allclose(network.energy(q, p), potential + kinetic)

    def test_joint_energy_is_sum_of_latents(self, phase_space):
        q, p = phase_space
        network = make_network(separable=False)
        energy = np.sum(network(np.concatenate([q, p], axis=-1)), axis=-1)
        np.testing.assert_allclose(network.energy(q, p), energy, rtol=1e-12)
        at_rest = network.energy(q, np.zeros_like(p))
        np.testing.assert_array_equal(network.potential(q), at_rest)

    @pytest.mark.parametrize("separable", [True, False])
    def test_gradients_match_finite_differences(self, separable, phase_space):
        q, p = phase_space
        network = make_network(separable=separable)
        velocity, force = network.time_derivatives(q, p)
        by_q = finite_differences(lambda x: network.energy(x, p).numpy(), q)
        by_p = finite_differences(lambda x: network.energy(q, x).numpy(), p)
        np.testing.assert_allclose(-force, by_q, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(velocity, by_p, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(network.potential_gradient(q, p), -force)

    def test_only_a_joint_force_depends_on_the_momentum(self, phase_space):
        q, p = phase_space
        for separable in (True, False):
            network = make_network(separable=separable)
            forces = [network.time_derivatives(q, s * p)[1] for s in (1.0, 2.0)]
            assert np.array_equal(*forces) == separable
        np.testing.assert_array_equal(make_network().time_derivatives(q, p)[0], p)

    def test_force_is_curl_free(self, phase_space):
        network = make_network()
        hessian = finite_differences(
            lambda x: network.potential_gradient(x).numpy(), phase_space[0]
        )
        np.testing.assert_allclose(hessian, np.swapaxes(hessian, -1, -2), atol=1e-7)

    @pytest.mark.parametrize("separable", [True, False])
    def test_any_leading_dimensions(self, separable, phase_space):
        q, p = phase_space
        network = make_network(separable=separable)
        whole = network.energy(q, p).numpy()
        gradient = network.potential_gradient(q, p).numpy()
        np.testing.assert_allclose(network.energy(q[0], p[0]), whole[0], rtol=1e-12)
        np.testing.assert_allclose(network.potential_gradient(q[0], p[0]), gradient[0])
        deep = network.energy(q.reshape(5, 1, 1, 3), p.reshape(5, 1, 1, 3))
        np.testing.assert_allclose(deep, whole.reshape(5, 1, 1), rtol=1e-12)
        assert network.latents(q[None], p[None]).shape == (1, 5, 3)

    def test_results_have_the_callers_dtype(self, phase_space):
        q, p = phase_space
        network = tfp_lhnn.LatentHNN(3, (8,))
        assert network.compute_dtype == "float32"
        assert network.potential(q).dtype == tf.float64
        assert network.potential_gradient(q).dtype == tf.float64
        assert network.potential(q.astype(np.float32)).dtype == tf.float32
        assert make_network().energy(q.astype(np.float32), p).dtype == tf.float32

    def test_keras_activations_work(self, phase_space):
        network = tfp_lhnn.LatentHNN(3, (4,), activation="tanh")
        assert network.activation is keras.activations.tanh
        assert np.all(np.isfinite(network.potential_gradient(phase_space[0])))


class TestStatelessCall:
    def test_other_weights_in_a_compiled_loop_without_retracing(self):
        network = tfp_lhnn.LatentHNN(2, (8, 8), seed=0)
        traces = []

        @tf.function(jit_compile=True, autograph=False)
        def descend(trainable, non_trainable, q):
            traces.append(1)

            def body(i, q):
                with tf.GradientTape() as tape:
                    tape.watch(q)
                    latents, _ = network.stateless_call(trainable, non_trainable, q)
                    energy = tf.reduce_sum(latents)
                return i + 1, q - 0.1 * tape.gradient(energy, q)

            return tf.while_loop(lambda i, _: i < 3, body, (0, q))[1]

        def by_hand(q):
            for _ in range(3):
                q = q - 0.1 * network.potential_gradient(q).numpy()
            return q

        q = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
        results = []
        for seed in (1, 2):
            network.initialise(seed)
            trainable = [tf.constant(v.numpy()) for v in network.trainable_variables]
            others = [tf.constant(v.numpy()) for v in network.non_trainable_variables]
            expected = by_hand(q)
            network.initialise(99)  # The weights given count, not those stored.
            results.append(descend(trainable, others, tf.constant(q)).numpy())
            np.testing.assert_allclose(results[-1], expected, rtol=1e-4, atol=1e-5)
        assert not np.allclose(*results, atol=1e-3)
        assert len(traces) == 1


class TestSaving:
    def test_new_process_loads_the_same_gradients(self, tmp_path, phase_space):
        q, p = (x.astype(np.float32) for x in phase_space)
        for separable in (True, False):
            network = tfp_lhnn.LatentHNN(3, (8, 8), separable=separable, seed=1)
            network.compile(keras.optimizers.Adam(0.01), jit_compile=False)
            x = np.concatenate([q, p], axis=-1)
            network.fit(x, x, verbose=0)
            network.save(tmp_path / f"{separable}.keras")
            gradient = network.potential_gradient(q, p)
            np.savez(tmp_path / f"{separable}.npz", q=q, p=p, gradient=gradient)
        done = run_python(f"""
            import keras, numpy as np, tfp_lhnn
            for stem in (r"{tmp_path}/True", r"{tmp_path}/False"):
                network = keras.models.load_model(stem + ".keras", safe_mode=True)
                x = np.load(stem + ".npz")
                gradient = network.potential_gradient(x["q"], x["p"]).numpy()
                assert np.array_equal(gradient, x["gradient"]), gradient
                assert network.optimizer.iterations.numpy() == 1
        """)
        assert done.returncode == 0, done.stderr

    def test_config_makes_an_equal_network(self):
        network = make_network(base="diagonal", activation="silu")
        copy = tfp_lhnn.LatentHNN.from_config(network.get_config())
        assert copy.get_config() == network.get_config()
        for a, b in zip(network.variables, copy.variables, strict=True):
            assert a.shape == b.shape
            assert a.dtype == "float64"


class TestBadArguments:
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"dim": 0}, ValueError, "`dim`"),
            ({"dim": 2.0}, TypeError, "`dim`"),
            ({"hidden_units": ()}, ValueError, "`hidden_units`"),
            ({"hidden_units": 64}, TypeError, "`hidden_units`"),
            ({"hidden_units": (8, 0)}, ValueError, r"`hidden_units\[1\]`"),
            ({"hidden_units": (8, 2.5)}, TypeError, r"`hidden_units\[1\]`"),
            ({"activation": "sinus"}, ValueError, "`activation` is 'sinus'.*silu"),
            ({"base": "full"}, ValueError, "`base` is 'full'"),
            ({"seed": -1}, ValueError, "`seed` is -1"),
            ({"seed": 1.5}, TypeError, "`seed` is 1.5"),
            ({"seed": True}, TypeError, "`seed` is True"),
            ({"dtype": "int32"}, ValueError, "`dtype` is 'int32'"),
        ],
    )
    def test_constructor(self, arguments, error, message):
        with pytest.raises(error, match=message):
            tfp_lhnn.LatentHNN(**{"dim": 2, "hidden_units": (4,), **arguments})

    @pytest.mark.parametrize("method", ["potential", "latents", "potential_gradient"])
    def test_wrong_last_dimension(self, method):
        network = tfp_lhnn.LatentHNN(3, (4,))
        with pytest.raises(ValueError, match=r"`q` has shape \(5, 2\).*\[\.\.\., 3\]"):
            getattr(network, method)(np.ones((5, 2)))
        with pytest.raises(ValueError, match=r"`p` has shape"):
            network.energy(np.ones((5, 3)), np.ones((5, 2)))
        with pytest.raises(ValueError, match=r"`q` has shape"):
            network(np.ones((5, 2)))

    def test_joint_needs_momenta(self):
        with pytest.raises(ValueError, match="`p`"):
            make_network(separable=False).latents(np.ones(3))

    def test_joint_network_has_no_base(self):
        with pytest.raises(ValueError, match="separable"):
            make_network(separable=False).fit_base(np.ones((5, 3)), np.ones((5, 3)))
