"""How many runs a claim needs: a crash that comes and goes is not gone because it stayed away once.

The unchanged program is run until it has crashed ``CRASHES`` times; that took N runs. The changed program is then run
``needed(N)`` times, and the crash is called gone only where none of them crashed. If the change does nothing, every
run crashes with the same chance p, and the claim is wrong with the probability

    sum over N >= CRASHES of  C(N - 1, CRASHES - 1) p^CRASHES (1 - p)^(N - CRASHES)  (1 - p)^needed(N)

which is at most 5 % for every p, as ``error`` computes exactly (a negative binomial count against a run of successes).
For p near 0 it tends to (1 / (1 + RATIO))^CRASHES, which RATIO keeps below 5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, exp, lgamma, log

CRASHES = 4
"""Crashes of the unchanged program that are waited for."""
RATIO = 1.115
"""Runs of the changed program for each run of the unchanged one."""
EVERY_TIME = 2
"""Runs of the changed program where the unchanged one crashed every time."""
ERROR = 0.05
"""The most that the probability of calling a useless change a fix may be."""


def needed(runs: int) -> int:
    """Runs without a crash that the changed program needs, where ``runs`` unchanged ones gave ``CRASHES`` crashes.

    Raises:
        ValueError: fewer runs than crashes.

    """
    if runs < CRASHES:
        raise ValueError(f"{CRASHES} crashes take at least {CRASHES} runs, not {runs}")
    return EVERY_TIME if runs == CRASHES else ceil(RATIO * runs)


def error(p: float) -> float:
    """The exact probability that a change which does nothing is called a fix, for a crash of chance ``p`` in (0, 1].

    Raises:
        ValueError: ``p`` is no such chance.

    """
    if not 0 < p <= 1:
        raise ValueError(f"a chance lies in (0, 1], {p} does not")
    if p == 1:
        return 0.0
    total, runs, seen = 0.0, CRASHES, 0.0
    while seen < 1 - 1e-12 and runs < CRASHES + 60 / p * CRASHES:
        chance = exp(_log_choose(runs - 1, CRASHES - 1) + CRASHES * log(p) + (runs - CRASHES) * log(1 - p))
        seen += chance
        total += chance * (1 - p) ** needed(runs)
        runs += 1
    return total + max(0.0, 1 - seen) * (1 - p) ** needed(runs)


def rate_bounds(crashed: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper and Pearson, 1934) interval of the chance of a crash, from ``crashed`` of ``runs``.

    Raises:
        ValueError: not 0 <= crashed <= runs, or no runs.

    """
    if not 0 <= crashed <= runs or runs == 0:
        raise ValueError(f"{crashed} of {runs} runs")
    tail = (1 - confidence) / 2
    low = 0.0 if crashed == 0 else _solve(lambda p: 1 - _at_most(crashed - 1, runs, p), tail)
    high = 1.0 if crashed == runs else _solve(lambda p: 1 - _at_most(crashed, runs, p), 1 - tail)
    return low, high


def _at_most(crashed: int, runs: int, p: float) -> float:
    if p <= 0:
        return 1.0
    if p >= 1:
        return 1.0 if crashed >= runs else 0.0
    return sum(exp(_log_choose(runs, k) + k * log(p) + (runs - k) * log(1 - p)) for k in range(crashed + 1))


def _solve(rising: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < value:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
