"""What Android, Rust and Go print when a process dies in which Python runs beside them.

Android: debuggerd's ``log_signal_summary`` and tombstones
(system/core/debuggerd). Rust: std's stack guard (library/std/src/sys/pal/unix/stack_overflow.rs). Go:
runtime/signal_unix.go and runtime/panic.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace
from necropsy.formats.exit_phrases import sentence
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.signal_codes import code_name
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Address, Crash, Exit, Fault, Frame, Stack

KIND = "runtime"
_BELOW = 60
"""Lines in which a tombstone's backtrace begins."""

_ANDROID = re.compile(
    r"(?:Fatal )?signal (?P<signal>\d{1,2}) \((?P<name>SIG[A-Z]{2,6})\), code (?P<code>-?\d{1,3})"
    r"(?: \((?P<why>[A-Z_]{2,20})[^)]{0,60}\))?"
    r", fault addr (?P<address>0x[0-9a-f]{1,16}|[0-9a-f]{8,16}|-{6,16})?"
    r"(?: (?:in|from) tid (?P<tid>\d{1,8}) \((?P<thread>[^()]{0,40})\))?(?:, pid (?P<pid>\d{1,8}))?"
)
_ANDROID_FRAME = re.compile(
    r"#(?P<index>\d{1,3}) +pc (?P<offset>[0-9a-f]{4,16}) +(?P<module>\S{1,300})"
    r"(?: \((?P<function>.{1,400}?)(?:\+\d{1,8})?\))?(?: \(BuildId.{0,80})?$"
)
_ANDROID_IDS = re.compile(r"pid: (?P<pid>\d{1,8}), tid: (?P<tid>\d{1,8}), name: (?P<name>\S{1,40})")

_RUST = re.compile(r"thread '(?P<name>[^']{0,80})'(?: \(\d{1,10}\))? has overflowed its stack")
_GO = re.compile(
    r"\[signal (?P<signal>SIG[A-Z]{2,6}): [a-z ]{3,60}? code=(?P<code>0x[0-9a-f]{1,8}) "
    r"addr=(?P<address>0x[0-9a-f]{1,16}) pc=(?P<pc>0x[0-9a-f]{1,16})\]"
)


def _of_android(lines: Sequence[Line], index: int) -> TextReport | None:
    line = lines[index]
    if (match := _ANDROID.search(line.text)) is None or signal_name(int(match["signal"])) != match["name"]:
        return None
    code = match["why"] or code_name(match["name"], int(match["code"]))
    address = backtrace.hexadecimal(match["address"]) if match["address"] and "-" not in match["address"] else None
    frames, last = _frames_of_android(lines, index)
    ids = next(
        (found for above in lines[max(0, index - 6) : index] if (found := _ANDROID_IDS.search(above.text))), None
    )
    tid = match["tid"] or (ids["tid"] if ids else None)
    name = match["thread"] or (ids["name"] if ids else None)
    pid = match["pid"] or (ids["pid"] if ids else None)
    thread = None
    if frames or tid:
        thread = backtrace.thread(frames, tid=int(tid) if tid else None, name=name, crashed=True)
    sent = code in {"SI_USER", "SI_TKILL", "SI_QUEUE"}
    fault = Fault(
        signal=match["name"],
        code=code,
        address=None if address is None or sent else Address(address),
        sent_by_itself=True if code == "SI_TKILL" else None,
    )
    crash = Crash(
        pid=int(pid) if pid else None,
        exit=Exit(kind="signaled", signal=match["name"], text=sentence(line.text, match)),
        fault=fault,
        threads=(thread,) if thread is not None else None,
    )
    return TextReport(KIND, line.number, last, crash)


def _frames_of_android(lines: Sequence[Line], index: int) -> tuple[list[Frame], int]:
    """The frames below the signal's line: ``#00 pc 000000000001f3a4  /system/lib64/libc.so (strlen+16)``."""
    frames: list[Frame] = []
    last = lines[index].number
    for line in lines[index + 1 : index + 1 + _BELOW + 3 * len(frames)]:
        match = _ANDROID_FRAME.search(line.text)
        if match is None:
            if frames:
                break
            continue
        if int(match["index"]) != len(frames):
            break
        offset = backtrace.hexadecimal(match["offset"])
        frames.append(backtrace.native(len(frames), match["function"], module=match["module"], offset=offset))
        last = line.number
    return frames, last


def _of_rust(lines: Sequence[Line], index: int) -> TextReport | None:
    """Rust's handler saw a fault in the guard page of the thread's stack; it then ends the process by abort()."""
    line = lines[index]
    if (match := _RUST.search(line.text)) is None:
        return None
    name = match["name"] if match["name"] not in {"", "<unnamed>", "<unknown>"} else None
    crash = Crash(
        exit=Exit(kind="signaled", signal="SIGABRT", text=sentence(line.text, match)),
        fault=Fault(signal="SIGSEGV", handled_first=True),
        threads=(backtrace.thread((), name=name, crashed=True, stack=Stack(guard_hit=True, is_main=name == "main")),),
    )
    return TextReport(KIND, line.number, line.number, crash)


def _of_go(lines: Sequence[Line], index: int) -> TextReport | None:
    line = lines[index]
    if (match := _GO.search(line.text)) is None:
        return None
    address = backtrace.number(match["address"])
    fault = Fault(
        signal=match["signal"],
        code=code_name(match["signal"], int(match["code"], 16)),
        address=None if address is None else Address(address),
    )
    end = Exit(kind="signaled", signal=match["signal"], text=sentence(line.text, match))
    return TextReport(KIND, line.number, line.number, Crash(exit=end, fault=fault))


READERS = (
    TextReader(KIND, (", fault addr ",), _of_android, _BELOW * 4),
    TextReader(KIND, (" has overflowed its stack",), _of_rust, 0),
    TextReader(KIND, ("[signal SIG",), _of_go, 0),
)
