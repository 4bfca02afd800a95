"""Python exceptions, read from the interpreter's objects while they still exist.

CPython 3.8 to 3.13 on 64 bits (``cpython/pyerrors.h``, ``cpython/traceback.h``, ``internal/pycore_dict.h``,
``Modules/_io/bufferedio.c``, ``Modules/_io/textio.c``). An uncaught exception is in ``sys.last_exc`` or
``sys.last_value`` from when it is printed until the interpreter is taken down; one that an ``except`` block handles is
in the thread's state. Anything unexpected is left out.
"""

from __future__ import annotations

import itertools
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from necropsy.capture.process.cpython_frames import FrameReader
from necropsy.capture.process.cpython_offsets import Layout
from necropsy.capture.process.cpython_values import MOST_BASES, Values
from necropsy.capture.process.memory import Memory
from necropsy.model import Frame

_MOST_CHAINED = 5
_MOST_PLACES = 64
_LONGEST_WRITTEN = 2000
_TYPE_STR, _TYPE_BASE, _TYPE_DICT = 136, 256, 264
_STARTS = frozenset({"<module>", "_run_module_as_main"})
"""Frames of the program that runs: as long as one of them stands, nothing has come through to the interpreter."""


@dataclass(frozen=True)
class TracebackEntry:
    """One line of a traceback."""

    file: str
    line: int | None
    function: str


@dataclass(frozen=True)
class RaisedException:
    """An exception; ``text``: its ``str()``, None where only its own code could tell; ``places``: outermost call first.

    ``because``: the one that it was raised from (``is_cause``), or while it was handled.
    """

    type: str
    text: str | None
    places: tuple[TracebackEntry, ...] = ()
    because: RaisedException | None = None
    is_cause: bool = False


@dataclass(frozen=True)
class InterpreterAddresses:
    """The exceptions of an interpreter at one moment.

    ``uncaught``: ``raised`` was not caught, the program is over; else an ``except`` block handles it. ``written``: what
    Python last wrote to stderr; None where unknown, as where stderr has no buffer. ``frames``: of the first thread,
    innermost first.
    """

    raised: RaisedException | None = None
    uncaught: bool = False
    written: str | None = None
    frames: tuple[Frame, ...] = ()


def traceback_of(raised: RaisedException, code_at: Callable[[str, int], str | None] = lambda _file, _line: None) -> str:
    """The text that Python prints of it, with the lines of code that ``code_at`` knows (of a file and a number)."""
    lines: list[str] = []
    if raised.because is not None:
        lines.append(traceback_of(raised.because, code_at))
        between = (
            "The above exception was the direct cause of the following exception:"
            if raised.is_cause
            else "During handling of the above exception, another exception occurred:"
        )
        lines.append(f"\n{between}\n")
    if raised.places:
        lines.append("Traceback (most recent call last):")
        for place in raised.places:
            at = f", line {place.line}" if place.line is not None else ""
            lines.append(f'  File "{place.file}"{at}, in {place.function}')
            code = code_at(place.file, place.line) if place.line is not None else None
            lines += [f"    {code}"] if code else []
    lines.append(raised.type + (f": {raised.text}" if raised.text else ""))
    return "\n".join(lines)


