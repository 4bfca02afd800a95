"""Windows Error Reporting: crashes in the event viewer, the *stopped working* dialog and ``Report.wer``.

The labels are in the machine's language, the order of the values is not: everything is read by its place. Orders:
Microsoft Learn, *Application Error* event 1000 (name, version, time stamp of program and module, exception code, fault
offset, process id, start time, paths) and the parameters P1 to P9 of APPCRASH and BEX, in which offset and code change
places. Forms in English, German, French, Spanish, Russian, Chinese and Japanese were compared in public threads
(chmistry/ing2ofx#4, pyfa-org/Pyfa#352, knownsec/pocsuite3#54, XX-net/XX-Net#13992, int29h.info).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import (
    ABORTED,
    ACCESS_VIOLATION,
    FAST_FAIL,
    crashed_thread,
    end_of,
    fault_of,
    is_status,
    python_version,
)
from necropsy.lazy_re import regex
from necropsy.model import Address, Crash, Environment, Fault, Frame

KIND = "windows-error-report"
_BACK, _AHEAD = 8, 40
_WIDEST = 2000
"""Characters: an event that was pasted as one line is shorter."""
_NEAR = 80
"""Characters from a version to the end of its time stamp."""

_VERSION = regex(r"(?<![\d.])(\d{1,6}\.\d{1,6}\.\d{1,6}\.\d{1,6})\s*(?=\n|$)")
_VERSION_ANYWHERE = regex(r"\d\.\d{1,6}\.\d{1,6}\.\d")
_COMMA = regex(r"[,\uff0c\u3001]")
_COLON = regex(r"[:\uff1a]")
_HEX = regex(r"(?<![\w.\\-])(?:0x){1,2}([0-9A-Fa-f]{1,16})(?![\w-])")
_PROGRAM = regex(r"([\w.+-]{1,80}\.(?:exe|dll|pyd|ocx|drv|sys|so))$", re.IGNORECASE)
_PATH = regex(r"[A-Za-z]:\\[^\n<>|\"*?]{1,400}")
_EVENT = regex(r"(?:[:\uff1a=>]|^)\s*(APPCRASH|BEX64|BEX)(?:\s|<|$)")
_NUMBERED = regex(r"^\W{0,20}P(\d{1,2})[:\uff1a]\s*(.{0,400})")
_SIGNATURE = regex(r"Sig\[(\d{1,2})\]\.Value=(.{0,400})")
_NAMED = regex(r'<Data Name="(\w{1,40})">([^<]{0,400})')
_UNNAMED = regex(r"<Data>([^<]{0,400})</Data>")
_PLAIN_HEX = regex(r"(?:0x)?([0-9A-Fa-f]{1,16})$")
_MANAGED = regex(r"exception code ([0-9A-Fa-f]{8}), exception address (?:0x)?([0-9A-Fa-f]{8,16})")
_NOWHERE = regex(r"unknown$|StackHash_\w{1,8}$|^$", re.IGNORECASE)
_XML = ("AppName", "AppVersion", "", "ModuleName", "ModuleVersion", "", "ExceptionCode", "FaultingOffset", "ProcessId")

_ABORT_OF_UCRT = {
    ("10.0.19041.", 0x7286E),
    ("10.0.26100.7623", 0xA4ACE),
    ("10.0.26100.8875", 0xA527E),
    ("10.0.26100.9444", 0xA527E),
}
"""Versions of the 64-bit ucrtbase.dll and the offset of ``abort+0x4e``, which WinDbg named in public dumps of each; the
last has the offset of the one before it. The function raises 0xC0000409 with subcode 7 and no other."""


@dataclass(frozen=True)
class _Report:
    """What one report says. Offsets and addresses are numbers."""

    code: int
    program: str = ""
    version: str = ""
    module: str = ""
    module_version: str = ""
    offset: int | None = None
    data: int | None = None
    pid: int | None = None
    path: str | None = None
    event: str | None = None


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The report around a line that holds a trigger."""
    text = lines[index].text
    if "Sig[" in text or "EventType=" in text:
        return _report_wer(lines, index)
    if "<Data" in text:
        return _xml(lines, index)
    if match := _MANAGED.search(text):
        return _managed(lines, index, match)
    if _EVENT.search(text):
        return _signature(lines, index)
    return _event(lines, index)


