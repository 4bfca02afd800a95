"""Stacks that a dying program prints of itself: one ``StackForm`` describes each printer, and one function reads them.

The named groups of a form's patterns say what a line holds.

Facts: ``signal`` (SIGSEGV), ``number`` (11) or ``name`` (*Segmentation fault*); ``why`` (SEGV_MAPERR), ``words``
(*address not mapped*) or ``code`` (1); ``address``, ``sender``, ``pid``, ``tid``, ``thread`` (its name) and ``time``;
``pc`` and ``pc_function``, where the signal struck; ``died``, where only that makes it a death; ``status`` of Windows;
``overflowed``, where the stack was used up.

Frames: ``function``, ``module``, ``address``, ``offset`` in the module, ``source`` and ``line``; ``place`` is a source
file, or a module where there is no line; ``index`` must be the number of frames so far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.exit_phrases import sentence
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.siginfo import SENT, WITH_ADDRESS, code_in, code_name
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import STACK_OVERFLOW, end_of, fault_of, is_status
from necropsy.model import Crash, Environment, Exit, Fault, Frame, Stack, Thread

Dialect = re.Pattern[str] | Callable[[str, int], Frame | None]
"""How a frame is printed: a pattern, or a function of the line and the number of frames so far."""
Around = Callable[[Crash, Sequence[Line], int], tuple[Crash, int]]
"""Adds the facts printed around the frames. The lines begin with the form's; the number is that of its last line."""

_NAMES = {
    "Segmentation fault": "SIGSEGV",
    "segfault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "illegal operation": "SIGILL",
    "Floating point exception": "SIGFPE",
}
SIGNAL_NAME = r"(?P<name>Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)"
_ADDRESS = re.compile(r"0x[0-9A-Fa-f]{1,16}$")


@dataclass(frozen=True)
class StackForm:
    """What one printer writes, from the line with the trigger on."""

    kind: str
    triggers: tuple[str, ...]
    facts: tuple[re.Pattern[str], ...] = ()
    frames: tuple[Dialect, ...] = ()
    needs: str = ""
    """The fact by which it is this form; ``signal`` stands for ``number`` and ``name`` too."""
    least: int = 1
    """So many frames do as well; 0: none does."""
    dies: bool = True
    """Whoever prints it dies. Otherwise only if ``died`` or a signal was said."""
    above: tuple[re.Pattern[str], ...] = ()
    """Facts in the ``reach_above`` lines above."""
    reach_above: int = 0
    from_above: bool = False
    """It begins there."""
    owner: re.Pattern[str] | None = None
    """Begins each line of one writer, up to ``rest``; other lines between them are another writer's."""
    end: re.Pattern[str] | None = None
    head: int = 12
    """Lines over which the facts may be spread before the first frame."""
    skip: int = 3
    """Other lines that may stand between two frames."""
    reach: int = 600
    outermost_first: bool = False
    with_handler: bool = True
    """The frames begin with those of the handler."""
    handled: bool = True
    ends: bool = False
    """The line itself says how the process ended."""
    around: Around | None = None

    def reader(self) -> TextReader:
        """The reader of this form."""
        return TextReader(self.kind, self.triggers, self.read, self.reach)

    def read(self, lines: Sequence[Line], index: int) -> TextReport | None:
        """The stack whose trigger is in line ``index``."""
        found = self._gather(lines, index)
        if found is None:
            return None
        is_needed = found.signalled if self.needs == "signal" else self.needs in found.said
        if not is_needed and (not self.least or len(found.frames) < self.least):
            return None
        crash = self._crash(found, lines[index])
        if crash is None:
            return None
        last = found.last
        if self.around is not None:
            crash, last = self.around(crash, lines[found.first : index + self.reach], last - found.first)
            last += found.first
        return TextReport(self.kind, lines[found.first].number, lines[last].number, crash)

    def _gather(self, lines: Sequence[Line], index: int) -> _Found | None:
        owner = self.owner.match(lines[index].text[: backtrace.LONGEST]) if self.owner else None
        if self.owner is not None and owner is None:
            return None
        found = _Found(index, index)
        others = 0
        for at in range(index, min(len(lines), index + self.reach)):
            text = lines[at].text[: backtrace.LONGEST].rstrip()
            if owner is not None and self.owner is not None:
                own = self.owner.match(text)
                text = own["rest"] if own is not None and own.groups()[:-1] == owner.groups()[:-1] else ""
            if self.end is not None and at > index and self.end.search(text):
                found.last = at if owner is not None else found.last
                break
            shown = len(found.frames)
            known = self._take(found, text)
            if known is None:
                break
            if known:
                found.last, others = at, 0
                if shown and shown == len(found.frames):
                    break  # what is said below the frames ends them
                continue
            others += bool(text.strip()) or owner is not None
            if others > self.skip if found.frames else at - index >= self.head:
                break
        for at in range(index - 1, max(-1, index - 1 - self.reach_above), -1):
            text = backtrace.bare(lines[at].text)
            match = next((match for one in self.above if (match := one.search(text))), None)
            if match is not None and found.add(match) and self.from_above:
                found.first = at
        if owner is not None:
            found.said["pid"] = owner["pid"]
        return found

    def _take(self, found: _Found, text: str) -> bool | None:
        """Whether the line belongs to the stack; None for the beginning of another one."""
        if found.frames and frame_lines.MORE.search(text):
            found.cut = True
            return True
        match = next((match for one in self.facts if (match := one.search(text))), None)
        if match is not None:
            return True if found.add(match) else None
        for dialect in self.frames:
            frame = read_frame(dialect, text, len(found.frames))
            if frame is not None:
                found.frames.append(frame)
                return True
        return False

    def _crash(self, found: _Found, line: Line) -> Crash | None:
        said, frames = found.said, found.frames
        if self.outermost_first and "first" not in said:
            frames = frames[::-1]
        crashed = self.dies or found.signalled or "died" in said
        fault: Fault | None = None
        exit_: Exit | None = None
        stack: Stack | None = None
        environment: Environment | None = None
        if found.signalled and (fault := _fault(said, handled=self.handled)) is None:
            return None
        if self.ends and fault is not None:
            exit_ = Exit(kind="signaled", signal=fault.signal, text=sentence(line.text, found.head))
        if "overflowed" in said:
            exit_ = Exit(kind="signaled", signal="SIGABRT", text=sentence(line.text, found.head))
            fault = Fault(signal="SIGSEGV", handled_first=True)
            stack = Stack(guard_hit=True, is_main=said.get("thread") == "main")
        if "status" in said:
            status = int(said["status"], 16)
            if not is_status(status) or not frames:
                return None
            exit_, fault = end_of(status, found.head[0].strip()), fault_of(status)
            stack = Stack(guard_hit=True) if status == STACK_OVERFLOW else None
            environment = Environment(platform="Windows")
        if self.with_handler and crashed:
            counter = None
            if "pc" in said:
                address = backtrace.hexadecimal(said["pc"])
                counter = backtrace.native(0, said.get("pc_function"), address=address)
            frames = frame_lines.without_handler(frames, counter)
            if not frames and fault is None and found.frames:
                return None
        tid = _decimal(said.get("tid"))
        thread: Thread | None = None
        if frames or tid is not None or stack is not None:
            name = None if said.get("thread") in {"", "<unnamed>", "<unknown>"} else said.get("thread")
            if frames:
                thread = backtrace.thread(frames, tid=tid, name=name, crashed=crashed, cut=found.cut, stack=stack)
            else:
                thread = Thread(tid=tid, name=name, crashed=crashed, stack=stack)
        when = _decimal(said.get("time"))
        return Crash(
            pid=_decimal(said.get("pid")),
            at=None if when is None else datetime.fromtimestamp(when, timezone.utc).isoformat(),
            exit=exit_,
            fault=fault,
            threads=(thread,) if thread is not None else None,
            environment=environment,
            gaps=backtrace.gaps(thread) if thread is not None and frames and crashed else (),
        )


