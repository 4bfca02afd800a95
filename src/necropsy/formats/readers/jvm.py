"""What a Java virtual machine says when it dies: PySpark, JPype and their like run one beside Python or inside of it.

Format: src/hotspot/share/utilities/vmError.cpp of OpenJDK 8 to 21, on the console and in ``hs_err_pidN.log``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.backtrace import hexadecimal
from necropsy.formats.exit_status import signal_number
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import access_named, end_of, fault_of, is_status
from necropsy.lazy_re import regex
from necropsy.model import Address, Crash, Exit, Fault, Frame, Message, Stack

KIND = "jvm"
_REACH = 600

_DIED = regex(
    r"# {1,3}(?P<name>SIG\w{1,8}|EXCEPTION_\w{1,40}) \((?P<code>0x[0-9a-f]{1,8})\) "
    r"at pc=0x[0-9a-f]{1,16}(?: \([^()]{1,60}\))?, pid=(?P<pid>\d{1,10})(?:, tid=(?P<tid>\d{1,7})\b)?"
)
_ERROR = regex(r"# {1,3}Internal Error \((?P<file>[^():]{1,200}):(?P<line>\d{1,9})\), pid=(?P<pid>\d{1,10})")
_MEMORY = regex(
    r"# (?P<text>Native memory allocation \(\w{1,20}\) failed to \w{1,10} (?P<bytes>\d{1,20}) bytes.{0,200})"
)
_FRAME = regex(
    r"(?:# ?)?[CVvJjA] {1,3}"
    r"(?:\[(?P<module>[^\]+]{1,200})\+(?P<offset>0x[0-9a-f]{1,16})\]|(?P<address>0x[0-9a-f]{1,16}))?"
    r" {0,4}(?P<function>.{0,1000})$"
)
_SIGINFO = regex(
    r"siginfo: ?(?:si_signo: ?\d{1,3} ?\((?P<signal>SIG\w{1,8})\), ?si_code: ?-?\d{1,4} ?\((?P<code>\w{1,20})\)"
    r"(?:, si_addr: ?(?P<address>0x[0-9a-f]{1,16}))?(?:, si_pid: ?(?P<sender>\d{1,10}))?"
    r"|EXCEPTION_ACCESS_VIOLATION \(0x\w{1,8}\), "
    r"(?P<how>reading|writing|data execution prevention violation at) address (?P<where>0x[0-9a-f]{1,16}))"
)
_OFFSET = regex(r"\+0x[0-9a-f]{1,16}$")
_EXECUTES = 8
"""The first parameter of an access violation by data execution prevention."""


@dataclass
class _Report:
    died: re.Match[str] | None = None
    error: re.Match[str] | None = None
    complaint: str | None = None
    memory: tuple[re.Match[str], Line] | None = None
    siginfo: re.Match[str] | None = None
    problematic: Frame | None = None
    frames: list[Frame] = field(default_factory=list)


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The report that begins at the line with the trigger."""
    report, last = _Report(), index
    section = ""
    for at in range(index, min(len(lines), index + _REACH)):
        text = lines[at].text.strip()
        if at > index and "fatal error has been detected by the Java" in text:
            break
        section, known = _take(report, section, text, lines[at])
        if known or text.startswith("#"):
            last = at
    if report.died is None and report.error is None and report.memory is None:
        return None
    return TextReport(kind=KIND, first=lines[index].number, last=lines[last].number, crash=_crash(report, lines[index]))


def _take(report: _Report, section: str, text: str, line: Line) -> tuple[str, bool]:
    if report.died is None and (match := _DIED.match(text)):
        report.died = match
    elif report.error is None and (match := _ERROR.match(text)):
        report.error = match
        return "error", True
    elif match := _MEMORY.match(text):
        report.memory = (match, line)
    elif match := _SIGINFO.match(text):
        report.siginfo = match
    elif text == "# Problematic frame:":
        return "problematic", True
    elif text.startswith("Native frames:"):
        return "frames", True
    elif section == "error" and text.startswith("#") and report.complaint is None:
        report.complaint = text.lstrip("# ") or None
    elif section in {"problematic", "frames"} and (match := _FRAME.match(text)):
        if section == "problematic":
            report.problematic = _frame(match, 0)
            return "", True
        report.frames.append(_frame(match, len(report.frames)))
    elif section == "frames":
        return "", False
    else:
        return section, False
    return section, True


def _frame(match: re.Match[str], index: int) -> Frame:
    name = _OFFSET.sub("", match["function"].strip())
    return backtrace.native(
        index,
        name or None,
        module=match["module"],
        offset=hexadecimal(match["offset"]),
        address=hexadecimal(match["address"]),
    )


def _crash(report: _Report, head: Line) -> Crash:
    frames = report.frames or ([report.problematic] if report.problematic else [])
    end, fault = _death(report)
    stack = (
        Stack(guard_hit=True)
        if end is not None and end.ntstatus is not None and end.ntstatus.value == "0xC00000FD"
        else None
    )
    messages: tuple[Message, ...] = ()
    where = f"log line {head.number}"
    if report.memory is not None:
        match, line = report.memory
        fields = {"text": match["text"].strip(), "bytes": match["bytes"]}
        messages = (
            Message(
                kind="allocation-refused",
                text=line.text.strip(),
                where=f"log line {line.number}",
                line=line.number,
                fields=fields,
            ),
        )
    elif report.error is not None:
        fields = {"level": "F", "file": report.error["file"], "source_line": report.error["line"]}
        fields["what"] = report.complaint or "an internal error of the Java virtual machine"
        messages = (
            Message(kind="fatal-log", text=report.error[0].lstrip("# "), where=where, line=head.number, fields=fields),
        )
    pid = (report.died or report.error or {"pid": None})["pid"]
    tid = int(report.died["tid"]) if report.died is not None and report.died["tid"] else None
    thread = None
    if frames or stack or tid is not None:
        thread = backtrace.thread(frames, tid=tid, crashed=True, cut=not report.frames, stack=stack)
    return Crash(
        pid=int(pid) if pid else None,
        exit=end,
        fault=fault,
        threads=(thread,) if thread is not None else None,
        messages=messages or None,
    )


def _death(report: _Report) -> tuple[Exit | None, Fault | None]:
    if report.died is None:
        aborted = report.error is not None
        return (
            Exit(kind="signaled", signal="SIGABRT", text="Internal Error of the Java virtual machine")
            if aborted
            else None
        ), None
    name, said = report.died["name"], report.died[0].lstrip("# ")
    info = report.siginfo
    address = info["address"] or info["where"] if info is not None else None
    where = Address(int(address, 16)) if address else None
    if name.startswith("SIG"):
        if signal_number(name) is None:
            return None, None
        own = info if info is not None and info["signal"] == name else None
        fault = frame_lines.fault(
            name,
            code=own["code"] if own is not None else None,
            address=where,
            sender=int(own["sender"]) if own is not None and own["sender"] else None,
            pid=int(report.died["pid"]),
        )
        return Exit(kind="signaled", signal=name, text=said), fault
    status = int(report.died["code"], 16)
    if not is_status(status):
        return None, None
    parameters: tuple[int, ...] = ()
    if info is not None and info["how"] and where is not None:
        access = access_named(info["how"])
        parameters = (_EXECUTES if access is None else access, where)
    return end_of(status, said), fault_of(status, parameters)


READER = TextReader(
    kind=KIND,
    triggers=(
        "# A fatal error has been detected by the Java Runtime",
        "# There is insufficient memory for the Java Runtime",
    ),
    read=read,
    reach=_REACH,
)
