"""macOS' crash report as text: the ``.crash`` file up to macOS 11, and what Console shows of newer ones.

Fields: Apple, *Examining the fields in a crash report*, *Analyzing a crash report*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace
from necropsy.formats.apple import AppleReport, crash_of, module
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Fold, Frame, Module, Thread

KIND = "apple-crash-text"
_REACH = 4000
_WIDEST = 2000
_THREADS = 64
_GAP = 100
"""Lines of something else that may stand inside of a report."""
_UNIT = 64
"""Frames of one level of a recursion that are kept."""

_TRIGGERS = (
    "Exception Type: ",
    "Crashed Thread: ",
    "Triggered by Thread: ",
    "Termination Reason: ",
    "Exception Codes: ",
    "Exception Subtype: ",
    " Crashed:",
    "Dyld Error Message:",
)
_FIELD = regex(
    r"\s{0,4}(?P<name>Process|Path|Version|Code Type|OS Version|Crashed Thread|Triggered by Thread|Exception Type|"
    r"Exception Codes|Exception Subtype|Exception Message|Termination Reason|Termination Signal|Terminating Process|"
    r"VM Region Info):\s{0,40}(?P<value>.{0,400})"
)
_PROCESS = regex(r"(?P<name>.{1,60}?) \[(?P<pid>\d{1,10})\]")
_EXCEPTION = regex(r"(?P<type>EXC_[A-Z_]{3,30})(?: \((?P<signal>SIG[A-Z]{2,6})(?P<more>[^)]{0,60}\)?)?\))?")
_REASON = regex(
    r"(?:Namespace )?(?P<namespace>[A-Z][A-Z_]{2,20}), (?:Code )?\[?(?P<code>0x[0-9a-fA-F]{1,16}|\d{1,20})\]?"
    r",? ?(?P<rest>.{0,200})"
)
_THREAD = regex(
    r"\s{0,4}Thread (?P<number>\d{1,6})(?P<crashed> Crashed)?:+\s{0,4}"
    r"(?:Dispatch queue: (?P<queue>\S{1,100})|(?P<name>.{0,60}))"
)
_NAME = regex(r"\s{0,4}Thread (?P<number>\d{1,6}) name:\s{1,4}(?P<name>.{1,100})")
_FRAME = regex(
    r"\s{0,4}(?P<index>\d{1,6})\s{1,4}(?P<module>\S.{0,120}?)\s{1,40}(?P<address>0x[0-9a-f]{1,16}) "
    r"(?P<symbol>.{1,1500}?)(?: \+ (?P<offset>\d{1,12}))?(?: \((?P<file>[^():]{1,120}):(?P<line>\d{1,7})\))?\s*$"
)
_STATE = regex(r"\s{0,4}Thread \d{1,6} crashed with (?:X86|ARM|x86)\S* Thread State")
_REGISTER = regex(r"\b(?P<name>r[a-z0-9]{1,2}|x\d{1,2}|pc|sp|lr|fp): 0x(?P<value>[0-9a-f]{1,16})")
_ERROR = regex(r"Error Code:\s{1,10}0x(?P<value>[0-9a-fA-F]{1,8})")
_ESR = regex(r"esr: 0x[0-9a-f]{1,16}\s{1,4}(?P<said>\(.{1,120})")
_LEVEL = regex(r"\s{0,4}-{4,40}\s{0,4}RECURSION LEVEL (?P<level>\d{1,9})")
_OF_A_REPORT = (_FIELD, _FRAME, _THREAD, _LEVEL)
_IMAGE = regex(
    r"\s{0,20}0x(?P<low>[0-9a-f]{1,16}) -\s{1,20}0x(?P<high>[0-9a-f]{1,16}) [+ ]?(?P<name>[^<(/]{1,200}?)"
    r"(?: \((?P<version>[^()]{1,60})\))?(?: <(?P<uuid>[0-9A-Fa-f-]{32,36})>)? (?P<path>/.{1,1000}?)\s*$"
)
_ENDS = ("Binary Images:", "External Modification Summary", "Model: ", "-----------\nFull Report")
_HEADS = ("Application Specific Information:", "Dyld Error Message:", "Application Specific Signatures:")


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The report around a line that holds a trigger."""
    extent = _extent(lines, index)
    if extent is None:
        return None
    first, last = extent
    report = _report([line.text[:_WIDEST] for line in lines[first : last + 1]], lines[first].number, lines[last].number)
    if report.exception is None and report.namespace is None:
        return None
    return TextReport(KIND, lines[first].number, lines[last].number, crash_of(report), whole=True)


