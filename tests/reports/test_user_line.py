"""The headline begins with the line of the person who ran the command."""

from __future__ import annotations

import msgspec
import pytest

from necropsy.model import Crash, Exit, Fault, Frame, Owner, Report, Thread
from necropsy.reports import text, user_line


def frame(index: int, file: str, owner: Owner | None, code: str | None = None) -> Frame:
    return Frame(index=index, kind="python", function=f"f{index}", source=file, line=index + 10, owner=owner, code=code)


LIBRARY = frame(0, "/usr/lib/python3.11/ctypes/__init__.py", "interpreter")
PACKAGE = frame(1, "/home/u/v/lib/python3.11/site-packages/numpy/core.py", "package")
OWN = frame(2, "/home/u/train.py", "script", "out = op(values)")
CALLER = frame(3, "/home/u/main.py", "script")
UNKNOWN = frame(4, "<string>", None)
GENERATED = frame(5, "<string>", "script")


def report(fault: Fault | None, *frames: Frame, end: Exit | None = None) -> Report:
    thread = Thread(tid=1, crashed=fault is not None, python=frames, frames=())
    return Report(pid=1, crash=Crash(pid=1, fault=fault, threads=(thread,), exit=end))


SEGV = Fault(signal="SIGSEGV", code="SEGV_MAPERR")
ABORT = Fault(signal="SIGABRT", code="SI_TKILL", sender=1, sent_by_itself=True)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ((LIBRARY, PACKAGE, OWN, CALLER), "train.py:12, in f2"),
        ((CALLER, OWN), "main.py:13, in f3"),
        ((LIBRARY, PACKAGE, UNKNOWN), "<string>:14, in f4"),
        ((GENERATED, PACKAGE, OWN), "train.py:12, in f2"),
        ((GENERATED, PACKAGE), "<string>:15, in f5"),
        ((LIBRARY, PACKAGE), None),
        ((), None),
        ((msgspec.structs.replace(OWN, function="<module>"),), "train.py:12"),
    ],
)
def test_it_is_the_innermost_of_ones_own(frames: tuple[Frame, ...], place: str | None) -> None:
    found = user_line.of_report(report(SEGV, *frames))
    assert (found.place if found is not None else None) == place


def test_the_headline_says_what_happened_there() -> None:
    assert user_line.headline(report(SEGV, OWN)).startswith("train.py:12, in f2, crashed (SIGSEGV): The process")
    assert user_line.headline(report(ABORT, OWN)).startswith("train.py:12, in f2, aborted: The process")
    stopped = Fault(signal="SIGTERM", code="SI_USER", sender=7, sent_by_itself=False)
    assert user_line.headline(report(stopped, OWN)).endswith(", while at train.py:12, in f2.")


def test_the_source_line_is_shown_as_a_traceback_shows_it() -> None:
    lines = text.render(report(SEGV, LIBRARY, OWN)).splitlines()
    assert lines[lines.index("  /home/u/train.py:12") :][:2] == ["  /home/u/train.py:12", "      out = op(values)"]
    hostile = msgspec.structs.replace(OWN, code="x = '\x1b[31m'")
    assert "\x1b" not in text.render(report(SEGV, hostile))