# ---------------------------------------------------------------- event 1000


def _event(lines: Sequence[Line], index: int) -> TextReport | None:
    """``Faulting application name: python.exe, version: ..., time stamp: 0x...`` and the lines behind it."""
    start = index
    for at in range(index, max(-1, index - _BACK), -1):
        if _entries(lines[at].text[:_WIDEST]):
            start = at
        elif start != index and at < start - 1:
            break
    window = lines[start : start + 14]
    text = "\n".join(line.text[:_WIDEST] for line in window)
    entries = _entries(text)
    if not entries:
        return None
    # A second event may follow: its program is the third name.
    end = entries[2][3] if len(entries) > 2 else len(text)
    _, _, after, _ = entries[min(1, len(entries) - 1)]
    numbers = [match for match in _HEX.finditer(text, after, end) if len(match[1]) in {8, 16} or len(match[1]) < 8]
    code_at = next(
        (at for at, match in enumerate(numbers) if len(match[1]) == 8 and is_status(int(match[1], 16))), None
    )
    if code_at is None:
        return None
    code, *rest = numbers[code_at:]
    names = {"program": entries[0][:2], "module": entries[1][:2] if len(entries) > 1 else ("", "")}
    if len(entries) == 1 and not entries[0][0].lower().endswith(".exe"):
        names = {"program": ("", ""), "module": entries[0][:2]}
    pid = rest[1] if len(rest) > 1 and len(rest[1][1]) <= 8 else None
    path = _PATH.search(text, code.end(), end)
    report = _Report(
        code=int(code[1], 16),
        program=names["program"][0],
        version=names["program"][1],
        module=names["module"][0],
        module_version=names["module"][1],
        offset=int(rest[0][1], 16) if rest and len(rest[0][1]) in {8, 16} else None,
        pid=int(pid[1], 16) if pid else None,
        path=path[0].strip() if path else None,
    )
    last_seen = max(
        [code.end(), *(match.end() for match in rest[:3]), *(m.end() for m in _PATH.finditer(text, code.end(), end))]
    )
    last = start + text.count("\n", 0, last_seen)
    if not start <= index <= last + 4:
        return None
    return _piece(report, lines, start, max(last, index))


def _entries(text: str) -> list[tuple[str, str, int, int]]:
    """The names with a version and a time stamp behind them: name, version, where it ends, where its text begins."""
    found: list[tuple[str, str, int, int]] = []
    if not _VERSION_ANYWHERE.search(text):
        return found
    begin, before, before_at = 0, "", 0
    stops = [match.span() for match in _COMMA.finditer(text)] + [(len(text), len(text))]
    for place, (stop, after) in enumerate(stops):
        part = text[begin:stop]
        version = _VERSION.search(part)
        if version and before:
            end = begin + version.end()
            if begin + len(part.rstrip()) <= end and place + 1 < len(stops):
                # The time stamp stands behind the next comma: it is no exception code.
                stamp = _HEX.search(text, after, after + _NEAR)
                end = stamp.end() if stamp else end
            if name := _name(before):
                found.append((name, version[1], end, before_at + before.find(name)))
        begin, before, before_at = after, part, begin
    return found


def _name(part: str) -> str:
    """``python.exe`` behind its label; French has no colon there."""
    pieces = part.rsplit("\n", 1)[-1].replace("\uff1a", ":").split(":")
    text = pieces[-1].strip().strip("`'\"*|")
    if len(pieces) == 1:
        match = _PROGRAM.search(text)
        return match[1] if match else ""
    return text if len(text) <= 120 else ""


# ---------------------------------------------------------------- APPCRASH and BEX


