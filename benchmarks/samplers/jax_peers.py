"""Peers in JAX: NumPyro's NUTS, BlackJAX's NUTS and adjusted MCLMC.

All chains of a sampler run in lockstep, by `vmap`, as those of TFP do: a target uses
both cores by matrix products of all chains at once.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.problem import Job, Problem, Run, Seconds, Tally
from benchmarks.problems import check_twins

__all__ = ["blackjax_mclmc", "blackjax_nuts", "numpyro_nuts"]

# The default integrator of adjusted MCLMC has two gradients to a step (McLachlan's).
_MCLMC_GRADIENTS_PER_STEP = 2


def _density(problem: Problem) -> Any:
    if problem.make_jax_log_prob is None:
        raise NotImplementedError(f"{problem.name!r} has no density in JAX.")
    check_twins(problem)
    return problem.make_jax_log_prob()


def numpyro_nuts(
    job: Job,
    *,
    num_warmup: int = 1000,
) -> Run:
    """`numpyro.infer.NUTS` with its defaults, such as a diagonal mass matrix.

    The few gradients of its first guess of a step size are not counted. Compilation is
    part of the warm-up's time.
    """
    import jax
    import numpyro

    density = _density(job.problem)
    kernel = numpyro.infer.NUTS(potential_fn=lambda q: -density(q))
    mcmc = numpyro.infer.MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=job.num_draws,
        num_chains=job.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    starts = job.starts
    if job.num_chains == 1:
        starts = starts[0]
    keys = jax.random.split(jax.random.PRNGKey(job.seed))
    fields = ("num_steps", "adapt_state.step_size")
    began = time.perf_counter()
    mcmc.warmup(keys[0], init_params=starts, extra_fields=fields, collect_warmup=True)
    warmup = np.asarray(mcmc.get_extra_fields()["num_steps"], np.int64).sum()
    warmed_up = time.perf_counter()
    mcmc.run(keys[1], extra_fields=fields)
    draws = np.asarray(mcmc.get_samples(group_by_chain=True))
    ended = time.perf_counter()
    extra = mcmc.get_extra_fields(group_by_chain=True)
    steps = np.asarray(extra["num_steps"], np.int64)
    return Run(
        draws,
        Tally(job.num_chains + int(warmup)),
        Tally(int(steps.sum())),
        Seconds(0.0, warmed_up - began, ended - warmed_up),
        {
            "num_warmup": num_warmup,
            "step_size": float(np.mean(extra["adapt_state.step_size"])),
            "leapfrogs_per_draw": float(steps.mean()),
        },
    )


def blackjax_nuts(
    job: Job,
    *,
    num_warmup: int = 1000,
) -> Run:
    """`blackjax.nuts` after `blackjax.window_adaptation` of each chain."""
    import blackjax
    import jax
    from blackjax.adaptation.base import get_filter_adapt_info_fn

    density = _density(job.problem)
    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        density,
        adaptation_info_fn=get_filter_adapt_info_fn(
            info_keys={"num_integration_steps"}
        ),
    )

    def warm_up(key: Any, start: Any) -> Any:
        result, info = adaptation.run(key, start, num_warmup)
        return result.state, result.parameters, info.info.num_integration_steps

    def draw(key: Any, state: Any, parameters: Any) -> Any:
        step = blackjax.nuts(density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(one, state, jax.random.split(key, job.num_draws))[1]

    done = _run_chains(job, warm_up, draw)
    return Run(
        done.draws,
        Tally(job.num_chains + done.num_warmup_steps),
        Tally(int(done.steps.sum())),
        done.seconds,
        {
            "num_warmup": num_warmup,
            "step_size": float(np.mean(done.parameters["step_size"])),
            "leapfrogs_per_draw": float(done.steps.mean()),
        },
    )


def blackjax_mclmc(
    job: Job,
    *,
    num_warmup: int = 1000,
    target_acceptance: float = 0.9,
    num_integration_steps: float = 2.0,
) -> Run:
    """Adjusted MCLMC with random trajectory lengths, tuned for each chain.

    Args:
        job: what to sample, with chains in lockstep.
        num_warmup: transitions of tuning.
        target_acceptance: of the step's tuning.
        num_integration_steps: mean number for a trajectory; the default is BlackJAX's.
    """
    import blackjax
    import jax
    from blackjax.mcmc import adjusted_mclmc_dynamic as mclmc

    density = _density(job.problem)
    kernel = mclmc.build_kernel(mclmc.make_random_trajectory_length_fn(True))

    def warm_up(key: Any, start: Any) -> Any:
        first, second = jax.random.split(key)
        # The tuning takes shares of a number of steps: 0.4 + 0.2, the first twice.
        return blackjax.adjusted_mclmc_find_L_and_step_size(
            mclmc_kernel=kernel,
            logdensity_fn=density,
            num_steps=num_warmup,
            state=mclmc.init(start, density, first),
            rng_key=second,
            target=target_acceptance,
            frac_tune1=0.4,
            frac_tune2=0.2,
            frac_tune3=0.0,
            diagonal_preconditioning=True,
            target_num_integration_steps=num_integration_steps,
        )

    def draw(key: Any, state: Any, parameters: Any) -> Any:
        def one(state: Any, key: Any) -> Any:
            state, info = kernel(
                rng_key=key,
                state=state,
                logdensity_fn=density,
                step_size=parameters.step_size,
                inverse_mass_matrix=parameters.inverse_mass_matrix,
                integration_steps_params=(parameters.L / parameters.step_size,),
            )
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(one, state, jax.random.split(key, job.num_draws))[1]

    done = _run_chains(job, warm_up, draw)
    return Run(
        done.draws,
        Tally(job.num_chains + _MCLMC_GRADIENTS_PER_STEP * done.num_warmup_steps),
        Tally(_MCLMC_GRADIENTS_PER_STEP * int(done.steps.sum())),
        done.seconds,
        {
            "num_warmup": num_warmup,
            "step_size": float(np.mean(done.parameters.step_size)),
            "steps_per_draw": float(done.steps.mean()),
        },
    )


class _Done(NamedTuple):
    """The result of BlackJAX's chains.

    Attributes:
        draws: `[chains, draws, dim]`.
        steps: of the integrator, of each draw, `[chains, draws]`.
        parameters: that the warm-up found.
        num_warmup_steps: of the integrator, all chains together.
        seconds: wall time.
    """

    draws: np.ndarray
    steps: np.ndarray
    parameters: Any
    num_warmup_steps: int
    seconds: Seconds


def _run_chains(job: Job, warm_up: Any, draw: Any) -> _Done:
    """Both phases of all chains, from functions of one chain and its key.

    Args:
        job: gives chains, starts and seed.
        warm_up: of key and start, to state, parameters and steps taken.
        draw: of key, state and parameters, to draws and steps of each.
    """
    import jax

    keys = jax.random.split(jax.random.PRNGKey(job.seed), (2, job.num_chains))
    phases = _Phases()
    state, parameters, warmup = phases.run(warm_up, keys[0], job.starts)
    draws, steps = phases.run(draw, keys[1], state, parameters)
    return _Done(
        np.asarray(draws),
        np.asarray(steps, np.int64),
        parameters,
        int(np.asarray(warmup, np.int64).sum()),
        phases.seconds,
    )


class _Phases:
    """Compiles functions of one chain for all of them, and takes the time of both."""

    def __init__(self) -> None:
        self._compiling = 0.0
        self._running: list[float] = []

    def run(self, function: Any, *arguments: Any) -> Any:
        import jax

        began = time.perf_counter()
        compiled = jax.jit(jax.vmap(function)).lower(*arguments).compile()
        compiled_at = time.perf_counter()
        result = jax.block_until_ready(compiled(*arguments))
        self._compiling += compiled_at - began
        self._running.append(time.perf_counter() - compiled_at)
        return result

    @property
    def seconds(self) -> Seconds:
        warmup, sampling = self._running
        return Seconds(self._compiling, warmup, sampling)
