"""What the failure signal handlers of glog, absl and folly print, and the stack of a failed CHECK.

::

    *** Aborted at 1501135804 (unix time) try "date -d @1501135804" if you are using GNU date ***
    PC: @     0x7f31cadd5428 gsignal
    *** SIGABRT (@0x30) received by PID 48 (TID 0x7f317b7fe700) from PID 48; stack trace: ***
        @     0x7f31cadd54b0 (unknown)

glog's src/signalhandler.cc, absl/debugging/failure_signal_handler.cc, folly/debugging/symbolizer/SignalHandler.cpp. The
number behind ``@`` is ``si_addr``, and where a process sent the signal its id and user, which overlap with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.lines import Line
from necropsy.formats.signal_codes import WITH_ADDRESS, code_in
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Fault, Frame

REACH = 1200
_HEAD_LINES = 12
"""Lines over which a handler's head is spread, others between them."""

_GLOG = re.compile(
    r"\*\*\* (?P<signal>SIG\w+) \(@(?P<address>0x[0-9a-f]+|\(nil\))\) received by PID (?P<pid>\d+) "
    r"\(TID (?P<tid>0x[0-9a-f]+|\d+)\)(?: from PID (?P<sender>-?\d+))?"
)
_ABSL = re.compile(r"\*\*\* (?P<signal>SIG\w+) received at time=(?P<time>\d+)(?: on cpu \d+)?")
_ABSL_PID = re.compile(r"\*\*\* (?P<signal>SIG\w+) \(see [^)]*\) received by PID (?P<pid>\d+) \(TID (?P<tid>\d+)\)")
_FOLLY = re.compile(
    r"\*\*\* Signal \d+ \((?P<signal>SIG\w+)\) \((?P<address>0x[0-9a-f]+)\) received by PID (?P<pid>\d+) "
    r"\(pthread TID 0x[0-9a-f]+\) \(linux TID (?P<tid>\d+)\)(?: \((?:maybe )?from PID (?P<sender>\d+)[^)]*\))?"
    r"(?: \(code: (?P<words>[^)]*)\))?"
)
_TIME = re.compile(r"\*\*\* Aborted at (?P<time>\d{9,11}) \([Uu]nix time")
_CHECK = "*** Check failure stack trace: ***"


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    """From the handler's first line to its last frame."""
    text = lines[index].text[: backtrace.LONGEST]
    if _CHECK in text:
        return _check(lines, index)
    head: re.Match[str] | None = None
    when: int | None = None
    counter: Frame | None = None
    at = index
    for at in range(index, min(len(lines), index + _HEAD_LINES)):
        text = lines[at].text[: backtrace.LONGEST]
        if match := _TIME.search(text):
            when = int(match["time"])
        elif "PC: @" in text and counter is None:
            counter = frame_lines.at_line(text, 0)
        elif head is None and (match := _signal(text)) is not None:
            head = match
        elif head is not None and frame_lines.at_line(text, 0) is not None:
            break
    else:
        at += 1
    if head is None:
        return None
    groups = head.groupdict()
    when = int(groups["time"] or "0") if groups.get("time") else when
    frames, end, more = frame_lines.block(lines, at, (frame_lines.at_line,))
    shown = frame_lines.without_handler(frames, counter)
    tid = groups.get("tid")
    last = max(end - 1 if frames else 0, _line_of(lines, index, head))
    crash = frame_lines.crash(
        shown,
        fault=_fault(groups),
        pid=int(groups["pid"]) if groups.get("pid") else None,
        tid=int(tid) if tid and tid.isdigit() else None,
        at=None if when is None else datetime.fromtimestamp(when, timezone.utc).isoformat(),
        cut=more,
    )
    return TextReport("glog", lines[index].number, lines[last].number, crash)


def _line_of(lines: Sequence[Line], index: int, head: re.Match[str]) -> int:
    for at in range(index, min(len(lines), index + _HEAD_LINES)):
        if lines[at].text[: backtrace.LONGEST] == head.string:
            return at
    return index


def _signal(text: str) -> re.Match[str] | None:
    if "*** S" not in text:
        return None
    return next((match for one in (_GLOG, _ABSL, _ABSL_PID, _FOLLY) if (match := one.search(text))), None)


def _fault(groups: dict[str, str | None]) -> Fault:
    signal = groups["signal"] or ""
    pid = int(groups.get("pid") or "0") or None
    said = groups.get("sender")
    sender = int(said) if said else None
    given = backtrace.number(groups.get("address"))
    # si_addr and the sender's id lie in the same bytes: only of one's own process can one know that it is the sender.
    raised = sender is not None and sender == pid and given is not None and given & 0xFFFFFFFF == sender
    address = given if signal in WITH_ADDRESS and not raised else None
    return frame_lines.fault(
        signal,
        code=code_in(groups.get("words") or ""),
        address=address if address is None or address < 1 << 64 else None,
        sender=sender if raised or (signal not in WITH_ADDRESS and sender) else None,
        pid=pid,
    )


def _check(lines: Sequence[Line], index: int) -> TextReport | None:
    """The stack that a failed CHECK prints before it aborts; what failed stands above it as a message of the log."""
    frames, end, more = frame_lines.block(lines, index + 1, (frame_lines.at_line,))
    if not frames:
        return None
    return TextReport("glog", lines[index].number, lines[end - 1].number, frame_lines.crash(frames, cut=more))


READER = TextReader(
    kind="glog",
    triggers=(
        "*** Aborted at ",
        "PC: @ ",
        " received by PID ",
        " received at time=",
        _CHECK,
    ),
    read=_read,
    reach=REACH,
)
