"""Figures of a fit and of a run.

Every function returns the `Figure` that it drew into: that of its `ax`, or a new one.
They do not use pyplot, so that no window opens and no global state changes. Colours are
those of Okabe and Ito, which the colour-blind can tell apart.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfp_lhnn.mcmc.integrator import PhasePoint, finish_step, start_step
from tfp_lhnn.network.training import TrainingHistory
from tfp_lhnn.posterior.convergence import scalars
from tfp_lhnn.support.arguments import check_count, checked_step_size

__all__ = [
    "plot_energy_conservation",
    "plot_fallbacks",
    "plot_network_error",
    "plot_training",
]

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
GREY = "0.55"

# More points than this only blacken a figure and swell its file.
_MAX_POINTS = 5000

_PANEL = (4.6, 3.2)  # inches


def plot_training(
    rounds_or_history: TrainingHistory | Iterable[TrainingHistory | None],
    *,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """Held-out errors and training losses against the optimiser's steps.

    Rounds of refinement follow each other from left to right, with a line between.

    Args:
        rounds_or_history: what `train` returned, or a sequence of such. None stands for
            a round without training, and is skipped.
        ax: two axes, for energy errors (nats) and for gradient errors.

    Returns:
        The figure.

    Raises:
        TypeError: if something is not a `TrainingHistory`.
        ValueError: if there is no history at all, or `ax` is not two axes.
    """
    histories = _histories(rounds_or_history)
    energy, gradient = _axes(ax, 2)
    start = 0
    for number, history in enumerate(histories):
        if number > 0:
            for axes in (energy, gradient):
                axes.axvline(start, color=GREY, lw=0.8, ls=":")
        start = _draw_round(energy, gradient, history, start, is_first=number == 0)
    energy.set(ylabel="energy error (nats)", title="Held-out energy error")
    gradient.set(ylabel="relative squared error", title="Gradient error and loss")
    for axes in (energy, gradient):
        axes.set(xlabel="optimiser steps", yscale="log")
        _finish(axes)
    return _figure(energy)


def plot_energy_conservation(
    target_log_prob_fn: Callable[[tf.Tensor], tf.Tensor],
    network: Any,
    position: Any,
    momentum: Any,
    step_size: float,
    num_steps: int,
    *,
    ax: Axes | None = None,
) -> Figure:
    """True energy along leapfrog trajectories of network and of true gradients.

    For each start this costs `num_steps + 1` gradients of the target, and twice as many
    densities. The path with true gradients needs both; the other one densities only.

    Args:
        target_log_prob_fn: log density, `[starts, dim] -> [starts]`.
        network: a trained `LatentHNN`.
        position: starts, `[starts, dim]` or `[dim]`.
        momentum: momenta there, of the same shape.
        step_size: of leapfrog.
        num_steps: steps to make.
        ax: where to draw.

    Returns:
        The figure.

    Raises:
        TypeError: if an argument has a wrong type.
        ValueError: if shapes differ or a number is out of range.
    """
    check_count("num_steps", num_steps, minimum=1)
    step = checked_step_size(step_size)
    q, p = (np.atleast_2d(np.asarray(value)) for value in (position, momentum))
    if q.shape != p.shape or q.ndim != 2:
        raise ValueError(
            f"`position` has shape {np.shape(position)} and `momentum` "
            f"{np.shape(momentum)}; expected [starts, dim] or [dim], both alike."
        )
    q = tf.constant(q if q.dtype.kind == "f" else q.astype(np.float32))
    p = tf.cast(tf.constant(p), q.dtype)

    def true_force(q: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        del p
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(q)
            log_prob = target_log_prob_fn(q)
        return -tape.gradient(log_prob, q), log_prob

    def network_force(q: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return network.potential_gradient(q, p), target_log_prob_fn(q)

    (axes,) = _axes(ax, 1)
    time = step * np.arange(num_steps + 1)
    for name, force, colour, style in (
        ("true gradients", true_force, BLUE, "-"),
        ("network gradients", network_force, VERMILLION, "--"),
    ):
        energy = _energies(force, q, p, step, num_steps)
        lines = axes.plot(time, energy - energy[:1], color=colour, ls=style, lw=1.1)
        lines[0].set_label(name)
    axes.axhline(0.0, color=GREY, lw=0.6)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axes.set(
        xlabel="time along the trajectory",
        ylabel="true $H - H_0$ (nats)",
        title="Energy conservation",
    )
    _finish(axes)
    return _figure(axes)


def plot_network_error(
    inference_data: Any,
    held_out: tuple[Any, Any] | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """The network's energy error `U − U_θ` against the potential `U = −log π`.

    Args:
        inference_data: a run with `lp` and `network_energy` in its `sample_stats`.
        held_out: potentials and errors `U − U_θ` of points held out, `[n]` each.
        ax: where to draw.

    Returns:
        The figure.

    Raises:
        ValueError: if a statistic is missing, or the held-out arrays do not fit.
    """
    lp, network_energy = (
        _statistic(inference_data, name).ravel() for name in ("lp", "network_energy")
    )
    (axes,) = _axes(ax, 1)
    error = -lp - network_energy.astype(np.float64)
    clouds = [("sampled draws", -lp, error, BLUE, "o", 2.5)]
    if held_out is not None:
        potential, held_error = (np.asarray(value).ravel() for value in held_out)
        if potential.shape != held_error.shape:
            raise ValueError(
                f"`held_out` has {potential.size} potentials and {held_error.size} "
                "errors; expected as many."
            )
        clouds.append(("held out", potential, held_error, VERMILLION, "x", 14.0))
    for name, potential, errors, colour, marker, size in clouds:
        kept = _thinned(len(potential))
        finite = errors[np.isfinite(errors)]
        spread = np.std(finite) if finite.size else np.nan
        axes.scatter(
            potential[kept],
            errors[kept],
            s=size,
            c=colour,
            marker=marker,
            alpha=0.5,
            linewidths=0.8 if marker == "x" else 0.0,
            label=f"{name} (sd {spread:.2g} nats)",
            rasterized=True,
        )
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set(
        xlabel=r"potential $U = -\log\,\pi$ (nats)",
        ylabel=r"$U - U_\theta$ (nats)",
        title="Network error",
    )
    _finish(axes)
    return _figure(axes)


def plot_fallbacks(
    inference_data: Any,
    var_names: Sequence[str] | None = None,
    *,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """Where true gradients were used: in two coordinates, and over the draws.

    Args:
        inference_data: a run with `fallback` in its `sample_stats`.
        var_names: the variables whose first two scalars are shown; by default all. A
            single scalar is shown against the number of the draw.
        ax: two axes, for the coordinates and for the draws.

    Returns:
        The figure.

    Raises:
        ValueError: if `fallback` is missing, a variable is unknown, or `ax` is not two
            axes.
    """
    fallback = _statistic(inference_data, "fallback").astype(bool)
    coordinates = _coordinates(inference_data.posterior, var_names)
    plane, raster = _axes(ax, 2)
    if len(coordinates) == 1:
        numbers = np.broadcast_to(np.arange(fallback.shape[1]), fallback.shape)
        coordinates = [("draw", numbers), *coordinates]
    (x_name, x), (y_name, y) = coordinates[:2]
    for name, chosen, colour, marker, size in (
        ("network", ~fallback, GREY, "o", 2.0),
        ("true gradients", fallback, VERMILLION, "D", 14.0),
    ):
        rows = np.flatnonzero(chosen)
        rows = rows[_thinned(len(rows))]
        plane.scatter(
            x.ravel()[rows],
            y.ravel()[rows],
            s=size,
            c=colour,
            marker=marker,
            alpha=0.6,
            linewidths=0,
            label=f"{name} ({chosen.mean():.1%})",
            rasterized=True,
        )
    plane.set_title("Where gradients came from")
    plane.set_xlabel(x_name, parse_math=False)
    plane.set_ylabel(y_name, parse_math=False)
    _finish(plane)
    # All lines in one collection: one for each of thousands of chains takes seconds.
    chains, draws = np.nonzero(fallback)
    kept = _thinned(len(chains))
    raster.vlines(
        draws[kept], chains[kept] - 0.4, chains[kept] + 0.4, colors=VERMILLION, lw=1.0
    )
    if not fallback.any():
        raster.text(0.5, 0.5, "none", transform=raster.transAxes, ha="center")
    raster.set(
        xlim=(-0.5, fallback.shape[1] - 0.5),
        ylim=(-0.6, len(fallback) - 0.4),
        xlabel="draw",
        ylabel="chain",
        title="Draws with true gradients",
    )
    raster.yaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(raster, legend=False)
    return _figure(plane)


def _draw_round(
    energy: Axes, gradient: Axes, history: TrainingHistory, start: int, is_first: bool
) -> int:
    """Draws the curves of one training from step `start` on; returns its last step."""
    step = start + np.asarray(history.step)
    end = max(start + history.num_steps, int(step[-1]))
    base = [history.base_energy_error] * 2
    held = "held out"
    for axes, x, y, style, colour, label in (
        (energy, step, history.held_out_energy_error, ".-", BLUE, held),
        (energy, [start, end], base, "--", GREY, "Gaussian base alone"),
        (energy, [end], [history.energy_error], "D", VERMILLION, "kept"),
        (gradient, step, history.held_out_gradient_error, ".-", BLUE, held),
        (gradient, step, history.gradient_loss, "--", ORANGE, "training loss"),
        (gradient, [end], [history.gradient_error], "D", VERMILLION, "kept"),
    ):
        # The legend names a curve once, and only if it has points.
        shown = _positive(y)
        is_new = is_first and np.isfinite(shown).any()
        axes.plot(
            x, shown, style, color=colour, lw=1.4, ms=5, label=label if is_new else "_"
        )
    return end


def _energies(
    force: Callable[..., Any], q: tf.Tensor, p: tf.Tensor, step: float, num_steps: int
) -> np.ndarray:
    """True energies along leapfrog, `[num_steps + 1, starts]`."""
    gradient, log_prob = force(q, p)
    energies = []
    for i in range(num_steps + 1):
        kinetic = 0.5 * tf.reduce_sum(tf.square(p), axis=-1)
        energies.append(kinetic.numpy() - log_prob.numpy())
        if i < num_steps:
            q, half = start_step(PhasePoint(q, p, gradient), step, None)
            gradient, log_prob = force(q, half)
            p = finish_step(half, gradient, step)
    return np.array(energies)


def _histories(given: Any) -> list[TrainingHistory]:
    if isinstance(given, TrainingHistory):
        return [given]
    histories = [history for history in given if history is not None]
    for history in histories:
        if not isinstance(history, TrainingHistory):
            raise TypeError(
                f"`rounds_or_history` holds a {type(history).__name__}; expected "
                "TrainingHistory."
            )
    if not histories:
        raise ValueError("`rounds_or_history` holds no TrainingHistory.")
    return histories


def _statistic(inference_data: Any, name: str) -> np.ndarray:
    """A statistic of each draw, `[chains, draws]`."""
    if "sample_stats" not in inference_data.groups() or (
        name not in inference_data.sample_stats
    ):
        raise ValueError(
            f"`inference_data` has no `{name}` in `sample_stats`; see "
            "`tfp_lhnn.arviz.to_inference_data`."
        )
    return inference_data.sample_stats[name].transpose("chain", "draw").to_numpy()


def _coordinates(
    posterior: Any, var_names: Sequence[str] | None
) -> list[tuple[str, np.ndarray]]:
    """Names and values `[chains, draws]` of the first two scalars, if there are two."""
    names = list(posterior.data_vars) if var_names is None else list(var_names)
    unknown = [name for name in names if name not in posterior]
    if unknown:
        raise ValueError(
            f"`var_names` has {', '.join(map(str, unknown))}; the posterior has "
            f"{', '.join(map(str, posterior.data_vars))}."
        )
    return list(itertools.islice(scalars(posterior[names]), 2))


def _thinned(number: int) -> np.ndarray:
    """Numbers of evenly spaced points, no more than a figure can show."""
    return np.linspace(0, number - 1, min(number, _MAX_POINTS)).astype(int)


def _positive(values: Any) -> np.ndarray:
    """Values with NaN for those that a logarithmic axis cannot show."""
    array = np.asarray(values, np.float64)
    return np.where(array > 0.0, array, np.nan)


def _axes(given: Any, number: int) -> list[Axes]:
    """The given axes, or those of a new figure, side by side."""
    if given is None:
        width, height = _PANEL
        figure = Figure(figsize=(number * width, height), layout="constrained")
        return list(np.ravel(figure.subplots(1, number)))
    axes = list(np.ravel(np.asarray(given, dtype=object)))
    if len(axes) != number or not all(isinstance(one, Axes) for one in axes):
        raise ValueError(f"`ax` is {given!r}; expected {number} matplotlib Axes.")
    return axes


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _finish(axes: Axes, legend: bool = True) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    if legend and axes.get_legend_handles_labels()[1]:
        shown = axes.legend(
            loc="upper right", framealpha=0.8, edgecolor="none", fontsize="small"
        )
        for handle in shown.legend_handles:
            if isinstance(handle, PathCollection):  # points too small to be seen there
                handle.set(sizes=[20.0], alpha=1.0)
