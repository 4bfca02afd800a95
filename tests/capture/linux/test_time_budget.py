"""The time that readings may take."""

from __future__ import annotations

from necropsy.capture.linux.inspect.time_budget import TimeBudget


def budget(now: list[float]) -> TimeBudget:
    return TimeBudget(lent_s=0.1, share=0.01, clock=lambda: now[0])


def test_what_is_lent_is_there_at_once() -> None:
    now = [50.0]
    one = budget(now)
    one.spend(0.1)
    assert one.pause_s() == 0


def test_what_is_over_is_waited_for() -> None:
    now = [50.0]
    one = budget(now)
    one.spend(0.15)
    assert round(one.pause_s(), 6) == 5
    assert one.pause_s(more_s=0.05) == 0
    now[0] += 4
    assert round(one.pause_s(), 6) == 1
    now[0] += 2
    assert one.pause_s() == 0


def test_a_pause_is_credit_for_later() -> None:
    now = [50.0]
    one = budget(now)
    now[0] += 100
    one.spend(1.1)
    assert one.pause_s() == 0
    one.spend(0.01)
    assert round(one.pause_s(), 6) == 1
