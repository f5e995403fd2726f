"""The paper's Algorithms 1 to 3 by plain recursion, in NumPy, for one chain.

Written from the paper, not from the package: no iteration over leaves, no checkpoints,
no batch. It is slow and meant to be read beside the paper.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass
class Problem:
    """What both implementations are given.

    Attributes:
        log_prob: the target, `[dim] -> float`.
        gradient: of the potential `−log π`, `[dim] -> [dim]`.
        network_gradient: `∂H_θ/∂q` at `(q, p)`.
        network_energy: `H_θ` at `(q, p)`.
        step: `Δt`.
        max_depth: number of doublings; the paper has no bound.
        max_hnn: `Δ_max^hnn`.
        max_lf: `Δ_max^lf`.
        n_lf_max: `N_lf`.
    """

    log_prob: Callable
    gradient: Callable
    network_gradient: Callable
    network_energy: Callable
    step: float
    max_depth: int
    max_hnn: float
    max_lf: float
    n_lf_max: int


@dataclasses.dataclass
class Point:
    """A phase point; `gradient` is what the next step starts with.

    `driving_error` is the sum over the steps from the start to here of what each
    changed the energy by whose gradient it took.
    """

    q: np.ndarray
    p: np.ndarray
    gradient: np.ndarray
    is_true: bool
    driving_error: float = 0.0


@dataclasses.dataclass
class Leaf:
    """One leaf; `stopped` says what ended the tree here."""

    q: np.ndarray
    is_valid: bool
    stopped: str | None


@dataclasses.dataclass
class Tree:
    """What BuildTree returns; `choice` maps leaf number to its probability."""

    minus: Point
    plus: Point
    n: int
    s: bool
    choice: dict


class RecursiveNUTS:
    """One chain of the paper's sampler, with its flag and counter."""

    def __init__(self, problem):
        self.problem = problem
        self.flag = False  # 1_lf
        self.n_lf = 0
        self.num_fallbacks = 0
        self.gradients = 0
        self.evaluations = 1  # The density of the first state.
        self.leaves = []
        self.accept = []
        self.driving_accept = []
        self.visited = []

    def log_prob(self, q):
        """A density; one that comes with its gradient is counted as both."""
        self.evaluations += 1
        self.visited.append(q)
        return self.problem.log_prob(q)

    def log_prob_and_gradient(self, q):
        self.gradients += 1
        return self.log_prob(q), self.problem.gradient(q)

    def draw(self, q0, p0, log_uniform, directions):
        """Algorithm 1 for one sample; returns the tree and the choice's law."""
        problem = self.problem
        self.leaves, self.accept, self.driving_accept, self.visited = [], [], [], []
        h0 = -problem.log_prob(q0) + 0.5 * p0 @ p0
        self.h0, self.log_u = h0, log_uniform - h0
        if self.flag:
            self.n_lf += 1
        if self.n_lf == problem.n_lf_max:
            self.flag, self.n_lf = False, 0
        if self.flag:
            start = Point(q0, p0, self.log_prob_and_gradient(q0)[1], True)
        else:
            start = Point(q0, p0, problem.network_gradient(q0, p0), False)
        minus = plus = start
        n, s, j, reason = 1, True, 0, "depth"
        choice = {None: 1.0}  # None is the start itself.
        while s and j < problem.max_depth:
            if directions[j]:
                tree = self.build_tree(plus, +1, j)
                plus = tree.plus
            else:
                tree = self.build_tree(minus, -1, j)
                minus = tree.minus
            if tree.s and tree.n:
                accept = min(1.0, tree.n / n)
                choice = {k: v * (1 - accept) for k, v in choice.items()}
                for k, v in tree.choice.items():
                    choice[k] = choice.get(k, 0.0) + accept * v
            n += tree.n
            s = tree.s and no_u_turn(minus, plus)
            j += 1
            if not s:
                reason = self.leaves[-1].stopped or "u-turn"
        return {
            "minus": minus,
            "plus": plus,
            "n": n,
            "depth": j,
            "reason": "depth" if s else reason,
            "choice": choice,
        }

    def build_tree(self, point, direction, depth):
        """Algorithm 2."""
        if depth == 0:
            return self.base_case(point, direction)
        first = self.build_tree(point, direction, depth - 1)
        if not first.s:
            return first
        outer = first.plus if direction == 1 else first.minus
        second = self.build_tree(outer, direction, depth - 1)
        minus = first.minus if direction == 1 else second.minus
        plus = second.plus if direction == 1 else first.plus
        n = first.n + second.n
        choice = {k: v * first.n / n for k, v in first.choice.items()} if n else {}
        choice |= {k: v * second.n / n for k, v in second.choice.items()} if n else {}
        return Tree(minus, plus, n, second.s and no_u_turn(minus, plus), choice)

    def base_case(self, point, direction):
        problem = self.problem
        step = direction * problem.step
        if not self.flag:
            half, q = half_step(point, step)
            end = finish(q, half, problem.network_gradient(q, half), step, False)
            h = -self.log_prob(q) + 0.5 * end.p @ end.p
            self.flag = not h + self.log_u <= problem.max_hnn
            if self.flag:
                self.num_fallbacks += 1
        if self.flag:
            if not point.is_true:
                gradient = self.log_prob_and_gradient(point.q)[1]
                point = Point(point.q, point.p, gradient, True, point.driving_error)
            half, q = half_step(point, step)
            log_prob, gradient = self.log_prob_and_gradient(q)
            end = finish(q, half, gradient, step, True)
            h = -log_prob + 0.5 * end.p @ end.p
        error = h + self.log_u
        s = bool(error <= problem.max_lf)
        is_valid = bool(error <= 0)
        self.accept.append(min(1.0, np.exp(self.h0 - h)) if s else 0.0)
        end.driving_error = point.driving_error + self.step_error(point, end)
        driving_s = end.driving_error + self.h0 + self.log_u <= problem.max_lf
        driving_accept = min(1.0, np.exp(-end.driving_error))
        self.driving_accept.append(driving_accept if driving_s else 0.0)
        self.leaves.append(Leaf(end.q, is_valid, None if s else "divergence"))
        choice = {len(self.leaves) - 1: 1.0} if is_valid else {}
        return Tree(end, end, int(is_valid), s, choice)

    def step_error(self, start, end):
        """What a step changes the energy by whose gradient it took."""
        if end.is_true:
            energies = [
                -self.problem.log_prob(x.q) + 0.5 * x.p @ x.p for x in (start, end)
            ]
        else:
            energies = [self.problem.network_energy(x.q, x.p) for x in (start, end)]
        return energies[1] - energies[0]


def half_step(point, step):
    """The first half of Algorithm 3's step: momentum half-way, new position."""
    half = point.p - 0.5 * step * point.gradient
    return half, point.q + step * half


def finish(q, half, gradient, step, is_true):
    """The second half; a joint network's gradient was taken at `half`."""
    return Point(q, half - 0.5 * step * gradient, gradient, is_true)


def no_u_turn(minus, plus):
    difference = plus.q - minus.q
    return bool(difference @ minus.p >= 0 and difference @ plus.p >= 0)
