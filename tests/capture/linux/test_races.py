"""Programs whose death is a matter of chance die about as often under necropsy as without it: see ``race_rates``."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build, compiler

from race_rates import Rates, fisher, measure, programs

RUNS, BATCH = 20, 10
LEVEL = 4e-6
"""Far from chance: a program that always died and now mostly lives is found, one whose rate moves a little is not.
``python tests/race_rates.py`` looks more closely. With equal rates, all programs together fail in 1 of 10,000 runs of the
tests at most."""

BARE_TRACER = Path(__file__).parents[3] / "benchmarks/workloads/bare_tracer.c"

READING = frozenset({"fork_and_crash", "fork_beside_threads", "killed_or_crashed"})
"""Another process does not wait for what dies, and reading that takes its time."""
STOPPING = frozenset({"main_thread_exits", "child_signals_parent", "two_crash"})
"""The moment between a stop and its end: what other threads or processes do in it, they do earlier than without. Of two
stops in the same few microseconds, the kernel shows that of the newer thread first."""
STARTING = frozenset({"vfork_and_thread", "many_and_exit"})
"""To start a thread takes some microseconds longer under any tracer: where that much decides, and on a machine where it
does."""
CHANGED = READING | STOPPING | STARTING
"""What supervision changes: races that microseconds decide, or the time that reading takes."""
COMPARED = [one for one in programs() if one.stem not in CHANGED]


def test_fisher_gives_the_known_values() -> None:
    # Fisher's own tea tasting (The Design of Experiments, 1935), and values by R's fisher.test.
    assert fisher(3, 4, 1, 4) == pytest.approx(0.485714, abs=1e-6)
    assert fisher(1, 10, 11, 14) == pytest.approx(0.002759456, abs=1e-9)
    assert fisher(0, 20, 20, 20) == pytest.approx(1.450875e-11, rel=1e-6)
    assert fisher(7, 20, 7, 20) == pytest.approx(1)
    assert fisher(0, 20, 0, 20) == pytest.approx(1)


@pytest.mark.parametrize("source", COMPARED, ids=lambda one: one.stem)
def test_outcomes_are_as_frequent_as_without(source: Path, tmp_path: Path) -> None:
    """Or as under the least that a tracer can do, where the threads have to share a processor.

    Which of them is the first to run there is decided by the stop at a thread's start, under any tracer.
    """
    compiler()
    rates = measure(source, RUNS, BATCH, tmp_path)
    assert rates.plain.total() == rates.traced.total() == RUNS
    if rates.p > LEVEL:
        return
    bare_tracer = build(tmp_path, BARE_TRACER.read_text(), "-O1", name="bare_tracer")
    least = measure(source, RUNS, BATCH, tmp_path, [str(bare_tracer)]).traced
    again = Rates(source.stem, least, measure(source, RUNS, BATCH, tmp_path).traced)
    assert again.p > LEVEL, (rates, again)


def test_programs_that_differ_are_programs_and_are_the_exception() -> None:
    assert {one.stem for one in programs()} >= CHANGED
    assert len(COMPARED) > 2 * len(CHANGED)
    assert len(COMPARED) * LEVEL < 1e-4
