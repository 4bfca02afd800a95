"""How many runs a claim needs: a crash that comes and goes is not gone because it stayed away once.

The unchanged program is run until its first ``AT_ONCE`` runs have all crashed, or else until it has crashed ``CRASHES``
times; that took N runs. The changed program is then run ``needed(N)`` times, and the crash is called gone only where
none of them crashed. If the change does nothing, every run crashes with the same chance p, and the claim is wrong with
the probability

    p^AT_ONCE (1 - p)^needed(AT_ONCE)  +  sum over N > CRASHES of  P(N)  (1 - p)^needed(N)

where P(N) is the chance that the crash number ``CRASHES`` comes at run N and one of the first ``AT_ONCE`` runs lived:

    (C(N - 1, CRASHES - 1) - C(N - 1 - AT_ONCE, CRASHES - 1 - AT_ONCE))  p^CRASHES (1 - p)^(N - CRASHES)

That is at most 5 % for every p, as ``error`` computes exactly. For p near 0 it tends to (1 / (1 + RATIO))^CRASHES,
which RATIO keeps below 5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, comb, exp, lgamma, log

AT_ONCE = 3
"""Enough crashes of the unchanged program if no run survives before them."""
CRASHES = 4
"""Crashes to wait for if one does."""
RATIO = 1.115
EVERY_TIME = 2
"""Runs of the changed program if the unchanged one always crashed."""
ERROR = 0.05
"""Maximum probability of calling a useless change a fix."""


def enough(crashed: int, runs: int) -> bool:
    """The unchanged program has crashed often enough to say how often it does."""
    return crashed >= CRASHES or crashed == runs == AT_ONCE


def needed(runs: int) -> int:
    """Crash-free changed runs that are needed after ``runs`` unchanged ones; raises ``ValueError`` for too few."""
    if runs < AT_ONCE:
        raise ValueError(f"it takes at least {AT_ONCE} runs, not {runs}")
    return EVERY_TIME if runs == AT_ONCE else ceil(RATIO * runs)


def error(p: float) -> float:
    """The probability of calling a useless change a fix, for a crash of chance ``p`` in (0, 1] (``ValueError``)."""
    if not 0 < p <= 1:
        raise ValueError(f"a chance must be in (0, 1], not {p}")
    if p == 1:
        return 0.0
    seen = p**AT_ONCE
    total, runs = seen * (1 - p) ** needed(AT_ONCE), CRASHES
    while seen < 1 - 1e-12 and runs < CRASHES + 60 / p * CRASHES:
        one = exp(CRASHES * log(p) + (runs - CRASHES) * log(1 - p))
        # Where the first runs all crashed, it was over by then.
        chance = (comb(runs - 1, CRASHES - 1) - comb(runs - 1 - AT_ONCE, CRASHES - 1 - AT_ONCE)) * one
        seen += chance
        total += chance * (1 - p) ** needed(runs)
        runs += 1
    return total + max(0.0, 1 - seen) * (1 - p) ** needed(runs)


def rate_bounds(crashed: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval (Clopper and Pearson, 1934) of the crash rate; ``ValueError`` unless 0 <= crashed <= runs > 0."""
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
