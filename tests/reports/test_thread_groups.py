"""Threads at the same place: told once, the odd ones first, in every format."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from report_examples import native

from necropsy.model import Crash, Exit, Report, Thread, Wait
from necropsy.reports import markdown, text
from necropsy.reports.deadlock import group_title, grouped

LIBC = "/lib/libc.so.6"


def thread(tid: int, function: str = "sleep", **more: Any) -> Thread:
    return Thread(tid=tid, name="w", frames=(native(0, function, LIBC),), **more)


def test_the_odd_one_comes_first_and_the_order_is_kept() -> None:
    pool = [thread(tid) for tid in range(10, 14)]
    found = grouped([pool[0], thread(1, "lock"), *pool[1:], thread(2, "poll")])
    assert [[one.tid for one in group] for group in found] == [[1], [2], [10, 11, 12, 13]]


def test_what_makes_a_difference_and_what_does_not() -> None:
    one = thread(1, waits=Wait(call="futex", on="the lock at 0x10"))
    other_lock = thread(2, waits=Wait(call="futex", on="the lock at 0x20"))
    other_call = thread(3, waits=Wait(call="read"))
    holds = thread(4, waits=Wait(call="futex"), holds_gil=True)
    assert [len(group) for group in grouped([one, other_lock, other_call, holds])] == [1, 1, 2]
    assert group_title([one, other_lock]) == "2 threads at the same place, in futex"
    assert group_title([one]) == "thread w (1), waits in futex for the lock at 0x10"
    unknown = [Thread(tid=7), Thread(tid=8)]
    assert [len(group) for group in grouped(unknown)] == [1, 1], "nothing is known of them"


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=30))
def test_no_thread_is_lost(functions: list[str]) -> None:
    threads = [thread(tid, function) for tid, function in enumerate(functions)]
    found = grouped(threads)
    assert sorted(one.tid or 0 for group in found for one in group) == list(range(len(functions)))
    assert [len(group) for group in found] == sorted(len(group) for group in found)


def hung() -> Report:
    pool = [thread(tid) for tid in range(100, 160)]
    places = [thread(tid, f"place{tid}") for tid in range(1, 8)]
    return Report(pid=1, crash=Crash(pid=1, exit=Exit(kind="timeout"), threads=(thread(0, "main"), *pool, *places)))


def test_a_pool_does_not_hide_the_others_on_a_terminal() -> None:
    rendered = text.render(hung(), width=60)
    assert [f"place{tid}  " in rendered for tid in range(1, 8)] == [True] * 5 + [False] * 2
    assert "  and 62 more threads" in rendered
    few = text.render(Report(crash=Crash(exit=Exit(kind="timeout"), threads=(thread(0, "main"), thread(1), thread(2)))))
    assert "2 threads at the same place\n  w (1), w (2)\n  #0 sleep" in few


def test_a_pool_does_not_hide_the_others_in_an_issue() -> None:
    rendered = markdown.render(hung())
    assert all(f"place{tid}" in rendered for tid in range(1, 8))
    assert "60 threads at the same place: w (100), w (101)" in rendered
    assert "more threads" not in rendered
