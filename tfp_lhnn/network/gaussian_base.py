"""The Gaussian base of a separable network, fitted by regression."""

from typing import NamedTuple

import numpy as np

__all__ = ["GaussianBase", "checked_points", "fit_gaussian_base", "near_points"]

# Weight of the dense regression in each candidate, beside the diagonal one. A mixture
# of two positive definite matrices is positive definite, and less noisy than the dense
# one, which has dim² slopes.
_DENSE_WEIGHTS = (0.25, 0.5, 0.75, 1.0)

# A candidate replaces the diagonal one if its error is below this share of that one's.
_WORTHWHILE = 0.95

# Below this correlation of gradients and positions, a slope says nothing about the
# width of the target; the spread of the positions is then more informative. The
# correlation is 1 for a Gaussian and 0.4 for the eight Gaussians.
_SMALLEST_CORRELATION = 0.05

# Smallest eigenvalue of the correlation matrix of the positions, relative to the
# largest, with which a dense regression is tried: float64 leaves six digits then.
_SMALLEST_EIGENVALUE = 1e-10


class GaussianBase(NamedTuple):
    """A Gaussian potential `½|z|²`, `z = whitening (q − location)`.

    Attributes:
        location: `[dim]`.
        whitening: scales `[dim]`, or a matrix `[dim, dim]`.
    """

    location: np.ndarray
    whitening: np.ndarray

    def whiten(self, position: np.ndarray) -> np.ndarray:
        """`z` at `position`, both `[n, dim]`."""
        centred = np.asarray(position, np.float64) - self.location
        if self.whitening.ndim == 1:
            return centred * self.whitening
        return centred @ self.whitening.T

    @property
    def unwhitening(self) -> np.ndarray:
        """The inverse of `whitening`, of its shape: position per whitened unit."""
        if self.whitening.ndim == 1:
            return 1.0 / self.whitening
        return np.linalg.inv(self.whitening)

    def unwhiten(self, z: np.ndarray) -> np.ndarray:
        """The position at `z`, both `[n, dim]`."""
        z = np.asarray(z, np.float64)
        if self.whitening.ndim == 1:
            return self.location + z / self.whitening
        return self.location + np.linalg.solve(self.whitening, z.T).T

    def whiten_gradient(self, gradient: np.ndarray) -> np.ndarray:
        """Turns a gradient with respect to `q` into one for `z`, both `[n, dim]`."""
        gradient = np.asarray(gradient, np.float64)
        if self.whitening.ndim == 1:
            return gradient / self.whitening
        return np.linalg.solve(self.whitening.T, gradient.T).T

    def energy(self, position: np.ndarray) -> np.ndarray:
        """The potential at `position`, `[n]`."""
        return 0.5 * np.sum(self.whiten(position) ** 2, axis=-1)


def near_points(potential: np.ndarray, dim: int) -> np.ndarray:
    """Which points belong to the bulk of the target rather than to a transient.

    A chain that started far away has passed points of no weight. Their energies are
    huge and would outweigh all others in a fit. Under a log-concave density, the mean
    of the potential is at most `dim` above its minimum, and its standard deviation is
    at most `√dim`. The bound is the mean plus ten standard deviations and ten nats, to
    leave room for other densities. It counts from a low quantile, since the minimum may
    be exceptional, as in the neck of a funnel.

    Args:
        potential: `[n]`.
        dim: number of coordinates.

    Returns:
        Bool, `[n]`; true for a tenth of the points or more.
    """
    # In float32, numbers added to a large potential would be lost to rounding.
    potential = np.asarray(potential, np.float64)
    lowest = np.quantile(potential, 0.1)
    return potential <= lowest + dim + 10.0 * np.sqrt(dim) + 10.0