@dataclass
class _Found:
    first: int
    last: int
    frames: list[Frame] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    matches: list[re.Match[str]] = field(default_factory=list)
    cut: bool = False

    @property
    def signalled(self) -> bool:
        return any(name in self.said for name in ("signal", "number", "name"))

    @property
    def head(self) -> re.Match[str]:
        return self.matches[0]

    def add(self, match: re.Match[str]) -> bool:
        new = {name: text for name, text in match.groupdict().items() if text is not None and name not in self.said}
        self.said.update(new)
        self.matches.append(match)
        return bool(new)


def read_frame(dialect: Dialect, text: str, count: int) -> Frame | None:
    """The frame in a line that is printed in this dialect."""
    if callable(dialect):
        return dialect(text, count)
    match = dialect.match(backtrace.bare(text))
    return None if match is None else frame_of(match.groupdict(), count)


def frame_of(said: dict[str, str | None], count: int) -> Frame | None:
    """The frame of what a pattern found."""
    if said.get("index") is not None and int(said["index"] or 0) != count:
        return None
    function, address, place = said.get("function"), _address(said.get("address")), said.get("place")
    module, source, line = said.get("module"), said.get("source"), backtrace.number(said.get("line"))
    if function is not None and address is None and _ADDRESS.match(function):
        function, address = None, backtrace.hexadecimal(function)
    if place is not None and "?" not in place:
        module, source = (None, place) if line else (place, None)
    return backtrace.native(
        count,
        function,
        module=module,
        source=source,
        line=line if source else None,
        address=address,
        offset=backtrace.hexadecimal(said.get("offset")),
    )


def _fault(said: dict[str, str], *, handled: bool) -> Fault | None:
    """The fault by the handler's words; None where number and name disagree."""
    signal = said.get("signal") or _NAMES.get(said.get("name", ""), "")
    if "number" in said:
        number = signal_name(int(said["number"]))
        if signal not in {"", number}:
            return None
        signal = number
    code = said.get("why") or code_in(said.get("words", ""))
    if code is None and "code" in said:
        code = code_name(signal, int(said["code"], 16 if said["code"].startswith("0x") else 10))
    address = _address(said.get("address"))
    pid, sender = _decimal(said.get("pid")), _decimal(said.get("sender"))
    # si_addr and the sender's id lie in the same bytes: only of one's own process can one know that it is the sender.
    raised = sender is not None and sender == pid and address is not None and address & 0xFFFFFFFF == sender
    if signal not in WITH_ADDRESS or code in SENT or raised:
        address = None
    sender = sender if raised or (signal not in WITH_ADDRESS and sender) else None
    fault = frame_lines.fault(signal, code=code, address=address, sender=sender, pid=pid)
    return fault if handled else msgspec.structs.replace(fault, handled_first=False)


def _decimal(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _address(text: str | None) -> int | None:
    return 0 if text == "(nil)" else backtrace.hexadecimal(text)