class Objects(Values):
    """Reads the exceptions of one interpreter."""

    def __init__(self, memory: Memory, frames: FrameReader, runtime: int, layout: Layout, minor: int) -> None:
        """``minor``: 11 for CPython 3.11."""
        super().__init__(memory, layout, minor)
        self._frames, self._runtime = frames, runtime

    # ------------------------------------------------------------ the interpreter

    def state(self) -> InterpreterAddresses:
        """What it shows now; nothing where it has been taken down."""
        interpreter = self._memory.u64(self._runtime + self._layout.interpreters)
        at = self._layout.sys_dict
        names = self._memory.u64(interpreter + at) if interpreter and at is not None else None
        if interpreter is None or not names:
            return InterpreterAddresses()
        known = self.items(names, ("last_exc", "last_value", "__stderr__"))
        written = self._written(known.get("__stderr__", 0))
        thread = self._main_thread()
        for name in ("last_exc", "last_value"):
            raised = self.exception(known[name]) if name in known else None
            if raised is not None and thread is not None and not self._runs(thread):
                return InterpreterAddresses(raised, uncaught=True, written=written)
        if thread is None:
            return InterpreterAddresses(written=written)
        handled = self._handled(thread)
        frames = tuple(itertools.islice(self._frames.frames_of(thread), _MOST_PLACES))
        return InterpreterAddresses(self.exception(handled) if handled else None, written=written, frames=frames)

    def has_raised(self) -> bool:
        """There is something to be read by ``state``."""
        interpreter = self._memory.u64(self._runtime + self._layout.interpreters)
        at = self._layout.sys_dict
        names = self._memory.u64(interpreter + at) if interpreter and at is not None else None
        if not names:
            return False
        known = self.items(names, ("last_exc", "last_value"))
        if any(self.type_name(one) != "NoneType" for one in known.values()):
            return True
        thread = self._main_thread()
        return thread is not None and self._handled(thread) is not None

    def _main_thread(self) -> int | None:
        """The state of the first thread: new ones are put in front of it."""
        return next(iter([*self._frames.threads(self._runtime)][::-1]), None)

    def _runs(self, thread: int) -> bool:
        return any(frame.function in _STARTS for frame in self._frames.frames_of(thread))

    def _handled(self, thread: int) -> int | None:
        """The exception that the innermost ``except`` block of the thread handles."""
        info = self._memory.u64(thread + self._layout.exc_info)
        for _ in range(_MOST_CHAINED):
            if not info:
                return None
            # To 3.10 there are type, value and traceback; then the value alone. The item below comes behind them.
            old = self._minor <= 10
            value = self._memory.u64(info + (8 if old else 0))
            if value and self.type_name(value) not in {None, "NoneType"}:
                return value
            info = self._memory.u64(info + (24 if old else 8))
        return None

    def _written(self, stream: int) -> str | None:
        """The stream buffer's last content, where all was written; None without a buffer."""
        if self.type_name(stream) != "_io.TextIOWrapper":
            return None
        buffered = self._memory.u64(stream + 32)
        if not buffered or self.type_name(buffered) != "_io.BufferedWriter":
            return None
        head = self._memory.exactly(buffered + 56, 16)
        if head is None:
            return None
        at, size = struct.unpack("<Qq", head)
        data = self._memory.some(at, min(size, _LONGEST_WRITTEN)) if size > 0 else b""
        text = data.decode("utf-8", "replace")
        is_text = text and all(char.isprintable() or char in "\n\t\r\x1b" for char in text)
        return text.strip() or None if is_text else None

    # ------------------------------------------------------------ exceptions

    def exception(self, address: int, depth: int = 0) -> RaisedException | None:
        """The exception at ``address``; None where there is none, or it asks for the program's end (SystemExit)."""
        names = self.names_of_types(address)
        if not names or "BaseException" not in names or "SystemExit" in names:
            return None
        old = self._minor <= 10
        fields = self._memory.exactly(address + (32 if old else 40), 25)
        if fields is None:
            return None
        trace, context, cause, suppressed = struct.unpack("<QQQ?", fields)
        other = cause or (context if not suppressed else 0)
        because = self.exception(other, depth + 1) if other and depth < _MOST_CHAINED else None
        raised = RaisedException(
            self._full_name(address, names[0]), self._said(address, names), tuple(self._places(trace))
        )
        return replace(raised, because=because, is_cause=bool(cause)) if because is not None else raised

    def _places(self, trace: int) -> Iterator[TracebackEntry]:
        for _ in range(_MOST_PLACES):
            data = self._memory.exactly(trace + 8, 32) if trace else None
            if data is None:
                return
            _, trace, frame, last, line = struct.unpack("<QQQii", data)
            if self._minor >= 11:
                inner = self._memory.u64(frame + 24)
                code = self._memory.u64(inner + self._layout.code) if inner else None
            else:
                code = self._memory.u64(frame + self._layout.code)
            found = self._frames.place(code or 0, last)
            if found is None:
                return
            function, source, computed = found
            yield TracebackEntry(source or "?", line if line > 0 else computed, function or "?")

    def _said(self, address: int, names: tuple[str, ...]) -> str | None:
        """The exception's ``str()``; None where that takes code of its class that is not known here."""
        known = self._own_str(address)
        arguments = self.tuple_of(self._memory.u64(address + 24) or 0)
        if arguments is None:
            return None
        base = 64 if self._minor <= 10 else 72
        if "OSError" in names and known in {"OSError", "BaseException"}:
            said = self._of_os_error(address, base)
            if said is not None:
                return said
        if names[0] == "CalledProcessError":
            return self._of_called_process(address)
        if "SyntaxError" in names and arguments:
            return self.text(arguments[0])
        if known not in {"BaseException", "OSError", "KeyError", "ImportError"}:
            return None
        if not arguments:
            return ""
        if len(arguments) == 1:
            is_key = known == "KeyError"
            said = self.text(arguments[0]) if not is_key else None
            return said if said is not None else self.repr_of(arguments[0])
        shown = [self.repr_of(one) for one in arguments]
        return f"({', '.join(one for one in shown if one is not None)})" if None not in shown else None

    def _own_str(self, address: int) -> str | None:
        """The outermost base whose ``__str__`` the class has inherited; None where it has one of its own."""
        kind = self._memory.u64(address + 8) or 0
        found, own = None, self._memory.u64(kind + _TYPE_STR)
        for _ in range(MOST_BASES):
            if not kind or not own or self._memory.u64(kind + _TYPE_STR) != own:
                break
            found = self.name_of_type(kind)
            kind = self._memory.u64(kind + _TYPE_BASE) or 0
        return found

    def _of_os_error(self, address: int, base: int) -> str | None:
        values = self._memory.exactly(address + base, 32)
        if values is None:
            return None
        number, words, *files = struct.unpack("<4Q", values)
        said, code = self.text(words), self.repr_of(number)
        if said is None or code is None:
            return None
        names = [shown for one in files if one and (shown := self.repr_of(one)) not in {None, "None"}]
        return f"[Errno {code}] {said}" + (": " + " -> ".join(map(str, names)) if names else "")

    def _of_called_process(self, address: int) -> str | None:
        """As ``subprocess.CalledProcessError`` says it."""
        names = self._memory.u64(address + 16)
        found = self.items(names, ("returncode", "cmd")) if names else {}
        code, command = self.int_of(found.get("returncode", 0)), self.repr_of(found.get("cmd", 0))
        if code is None or command is None:
            return None
        said = command if command.startswith("[") else command[1:-1]
        if not code.startswith("-"):
            return f"Command '{said}' returned non-zero exit status {code}."
        try:
            return f"Command '{said}' died with <Signals.{signal.Signals(-int(code)).name}: {code[1:]}>."
        except ValueError:
            return f"Command '{said}' died with unknown signal {code[1:]}."

    def _full_name(self, address: int, name: str) -> str:
        kind = self._memory.u64(address + 8) or 0
        names = self._memory.u64(kind + _TYPE_DICT)
        module = self.items(names, ("__module__",)).get("__module__") if names else None
        said = self.text(module) if module else None
        return name if said in {None, "builtins", "__main__"} or "." in name else f"{said}.{name}"