def _extent(lines: Sequence[Line], index: int) -> tuple[int, int] | None:
    """From the report's first field to its list of images; None where a line above has been tried and was not one."""
    first = index
    for at in range(index - 1, max(-1, index - _REACH), -1):
        text = lines[at].text[:_WIDEST]
        if text.startswith(_ENDS):
            break
        if any(trigger in text for trigger in _TRIGGERS):
            return None
        if _FIELD.match(text):
            first = at
            if text.lstrip().startswith("Process:"):
                break
        elif first - at > _GAP:
            break
    last = index
    in_paragraph = False
    for at in range(index + 1, min(len(lines), index + _REACH)):
        text = lines[at].text[:_WIDEST]
        if text.startswith("Binary Images:"):
            return first, _images_end(lines, at)
        if text.startswith(_ENDS) or text.lstrip().startswith("Process:  "):
            break
        in_paragraph = (in_paragraph and bool(text.strip())) or text.startswith((*_HEADS, "VM Region Info:"))
        if in_paragraph or _is_of_a_report(text):
            last = at
        elif at - last > _GAP:
            break
    return first, last


def _is_of_a_report(text: str) -> bool:
    if any(one.match(text) for one in _OF_A_REPORT):
        return True
    return (": 0x" in text and _REGISTER.search(text) is not None) or (
        "Error Code:" in text and _ERROR.search(text) is not None
    )


def _images_end(lines: Sequence[Line], head: int) -> int:
    end = head
    while end + 1 < len(lines) and end - head < _REACH and _IMAGE.match(lines[end + 1].text[:_WIDEST]):
        end += 1
    return end


# ---------------------------------------------------------------- lines -> report


def _report(rows: Sequence[str], first: int, last: int) -> AppleReport:
    report = AppleReport(first=first, last=last)
    details: list[str] = []
    crashed: int | None = None
    for at, row in enumerate(rows):
        match = _FIELD.match(row)
        if match is None:
            if row.startswith(_HEADS):
                said = _paragraph(rows, at + 1)
                if row.startswith("Dyld"):
                    report.namespace, report.reasons = report.namespace or "DYLD", tuple(said)
                else:
                    report.information += tuple(one for one in said if one != "abort() called")
            continue
        name, value = match["name"], match["value"].strip()
        if name in {"Crashed Thread", "Triggered by Thread"}:
            number = re.match(r"\d{1,6}", value)
            crashed = int(number[0]) if number else None
        elif name == "VM Region Info":
            report.region = "\n".join([value, *_paragraph(rows, at + 1)])
        elif name in {"Exception Codes", "Exception Subtype", "Exception Message"}:
            details.append(value)
        elif name == "Termination Reason":
            _add_reason(report, value, _paragraph(rows, at + 1))
        else:
            _add_field(report, name, value)
    report.detail = " ".join(details)[:600]
    _add_threads(report, rows, crashed)
    images = (_IMAGE.match(row) for row in rows)
    report.modules += [found for image in images if image is not None and (found := _module(image)) is not None]
    return report


def _module(image: re.Match[str]) -> Module | None:
    version = (image["version"] or "").split(" - ")[0]
    low, high = int(image["low"], 16), int(image["high"], 16) + 1
    return module(image["path"], low, high, image["uuid"], version if version not in {"", "0", "*", "???"} else None)


def _add_field(report: AppleReport, name: str, value: str) -> None:
    if name == "Process" and (match := _PROCESS.match(value)):
        report.program, report.pid = match["name"].strip(), int(match["pid"])
    elif name == "Path":
        report.path = value or None
    elif name == "Version":
        report.version = value.split(" (", maxsplit=1)[0].strip("? ") or None
    elif name == "Code Type":
        report.cpu = value.replace("(Translated)", "translated by Rosetta 2").replace(" (Native)", "") or None
    elif name == "OS Version":
        report.system = value.split(" (", maxsplit=1)[0].replace("Mac OS X", "macOS")[:40] or None
    elif name == "Exception Type" and (match := _EXCEPTION.match(value)):
        report.exception = match["type"]
        report.signal = match["signal"] or {"EXC_BAD_ACCESS": "SIGSEGV", "EXC_CRASH": "SIGABRT"}.get(match["type"])
    elif name == "Terminating Process" and (match := re.search(r"\[(\d{1,10})\]", value)):
        report.by_itself = report.pid is not None and int(match[1]) == report.pid