def fit_gaussian_base(
    position: np.ndarray,
    gradient: np.ndarray,
    log_prob: np.ndarray | None = None,
    *,
    held_out: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None,
    dense: bool = True,
    by_gradient: bool = False,
) -> GaussianBase:
    """Fits location and whitening by regressing gradients on positions.

    For a Gaussian, `∇log π = −A (q − μ)` exactly, so that few points give both. In
    general the slope of the regression is the average curvature, which is what a
    surrogate needs. In directions where the slope is not positive, the spread of the
    positions is used instead. The spread is less reliable, since it depends on how well
    a pilot chain has mixed.

    The candidates are:

    - a diagonal `A`;
    - the same, with the values of `log_prob` as further equations: on a rough target
      they determine the curvature better than gradients do;
    - a dense `A`, and mixtures of it with the diagonal one, if there are more than
      `dim + 1` points.

    The one with the smallest held-out error wins. That is the error of the energy about
    its mean if `log_prob` is given, else that of the gradient.

    Args:
        position: `[n, dim]`.
        gradient: of the log density at `position`, `[n, dim]`.
        log_prob: the log density, `[n]`.
        held_out: position, gradient and log density of other points. Without it, every
            fifth block of the points given is held out.
        dense: whether dense candidates are tried.
        by_gradient: whether the gradient's error decides even if `log_prob` is given.
            The base that fits energies best may be much too wide along some coordinate,
            which makes every step too long.

    Returns:
        The base, in float64.

    Raises:
        ValueError: for points that are not finite or constant, or fewer than three;
            points far from the bulk do not count.
    """
    points = checked_points(position, gradient, log_prob)
    fitted = points
    if held_out is None:
        fitted, held_out = _split(points)
    candidates = _diagonal_candidates(*fitted)
    if dense:
        candidates += _dense_candidates(fitted[0], fitted[1])
    if by_gradient:
        held_out = (*held_out[:2], None)
    errors = [_error(base, *held_out) for base in candidates]
    best = int(np.argmin(errors))
    return candidates[best if errors[best] < _WORTHWHILE * errors[0] else 0]


