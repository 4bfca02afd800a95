from __future__ import annotations

from typing import Literal

import pytest

from necropsy.model import Crash, Frame, Report, Thread
from necropsy.notebook import death_text
from necropsy.notebook.cell_log import Cell, CellLog, file_stem

EARLIER = Cell(2, "def boom(p):\n    return read(p)", {})
RUNNING = Cell(5, "x = 1\nboom(0)", {})
LOG = CellLog((EARLIER, RUNNING), RUNNING)


def file_of(cell: Cell) -> str:
    return f"/tmp/ipykernel_7/{file_stem(cell.code)}.py"


def frame(function: str, source: str, line: int, owner: Literal["script", "package"] = "script") -> Frame:
    return Frame(index=0, kind="python", function=function, source=source, line=line, owner=owner)


@pytest.fixture
def report() -> Report:
    frames = (
        frame("read", "/lib/reader.py", 9, "package"),
        frame("boom", file_of(EARLIER), 2),
        frame("<module>", file_of(RUNNING), 2),
        frame("become", "/src/cell_child.py", 45),
    )
    return Report(pid=7, crash=Crash(pid=7, threads=(Thread(tid=7, crashed=True, python=frames),)))


def test_the_frames_of_the_cells_outermost_first(report: Report) -> None:
    assert death_text.frames(report, LOG) == [
        "  In [5], line 2           boom(0)",
        "  In [2], line 2, in boom  return read(p)",
    ]


def test_a_long_stack_is_cut(report: Report) -> None:
    (thread,) = report.crash.threads or ()
    deep = Thread(tid=7, crashed=True, python=(thread.python or ())[1:2] * 100)
    lines = death_text.frames(Report(pid=7, crash=Crash(pid=7, threads=(deep,))), LOG)
    assert lines[0] == "  ... 92 more"
    assert len(lines) == 9


def test_cells_are_named_in_place_of_files(report: Report) -> None:
    shown, names = death_text.with_cells(report, LOG)
    (thread,) = shown.crash.threads or ()
    assert [one.code for one in thread.python or ()] == [None, "return read(p)", "boom(0)"]
    name = file_of(EARLIER).rpartition("/")[2]
    text = f"{file_of(EARLIER)}:2 in boom, {name}:2, x{name}:2"
    assert death_text.in_words(text, names) == f"In [2], line 2 in boom, In [2], line 2, x{name}:2"