def _add_reason(report: AppleReport, value: str, more: Sequence[str]) -> None:
    match = _REASON.match(value)
    if match is None:
        return
    report.namespace, report.code = match["namespace"], match["code"]
    report.indicator = match["rest"].strip(" ,") or None
    if report.namespace == "DYLD":
        report.reasons += tuple(more)


def _paragraph(rows: Sequence[str], start: int) -> list[str]:
    """The lines up to an empty one or the next field."""
    said: list[str] = []
    for row in rows[start : start + 40]:
        if not row.strip() or _FIELD.match(row) or _THREAD.match(row):
            break
        said.append(row.strip())
    return said


# ---------------------------------------------------------------- stacks


def _add_threads(report: AppleReport, rows: Sequence[str], crashed: int | None) -> None:
    names: dict[int, str] = {}
    frames: dict[int, list[Frame]] = {}
    levels: dict[int, list[tuple[int, int]]] = {}
    number: int | None = None
    state = False
    for row in rows:
        if _STATE.match(row):
            number, state = None, True
        elif match := _NAME.match(row):
            names[int(match["number"])] = match["name"].strip()
        elif match := _THREAD.match(row):
            number = int(match["number"])
            frames.setdefault(number, [])
            if match["queue"] or (match["name"] or "").strip():
                names.setdefault(number, (match["queue"] or match["name"]).strip())
            if match["crashed"]:
                crashed = number
        elif number is not None and (match := _LEVEL.match(row)):
            levels.setdefault(number, []).append((int(match["level"]), len(frames[number])))
        elif number is not None and (match := _FRAME.match(row)):
            own = frames[number]
            frame = _frame(match)
            if not own or frame.index > own[-1].index:
                own.append(frame)
        elif state:
            report.registers |= {one["name"]: int(one["value"], 16) for one in _REGISTER.finditer(row)}
            if match := _ERROR.search(row):
                report.error = int(match["value"], 16)
            if match := _ESR.search(row):
                report.abort = match["said"]
    kept = sorted(frames, key=lambda one: (one != crashed, one))[:_THREADS]
    report.threads += [
        _thread(frames[one], names.get(one), levels.get(one, []), crashed=one == crashed) for one in sorted(kept)
    ]
    report.main_crashed = crashed == 0


def _thread(frames: Sequence[Frame], name: str | None, levels: Sequence[tuple[int, int]], *, crashed: bool) -> Thread:
    """The thread; where macOS counted a recursion's levels and shows few of them, its count is the fold's."""
    told = backtrace.thread(frames, name=name, crashed=crashed)
    deepest = max((level for level, _ in levels), default=0)
    if deepest < 4 or any(one.times >= deepest for one in told.folds) or not frames:
        return told
    places = sorted({place for _, place in levels})
    start, end = (places[0], places[1]) if len(places) > 1 else (max(0, places[0] - 1), max(1, places[0]))
    unit = frames[start:end][:_UNIT] or frames[:1]
    fold = Fold(
        period=len(unit),
        times=deepest,
        functions=tuple(frame.function or f"{frame.module}" for frame in unit),
        modules=tuple(frame.module for frame in unit),
        start=unit[0].index,
    )
    return msgspec.structs.replace(told, folds=(fold,))


def _frame(match: re.Match[str]) -> Frame:
    """A frame; where its function has no name, the text has the beginning of its library instead."""
    named = not match["symbol"].startswith("0x")
    return backtrace.native(
        int(match["index"]),
        match["symbol"] if named else None,
        module=match["module"],
        source=match["file"],
        line=backtrace.number(match["line"]),
        address=backtrace.hexadecimal(match["address"]),
        offset=None if named or match["offset"] is None else int(match["offset"]),
    )


READER = TextReader(
    kind=KIND,
    triggers=_TRIGGERS,
    read=read,
    reach=_REACH,
)
