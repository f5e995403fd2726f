"""One-dimensional densities and Markov chains of them, computed exactly on grids."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["GridChain", "GridDensities", "uniform_grid"]

Array = NDArray[np.float64]


def uniform_grid(low: float, high: float, spacing: float) -> Array:
    """Evenly spaced points over `[low, high]`, at most `spacing` apart."""
    return np.linspace(low, high, int(np.ceil((high - low) / spacing)) + 1)


class GridDensities:
    """Densities on one grid, linear between its points, and their quantiles.

    Linear interpolation widens a density by a variance of `spacing**2 / 6`: a
    grid with `k` points per standard deviation inflates the variance by
    `1 / (6 k**2)`.

    Args:
        grid: Evenly spaced points, [points].
        log_density: Log densities up to a constant per row, [rows, points].
    """

    def __init__(self, grid: Array, log_density: Array) -> None:
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        cdf = np.zeros_like(density)
        np.cumsum((density[:, :-1] + density[:, 1:]) / 2.0, axis=1, out=cdf[:, 1:])
        density /= cdf[:, -1:]
        cdf /= cdf[:, -1:]
        # Row r is lifted to [r, r + 1], so that one sorted search serves all rows.
        cdf += np.arange(len(cdf))[:, None]
        self._grid = grid
        self._density = density
        self._lifted_cdf = cdf

    def quantile(self, row: NDArray[np.intp], u: Array) -> Array:
        """Inverts the CDF.

        Args:
            row: Which density each probability belongs to, [n].
            u: Probabilities in [0, 1), [n].

        Returns:
            The quantiles, [n].
        """
        num_points = len(self._grid)
        lifted_u = row + u
        # Searching in ascending order keeps the table in cache, several times faster.
        order = np.argsort(lifted_u)
        cell = np.empty_like(row)
        cell[order] = np.searchsorted(
            self._lifted_cdf.ravel(), lifted_u[order], side="right"
        )
        cell = np.clip(cell - 1 - row * num_points, 0, num_points - 2)
        left, right = self._density[row, cell], self._density[row, cell + 1]
        # Solves left * t + (right - left) * t**2 / 2 = area for t, in the form that
        # stays accurate when both ends are equal.
        area = lifted_u - self._lifted_cdf[row, cell]
        root = np.sqrt(np.maximum(left**2 + 2.0 * (right - left) * area, 0.0))
        fraction = 2.0 * area / np.maximum(left + root, np.finfo(np.float64).tiny)
        spacing = self._grid[1] - self._grid[0]
        return self._grid[cell] + np.clip(fraction, 0.0, 1.0) * spacing


class GridChain:
    """A chain `p(x) ∝ Π_i f(x_i) Π_i g(x_i, x_{i+1})` of scalar nodes.

    Messages between neighbours are functions of one variable. The trapezoidal
    rule integrates these smooth, decaying functions with an error that falls
    faster than any power of the spacing, so moments are exact to rounding.
    Messages are kept as logarithms: far from the mass they underflow.

    Nothing is computed before a moment or a draw is asked for.

    Args:
        grids: One evenly spaced grid per node. It must hold all but a negligible
            part of the node's mass, and resolve the narrowest factor.
        log_node: `log f`, elementwise.
        log_edge: `log g(x, y)`, elementwise with broadcasting.
    """

    def __init__(
        self,
        grids: Sequence[Array],
        log_node: Callable[[Array], Array],
        log_edge: Callable[[Array, Array], Array],
    ) -> None:
        self._grids = tuple(grids)
        self._log_node = log_node
        self._log_edge = log_edge

    @cached_property
    def _log_onward(self) -> list[Array]:
        """Log of `f(x_i)` times the backward message into node i, [points] each."""
        onward = [self._log_node(self._grids[-1])]
        for x, y in zip(self._grids[-2::-1], self._grids[:0:-1], strict=True):
            edge = self._log_edge(x[:, None], y[None, :])
            onward.append(self._log_node(x) + _log_sum_exp(edge + onward[-1]))
        return onward[::-1]

    @cached_property
    def _marginals(self) -> list[Array]:
        """Probability of each grid point, node by node, [points] each."""
        forward = np.zeros_like(self._grids[0])
        marginals = [_softmax(self._log_onward[0])]
        for i, y in enumerate(self._grids[1:]):
            x = self._grids[i]
            edge = self._log_edge(x[None, :], y[:, None])
            forward = _log_sum_exp(edge + self._log_node(x) + forward)
            marginals.append(_softmax(forward + self._log_onward[i + 1]))
        return marginals

    def expectation(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(x_i)]` of every node by quadrature, [nodes]."""
        return np.array(
            [
                marginal @ function(grid)
                for marginal, grid in zip(self._marginals, self._grids, strict=True)
            ]
        )

    def sample(self, n: int, generator: np.random.Generator) -> Array:
        """Draws the nodes in order, each given the one before it, [n, nodes]."""
        draws = np.empty((n, len(self._grids)))
        first = GridDensities(self._grids[0], self._log_onward[0][None, :])
        draws[:, 0] = first.quantile(np.zeros(n, np.intp), generator.random(n))
        for i, y in enumerate(self._grids[1:]):
            # Conditionals are tabulated at the grid's points around the draws.
            # Between two of them the quantile, unlike the density, is nearly linear
            # in x: exactly so for a Gaussian whose mean moves linearly.
            x = self._grids[i]
            position = (draws[:, i] - x[0]) / (x[1] - x[0])
            cell = np.clip(position.astype(np.intp), 0, len(x) - 2)
            weight = position - cell
            first_cell = cell.min()
            x = x[first_cell : cell.max() + 2]
            edge = self._log_edge(x[:, None], y[None, :])
            given_x = GridDensities(y, edge + self._log_onward[i + 1])
            row, u = cell - first_cell, generator.random(n)
            below, above = given_x.quantile(row, u), given_x.quantile(row + 1, u)
            draws[:, i + 1] = (1.0 - weight) * below + weight * above
        return draws


def _log_sum_exp(values: Array) -> Array:
    """`log Σ exp` over the last axis, [rows, points] -> [rows]."""
    peak = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - peak).sum(axis=-1)) + peak[..., 0]


def _softmax(values: Array) -> Array:
    weights = np.exp(values - values.max())
    return weights / weights.sum()