def _signature(lines: Sequence[Line], index: int) -> TextReport | None:
    """``Problem Event Name: BEX64`` and the values under it, with labels of any language or numbered P1 to P10."""
    event = _EVENT.search(lines[index].text)
    if event is None:
        return None
    numbered: dict[int, tuple[str, int]] = {}
    labelled: list[tuple[str, int]] = []
    for at in range(index + 1, min(len(lines), index + _AHEAD)):
        text = lines[at].text
        if match := _NUMBERED.match(text):
            number = int(match[1])
            if number in numbered:
                break
            numbered[number] = (match[2].strip(), at)
        elif numbered:
            break
        elif len(parts := _COLON.split(text, maxsplit=1)) == 2:
            labelled.append((parts[1].strip(), at))
    values = [numbered.get(number, ("", index)) for number in range(1, 10)] if numbered else labelled[:9]
    report = _of_values([value for value, _ in values], event[1])
    if report is None:
        return None
    head = index - 1 if index and lines[index - 1].text.rstrip().endswith((":", "\uff1a")) else index
    return _piece(report, lines, head, max([index, *(at for _, at in values)]))


def _of_values(values: Sequence[str], event: str | None, pid: int | None = None) -> _Report | None:
    """P7 and P8 swap between APPCRASH and BEX; the one that is an NTSTATUS is the exception code."""
    values = [*values, *[""] * (9 - len(values))]
    code, offset = _number(values[6]), _number(values[7])
    swapped = event in {"BEX", "BEX64"} or not _looks_like_status(values[6])
    if swapped:
        code, offset = offset, code
    if code is None or not is_status(code):
        return None
    return _Report(
        code=code,
        program=values[0],
        version=values[1],
        module=values[3],
        module_version=values[4],
        offset=offset,
        data=_number(values[8]) if swapped else None,
        pid=pid,
        event=event,
    )


def _looks_like_status(value: str) -> bool:
    number = _number(value)
    return number is not None and len(value.removeprefix("0x")) == 8 and is_status(number)


def _number(value: str) -> int | None:
    match = _PLAIN_HEX.fullmatch(value.strip())
    return int(match[1], 16) if match else None


def _report_wer(lines: Sequence[Line], index: int) -> TextReport | None:
    """``Report.wer``: ``EventType=BEX64`` and ``Sig[0].Value=python.exe``."""
    low, high = max(0, index - _AHEAD), min(len(lines), index + _AHEAD)
    event: str | None = None
    values: dict[int, str] = {}
    first = last = index
    for at in range(low, high):
        text = lines[at].text
        if text.startswith("EventType="):
            if at > index:
                break
            event, values, first = text.partition("=")[2].strip(), {}, at
        elif match := _SIGNATURE.search(text):
            values.setdefault(int(match[1]), match[2].removesuffix("<br />").strip())
            last = at
    if event not in {None, "APPCRASH", "BEX", "BEX64"} or 0 not in values:
        return None
    report = _of_values([values.get(number, "") for number in range(9)], event)
    return _piece(report, lines, min(first, index), max(last, index)) if report else None


def _xml(lines: Sequence[Line], index: int) -> TextReport | None:
    """The event as XML; before Windows 10 the values have no names."""
    low, high = max(0, index - _AHEAD), min(len(lines), index + _AHEAD)
    while low < index and "<EventData" not in lines[low].text:
        low += 1
    named: dict[str, str] = {}
    plain: list[str] = []
    last = index
    for at in range(low, high):
        text = lines[at].text
        if "<Data" in text:
            last = at
        named |= {name: value.strip() for name, value in _NAMED.findall(text)}
        plain += [value.strip() for value in _UNNAMED.findall(text)]
        if "</EventData" in text and at >= index:
            last = at
            break
    values = [named.get(name, "") if name else "" for name in _XML] if named else plain[:9]
    if len(values) < 8:
        return None
    pid = _number(values[8]) if len(values) > 8 else None
    report = _of_values(values[:8], "APPCRASH", pid)
    return _piece(report, lines, low, last, path=named.get("AppPath")) if report else None


