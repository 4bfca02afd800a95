"""What other runtimes say when native code that Python shares with them dies: R, Julia, and the Java virtual machine.

R's src/main/main.c (``sigactionSegv``), Julia's src/signal-handling.c (``jl_critical_error``), HotSpot's
src/hotspot/share/utilities/vmError.cpp (hs_err files).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.signal_codes import SENT, WITH_ADDRESS, code_in
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Frame

REACH = 800
_R = re.compile(r"\*\*\* caught (?P<name>segfault|bus error|illegal operation) \*\*\*")
_R_ADDRESS = re.compile(r"address (?P<address>0x[0-9a-f]+|\(nil\)), cause '(?P<words>[^']{1,80})'")
_R_SIGNALS = {"segfault": "SIGSEGV", "bus error": "SIGBUS", "illegal operation": "SIGILL"}

_JULIA = re.compile(
    r"(?:\[(?P<pid>\d+)\] )?signal (?:\((?P<old>\d{1,2})(?:\.\d+)?\)|(?P<new>\d{1,2}) \(-?\d+\)): [A-Z]\w+"
)
_JULIA_FRAME = re.compile(
    r"(?P<function>\S.*?) at (?P<place>\S.*?)(?: \(unknown line\)|:(?P<line>\d{1,9}))(?: \[inlined\])?$"
)
_JULIA_UNKNOWN = re.compile(r"unknown function \(ip: (?P<address>0x[0-9a-f]+|\(nil\))\)")
_JULIA_END = re.compile(r"Allocations: ")
_IN_EXPRESSION = "in expression starting at "

_JAVA = "A fatal error has been detected by the Java Runtime Environment"
_JAVA_SIGNAL = re.compile(
    r"#\s+(?P<signal>SIG[A-Z]+) \(0x[0-9a-f]+\) at pc=0x[0-9a-f]+(?: \([^()]*\))?, pid=(?P<pid>\d+), "
    r"tid=(?P<tid>0x[0-9a-f]+|\d+)"
)
_JAVA_INFO = re.compile(
    r"siginfo: ?si_signo[:=] ?\S+.{0,60}?si_code[:=] ?-?\d+ \((?P<code>\w+)\)"
    r"(?:, si_addr[:=] ?(?P<address>0x[0-9a-f]+))?(?:, si_pid[:=] ?(?P<sender>\d+))?"
)
_JAVA_FRAME = re.compile(
    r"(?:# )?[CV]\s+\[(?P<module>[^\[\]+]+)\+(?P<offset>0x[0-9a-f]+)\](?:\s+(?P<function>\S.*?))?(?:\+0x[0-9a-f]+)?$"
)
_JAVA_HEAD = 12
"""Lines below the first one in which the signal is named."""
_JAVA_STACK = "Native frames:"


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    text = lines[index].text[: backtrace.LONGEST]
    if match := _R.search(text):
        return _of_r(lines, index, _R_SIGNALS[match["name"]])
    if match := _JULIA.search(text):
        return _of_julia(lines, index, match)
    if _JAVA in text:
        return _of_java(lines, index)
    return None


def _of_r(lines: Sequence[Line], index: int, signal: str) -> TextReport:
    for at in range(index + 1, min(len(lines), index + 4)):
        if match := _R_ADDRESS.search(lines[at].text[: backtrace.LONGEST]):
            fault = frame_lines.fault(signal, code=code_in(match["words"]), address=backtrace.number(match["address"]))
            return TextReport("r", lines[index].number, lines[at].number, Crash(fault=fault))
    return TextReport("r", lines[index].number, lines[index].number, Crash(fault=frame_lines.fault(signal)))


def _of_julia(lines: Sequence[Line], index: int, head: re.Match[str]) -> TextReport | None:
    signal = signal_name(int(head["old"] or head["new"]))
    at = index + 1
    if at < len(lines) and _IN_EXPRESSION in lines[at].text:
        at += 1
    frames, end, _ = frame_lines.block(lines, at, (_julia_frame,), skip=0)
    crash = frame_lines.crash(frames, fault=frame_lines.fault(signal), pid=int(head["pid"]) if head["pid"] else None)
    return TextReport("julia", lines[index].number, lines[max(end, at) - 1].number, crash)


def _julia_frame(text: str, count: int) -> Frame | None:
    text = backtrace.bare(text)
    if match := _JULIA_UNKNOWN.match(text):
        return backtrace.native(count, None, address=backtrace.number(match["address"]))
    match = _JULIA_FRAME.match(text)
    if match is None or _JULIA_END.match(text):
        return None
    library = match["line"] is None
    return backtrace.native(
        count,
        match["function"],
        module=match["place"] if library else None,
        source=None if library else match["place"],
        line=None if library else int(match["line"]),
    )


def _of_java(lines: Sequence[Line], index: int) -> TextReport | None:
    signal = code = None
    pid = tid = address = sender = None
    problem: Frame | None = None
    frames: list[Frame] = []
    inside, last = False, index
    for at in range(index + 1, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if match := _JAVA_SIGNAL.match(text):
            signal, pid, tid = match["signal"], int(match["pid"]), backtrace.number(match["tid"])
        elif (match := _JAVA_INFO.search(text)) and signal is not None:
            code = match["code"]
            address = backtrace.hexadecimal(match["address"]) if match["address"] else None
            sender = int(match["sender"]) if match["sender"] else None
        elif text.startswith(_JAVA_STACK):
            inside = True
        elif (inside or problem is None) and (match := _JAVA_FRAME.match(text)):
            frame = backtrace.native(
                len(frames),
                match["function"],
                module=match["module"],
                offset=backtrace.hexadecimal(match["offset"]),
            )
            if inside:
                frames.append(frame)
            elif problem is None:
                problem = frame
        elif inside and frames and not text:
            if code is not None:
                break
            inside = False  # newer versions name the signal's cause below the stack
            continue
        elif signal is None and at - index > _JAVA_HEAD:
            break
        else:
            continue
        last = at
    if signal is None:
        return None
    if not frames and problem is not None:
        frames = [problem]
    crash = frame_lines.crash(
        frames,
        fault=frame_lines.fault(
            signal,
            code=code,
            address=address if signal in WITH_ADDRESS and code not in SENT else None,
            sender=sender,
            pid=pid,
        ),
        pid=pid,
        tid=tid,
        cut=len(frames) == 1,
    )
    return TextReport("java", lines[index].number, lines[last].number, crash)


READERS = (
    TextReader(
        kind="r",
        triggers=("*** caught segfault ***", "*** caught bus error ***", "*** caught illegal"),
        read=_read,
        reach=8,
    ),
    TextReader(
        kind="julia",
        triggers=("signal (", "signal 11 (", "signal 6 (", "signal 4 (", "signal 8 ("),
        read=_read,
        reach=400,
    ),
    TextReader(kind="java", triggers=(_JAVA,), read=_read, reach=REACH),
)