def checked_points(
    position: np.ndarray, gradient: np.ndarray, log_prob: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Checks points to learn from and drops those far away; all become float64.

    Raises:
        ValueError: for shapes that differ, values that are not finite, fewer than
            three points, or points that are all the same.
    """
    position = np.asarray(position, np.float64)
    gradient = np.asarray(gradient, np.float64)
    if position.ndim != 2 or position.shape != gradient.shape:
        raise ValueError(
            "position and gradient must have one shape [n, dim]; "
            f"got {position.shape} and {gradient.shape}"
        )
    if len(position) < 3:
        raise ValueError(f"position must have 3 points or more; got {len(position)}")
    for name, values in (
        ("position", position),
        ("gradient", gradient),
        ("log_prob", log_prob),
    ):
        if values is not None and not np.all(np.isfinite(values)):
            raise ValueError(f"{name} has values that are not finite")
    if log_prob is not None:
        log_prob = np.asarray(log_prob, np.float64)
        near = near_points(-log_prob, position.shape[1])
        position, gradient, log_prob = position[near], gradient[near], log_prob[near]
        if len(position) < 3:
            raise ValueError(
                "of position, 3 points or more must lie near the lowest potentials; "
                f"only {len(position)} of {len(near)} do"
            )
    constant = np.flatnonzero(np.ptp(position, axis=0) == 0.0)
    if constant.size:
        raise ValueError(
            f"position is constant in coordinates {constant.tolist()}: "
            "nothing can be learned along them"
        )
    if np.all(np.ptp(gradient, axis=0) == 0.0):
        raise ValueError("gradient is the same at all points: nothing to learn from")
    return position, gradient, log_prob


def _split(points: tuple) -> tuple[tuple, tuple]:
    """Holds out every fifth of twenty blocks: neighbours in a chain stay together."""
    n = len(points[0])
    block = np.arange(n) * min(20, n) // n
    chosen = block % 5 == 2
    kept = [None if a is None else a[~chosen] for a in points]
    held_out = [None if a is None else a[chosen] for a in points]
    return tuple(kept), tuple(held_out)


class _Standardised(NamedTuple):
    """Points with unit variance by coordinate: thresholds then have no units.

    Attributes:
        mean: of the positions, `[dim]`.
        scale: standard deviations of the positions, `[dim]`.
        position: centred and scaled, `[n, dim]`.
        gradient: of the log density by the scaled position, centred, `[n, dim]`.
        gradient_mean: what was subtracted, `[dim]`.
    """

    mean: np.ndarray
    scale: np.ndarray
    position: np.ndarray
    gradient: np.ndarray
    gradient_mean: np.ndarray

    def base(self, shift: np.ndarray, root: np.ndarray) -> GaussianBase:
        """The base with its centre at `shift` and whitening `root` in these units."""
        return GaussianBase(self.mean + self.scale * shift, root / self.scale)


def _standardise(position: np.ndarray, gradient: np.ndarray) -> _Standardised:
    mean = position.mean(axis=0)
    scale = np.std(position, axis=0)
    gradient = gradient * scale
    gradient_mean = gradient.mean(axis=0)
    return _Standardised(
        mean, scale, (position - mean) / scale, gradient - gradient_mean, gradient_mean
    )


def _diagonal_slopes(points: _Standardised) -> tuple[np.ndarray, np.ndarray]:
    """Curvature and centre by coordinate, `[dim]` each."""
    slope, is_slope = _slopes(
        np.mean(points.position * points.gradient, axis=0),
        np.mean(points.gradient**2, axis=0),
    )
    return slope, np.where(is_slope, points.gradient_mean / slope, 0.0)


def _diagonal_candidates(
    position: np.ndarray, gradient: np.ndarray, log_prob: np.ndarray | None
) -> list[GaussianBase]:
    """Slopes of each gradient on its own position; then with the values as well."""
    points = _standardise(position, gradient)
    slope, shift = _diagonal_slopes(points)
    bases = [points.base(shift, np.sqrt(slope))]
    if log_prob is None:
        return bases
    slope, shift = _slopes_with_values(points, -log_prob, slope, shift)
    if np.all(slope > 0.0):
        bases.append(points.base(shift, np.sqrt(slope)))
    return bases


def _slopes_with_values(
    points: _Standardised, potential: np.ndarray, slope: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares of gradients and values on `½ a q² + b q + c`."""
    q, dim = points.position, len(slope)
    force = -(points.gradient + points.gradient_mean)
    features = np.concatenate([0.5 * q**2, q], axis=1)
    centred = features - features.mean(axis=0)
    values = potential - potential.mean()
    coefficients = np.concatenate([slope, -slope * shift])
    index = np.arange(dim)
    # Each kind of equation is weighted by how well the last fit met it.
    for _ in range(3):
        a, b = coefficients[:dim], coefficients[dim:]
        value_noise = np.mean((values - centred @ coefficients) ** 2)
        force_noise = np.mean((force - a * q - b) ** 2, axis=0)
        if value_noise <= 0.0 or np.any(force_noise <= 0.0):
            break
        matrix = centred.T @ centred / value_noise
        right = centred.T @ values / value_noise
        matrix[index, index] += np.sum(q**2, axis=0) / force_noise
        matrix[dim + index, dim + index] += len(q) / force_noise
        right[:dim] += np.sum(q * force, axis=0) / force_noise
        right[dim:] += np.sum(force, axis=0) / force_noise
        coefficients = np.linalg.solve(matrix, right)
    slope = coefficients[:dim]
    return slope, -coefficients[dim:] / slope


def _dense_candidates(position: np.ndarray, gradient: np.ndarray) -> list[GaussianBase]:
    """Slopes of all gradients on all positions, mixed with the diagonal ones."""
    n, dim = position.shape
    points = _standardise(position, gradient)
    if n <= dim + 1 or dim == 1:
        return []
    values, vectors = np.linalg.eigh(points.position.T @ points.position / n)
    if values[0] < _SMALLEST_EIGENVALUE * values[-1]:
        return []
    precision = _dense_precision(points.position, points.gradient, values, vectors)
    slope, _ = _diagonal_slopes(points)
    bases = []
    for weight in _DENSE_WEIGHTS:
        mixed = weight * precision + (1.0 - weight) * np.diag(slope)
        values, vectors = np.linalg.eigh(mixed)
        # The symmetric root keeps each whitened coordinate near its own position.
        root = (vectors * np.sqrt(values)) @ vectors.T
        bases.append(points.base(np.linalg.solve(mixed, points.gradient_mean), root))
    return bases


def _dense_precision(
    q: np.ndarray, g: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """Slopes of all gradients on all positions, made symmetric positive definite."""
    # In coordinates where the positions are white, the regression is one product.
    whiten = vectors / np.sqrt(values)
    white = q @ whiten
    turned = g @ (vectors * np.sqrt(values))
    product = -white.T @ turned / len(q)
    curvature, axes = np.linalg.eigh(0.5 * (product + product.T))
    variance = np.mean((turned @ axes) ** 2, axis=0)
    curvature, _ = _slopes(-curvature, variance)
    back = whiten @ axes
    return (back * curvature) @ back.T


def _slopes(
    covariance: np.ndarray, gradient_variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures for unit positions; without a usable slope 1, the inverse variance."""
    is_slope = -covariance > _SMALLEST_CORRELATION * np.sqrt(gradient_variance)
    return np.where(is_slope, -covariance, 1.0), is_slope


def _error(
    base: GaussianBase,
    position: np.ndarray,
    gradient: np.ndarray,
    log_prob: np.ndarray | None,
) -> float:
    """Held-out error of the energy about its mean, or of the gradient."""
    if log_prob is not None:
        potential = -np.asarray(log_prob, np.float64)
        near = near_points(potential, position.shape[1])
        difference = potential[near] - base.energy(position[near])
        # Of most points, so that one that is far off does not decide.
        return float(np.median(np.abs(difference - np.median(difference))))
    residual = base.whiten(position) + base.whiten_gradient(gradient)
    return float(np.sqrt(np.mean(residual**2)))
