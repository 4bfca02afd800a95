"""Names of Python's threads and tasks of asyncio, read from processes that die."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness import dying
from test_pyframes import each_python, minor_of

from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Coroutine, Thread
from necropsy.reports import wording

PROGRAM = """
import asyncio, ctypes, sys, threading
async def leaf(n):
    ctypes.string_at(n)
async def child(n):
    await asyncio.sleep(0)
    await leaf(n)
async def middle():
    await asyncio.gather(child(16), asyncio.sleep(5))
async def inner():
    await middle()
async def main():
    await asyncio.ensure_future(inner())
async def grouped():
    async with asyncio.TaskGroup() as group:
        group.create_task(child(16))
start = grouped if sys.version_info >= (3, 11) and sys.argv[1] == "group" else main
thread = threading.Thread(target=lambda: asyncio.run(start()), name="feeder \u00e9 with a long name")
thread.start()
thread.join()
"""


def died(python: Path, folder: Path, how: str) -> Thread:
    script = folder / "app.py"
    script.write_text(PROGRAM)
    os.utime(script, (1, 1))
    with dying([str(python), str(script), how]) as death:
        thread = crash_builder.capture(death).crashed_thread
    assert thread is not None
    return thread


@each_python
def test_a_thread_with_an_event_loop(python: Path, tmp_path: Path) -> None:
    thread = died(python, tmp_path, "gather")
    minor, source = minor_of(python), str(tmp_path / "app.py")
    assert thread.python_name == "feeder \u00e9 with a long name"
    assert thread.name is not None
    assert thread.name.startswith("python")
    assert wording.thread_name(thread) == f"thread feeder \u00e9 with a long name ({thread.tid})"
    waiting = [
        (Coroutine(function="middle", source=source, line=9), Coroutine(function="inner", source=source, line=11)),
        (Coroutine(function="main", source=source, line=13),),
    ]
    expected = [
        (Coroutine(function="leaf", source=source, line=4), Coroutine(function="child", source=source, line=7)),
        *([] if minor < 10 else [waiting[0][1:], waiting[1]] if minor == 10 else waiting),
    ]
    assert [one.awaits for one in thread.tasks] == expected
    assert all(one.name is not None and one.name.startswith("Task-") for one in thread.tasks)
    assert len({one.name for one in thread.tasks}) == len(expected)
    if minor >= 11:
        names = [one.name for one in thread.tasks]
        assert wording.spelled(thread) == [
            f"{names[0]} ran child (app.py:7), which awaited leaf (app.py:4)",
            f"{names[1]} waits for it in inner (app.py:11), which awaited middle (app.py:9)",
            f"{names[2]} waits for it in main (app.py:13)",
        ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup is new in Python 3.11")
def test_a_group_of_tasks(tmp_path: Path) -> None:
    thread = died(Path(sys.executable), tmp_path, "group")
    child, group = thread.tasks
    assert [one.function for one in child.awaits] == ["leaf", "child"]
    assert [one.function for one in group.awaits] == ["TaskGroup.__aexit__", "grouped"]
