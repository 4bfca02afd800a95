"""The stopping rule's error, computed exactly and simulated."""

from __future__ import annotations

import random

import pytest

from necropsy.confirm import sampling


@pytest.mark.parametrize("percent", [*range(5, 101), 1, 2, 0.1])
def test_a_useless_change_is_called_a_fix_in_at_most_5_percent(percent: float) -> None:
    assert sampling.error(percent / 100) <= sampling.ERROR


@pytest.mark.parametrize("chance", [0.1, 0.3, 0.6, 0.9])
def test_the_error_is_what_a_simulation_gives(chance: float) -> None:
    trials, wrong = 20_000, 0
    rng = random.Random(7)
    for _ in range(trials):
        runs = crashed = 0
        while not sampling.enough(crashed, runs):
            runs += 1
            crashed += rng.random() < chance
        wrong += all(rng.random() >= chance for _ in range(sampling.needed(runs)))
    assert abs(wrong / trials - sampling.error(chance)) < 0.006


def test_fewer_runs_would_be_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "RATIO", 0.9)
    assert max(sampling.error(percent / 100) for percent in range(1, 101)) > sampling.ERROR


def test_a_crash_of_every_time_needs_few_runs() -> None:
    assert sampling.enough(sampling.AT_ONCE, sampling.AT_ONCE)
    assert not sampling.enough(sampling.AT_ONCE, sampling.AT_ONCE + 1)
    assert sampling.needed(sampling.AT_ONCE) == 2
    assert sampling.needed(sampling.CRASHES + 1) > sampling.needed(sampling.AT_ONCE)
    with pytest.raises(ValueError, match="at least"):
        sampling.needed(sampling.AT_ONCE - 1)


def test_two_crashes_at_once_would_be_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "AT_ONCE", 2)
    assert max(sampling.error(percent / 100) for percent in range(1, 101)) > sampling.ERROR


@pytest.mark.parametrize(
    ("crashed", "runs", "low", "high"),
    # Clopper and Pearson's interval, as tables and R's binom.test give it.
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (3, 10, 0.0667, 0.6525), (1, 20, 0.0013, 0.2487)],
)
def test_the_interval_of_a_rate(crashed: int, runs: int, low: float, high: float) -> None:
    assert sampling.rate_bounds(crashed, runs) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.1])
def test_what_is_no_chance(p: float) -> None:
    with pytest.raises(ValueError, match="chance"):
        sampling.error(p)
