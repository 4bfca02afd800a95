"""Stacks of eu-stack.

::

    TID 25582:
    #0  0x00007f3424aa3f16 __futex_abstimed_wait_common - /usr/lib/libc.so.6
        ./nptl/futex-internal.c:57:12

elfutils' src/stack.c; what systemd-coredump writes with the same library, ``core_dump_notice`` reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Exit, Frame, Thread

REACH = 4000
_UNKNOWN = 12
_HEAD = 6
"""Lines above the first trigger in which the process is named."""

_FRAME = re.compile(r"#(?P<index>\d{1,9})\s{1,4}(?P<address>0x[0-9a-f]{8,16})(?: {1,8}(?:- 1 +)?(?P<rest>\S.*))?$")
_OF_MODULE = re.compile(r"(?P<function>\S.*?) - (?P<module>/\S.*)$")
_PLACE = re.compile(r"(?P<source>\S.*?):(?P<line>\d{1,9})(?::\d{1,9})?$")
_TID = re.compile(r"TID (?P<tid>\d+):$")
_PID = re.compile(r"PID (?P<pid>\d+) - (?P<what>process|core)")


@dataclass
class _Thread:
    tid: int
    frames: list[Frame] = field(default_factory=list)


@dataclass
class _Dump:
    threads: list[_Thread] = field(default_factory=list)
    pid: int | None = None
    core: bool | None = None


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    dump = _Dump()
    last, unknown = None, 0
    start = index
    for at in range(max(0, index - _HEAD), index):
        text = backtrace.bare(lines[at].text)
        if _PID.match(text):
            start = at
            break
    for at in range(start, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if dump.threads and _PID.match(text):
            break  # another dump
        own = _take(dump, text)
        if own:
            last, unknown = at, 0
        else:
            unknown += bool(text)
        found = any(one.frames for one in dump.threads)
        if unknown > _UNKNOWN or (at - start > backtrace.BEFORE and not found):
            break
    threads = [one for one in dump.threads if one.frames]
    if last is None or not threads:
        return None
    return TextReport("elfutils", lines[start].number, lines[last].number, _crash(dump, threads))


def _take(dump: _Dump, text: str) -> bool:
    if match := _FRAME.match(text):
        if not dump.threads:
            return False
        frames = dump.threads[-1].frames
        if frames and int(match["index"]) <= frames[-1].index:
            return False
        frames.append(_frame(match))
    elif match := _TID.search(text):
        dump.threads.append(_Thread(int(match["tid"])))
    elif match := _PID.match(text):
        dump.pid, dump.core = int(match["pid"]), match["what"] == "core"
    elif dump.threads and dump.threads[-1].frames and (match := _PLACE.match(text)) and "/" in match["source"]:
        frames = dump.threads[-1].frames
        frames[-1] = msgspec.structs.replace(frames[-1], source=match["source"], line=int(match["line"]))
    else:
        return False
    return True


def _frame(match: re.Match[str]) -> Frame:
    rest = match["rest"] or ""
    index, address = int(match["index"]), backtrace.hexadecimal(match["address"])
    if of := _OF_MODULE.match(rest):
        return backtrace.native(index, of["function"].split("@", 1)[0], module=of["module"], address=address)
    return backtrace.native(index, rest.split("@", 1)[0] or None, address=address)


def _crash(dump: _Dump, threads: list[_Thread]) -> Crash:
    """In a core the thread that died is first (elf(5): the first NT_PRSTATUS is its)."""
    died = threads[0] if threads and dump.core else None
    if died is not None:
        died.frames, _ = backtrace.below_handler(died.frames)
    shown = tuple(_thread(one, crashed=one is died) for one in threads)
    return Crash(
        pid=dump.pid,
        exit=Exit(kind="running", text="read by eu-stack") if dump.core is False else None,
        threads=shown,
        gaps=backtrace.gaps(shown[0]) if died is not None else (),
    )


def _thread(one: _Thread, *, crashed: bool) -> Thread:
    return backtrace.thread(one.frames, tid=one.tid, crashed=crashed)


READER = TextReader(
    kind="elfutils",
    triggers=("TID ",),
    read=_read,
    reach=REACH,
)