def _managed(lines: Sequence[Line], index: int, match: re.Match[str]) -> TextReport | None:
    """Event 1026 of .NET, where native code crashed below managed code."""
    code, address = int(match[1], 16), int(match[2], 16)
    if not is_status(code):
        return None
    first, program = index, ""
    for at in range(index - 1, max(-1, index - 5), -1):
        if lines[at].text.lstrip().startswith("Application:"):
            first, program = at, lines[at].text.partition(":")[2].strip()
    thread = crashed_thread(code, [Frame(index=0, kind="native", address=Address(address), found_by="text")])
    environment = Environment(platform="Windows", executable=program or None)
    text = f"exception code {match[1]}"
    crash = Crash(
        exit=end_of(code, text),
        fault=fault_of(code),
        threads=(thread,) if thread else None,
        environment=environment,
    )
    return TextReport(KIND, lines[first].number, lines[index].number, crash)


# ---------------------------------------------------------------- report -> crash


def _piece(report: _Report, lines: Sequence[Line], first: int, last: int, path: str | None = None) -> TextReport:
    abort = _is_abort(report)
    subcode = report.data if report.data is not None else (ABORTED if abort else None)
    parts = [report.event, f"exception code 0x{report.code:08X}"]
    if report.module:
        parts.append(f"in {report.module}" + (f" at offset 0x{report.offset:x}" if report.offset is not None else ""))
    thread = crashed_thread(report.code, _frames(report, abort=abort))
    program = path or report.path or report.program or None
    crash = Crash(
        pid=report.pid,
        exit=end_of(report.code, " ".join(part for part in parts if part), subcode),
        fault=_fault(report),
        threads=(thread,) if thread else None,
        libraries=_libraries(report) or None,
        environment=Environment(
            platform="Windows", python=python_version(report.program, report.version), executable=program
        ),
    )
    return TextReport(KIND, lines[first].number, lines[last].number, crash)


def _is_abort(report: _Report) -> bool:
    if report.module.lower() != "ucrtbase.dll" or report.code != FAST_FAIL:
        return False
    return any(report.module_version.startswith(start) and report.offset == at for start, at in _ABORT_OF_UCRT)


def _frames(report: _Report, *, abort: bool) -> list[Frame]:
    if report.offset is None and not report.module:
        return []
    if _NOWHERE.match(report.module):
        # In no module at all: for a bad access the offset is the program counter itself.
        if report.offset is None or report.code != ACCESS_VIOLATION:
            return []
        return [Frame(index=0, kind="native", address=Address(report.offset), found_by="text")]
    return [
        Frame(
            index=0,
            kind="native",
            function="abort" if abort else None,
            module=report.module,
            module_offset=Address(report.offset) if report.offset is not None else None,
            found_by="text",
        )
    ]


def _fault(report: _Report) -> Fault | None:
    """The fault; BEX gives the kind of access as its data, 8 for execution of what is not code."""
    if report.code != ACCESS_VIOLATION:
        return fault_of(report.code)
    executed = report.data == 8
    nowhere = bool(_NOWHERE.match(report.module))
    if nowhere and (executed or (report.offset is not None and report.offset < 1 << 16)):
        # Windows has no code in its first 64 KiB: a program counter there can only be where the access failed.
        return fault_of(report.code, (8, report.offset) if report.offset is not None else (8,))
    return fault_of(report.code, (report.data,) if report.data is not None else ())


def _libraries(report: _Report) -> dict[str, str]:
    if not report.module or _NOWHERE.match(report.module) or report.module_version in {"", "0.0.0.0"}:  # noqa: S104 - a version
        return {}
    return {report.module: report.module_version} if report.module != report.program else {}


READER = TextReader(
    kind=KIND,
    triggers=(
        "Faulting application name",
        "Faulting module name",
        "Exception code: 0x",
        "0xc00",
        "0xC00",
        "0xe06d7363",
        "0xe0434352",
        "0xc06d00",
        "0x80000003",
        "0x40000015",
        "APPCRASH",
        " BEX",
        "\tBEX",
        "=BEX",
        "Sig[0].Value=",
        '"ExceptionCode">',
        "<Data>c0",
        "<Data>e0",
        "<Data>8000",
        "exception code c0",
        "exception code e0",
    ),
    read=read,
    reach=_AHEAD,
)
