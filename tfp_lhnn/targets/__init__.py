"""Densities with ground truth: true moments and exact draws."""

from tfp_lhnn.targets.densities import (
    allen_cahn,
    eight_gaussians,
    funnel,
    gaussian_mixture_1d,
    ill_conditioned_gaussian,
    rosenbrock,
    rough_well,
    standard_gaussian,
)
from tfp_lhnn.targets.target import Moments, Target

__all__ = [
    "Moments",
    "Target",
    "allen_cahn",
    "eight_gaussians",
    "funnel",
    "gaussian_mixture_1d",
    "ill_conditioned_gaussian",
    "rosenbrock",
    "rough_well",
    "standard_gaussian",
]
