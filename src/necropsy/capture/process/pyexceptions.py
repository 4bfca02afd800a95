"""Python's own account of an exception, read from the interpreter's objects while they are still there.

CPython 3.8 to 3.13 on 64 bits (``cpython/pyerrors.h``, ``cpython/traceback.h``, ``internal/pycore_dict.h``,
``Modules/_io/bufferedio.c``, ``Modules/_io/textio.c``). What was raised and not caught is in ``sys.last_exc`` or
``sys.last_value`` from the moment in which it is printed until the interpreter is taken down; what an ``except`` block
works at is in the thread's state. Whatever does not look as it must is left out.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.pyframes import FrameReader
from necropsy.capture.process.pylayouts import Layout
from necropsy.model import Frame

_MOST_CHAINED = 5
_MOST_PLACES = 64
_MOST_ENTRIES = 4096
_LONGEST = 2000
_LONGEST_WRITTEN = 2000
_TYPE_NAME, _TYPE_STR, _TYPE_BASE, _TYPE_DICT = 24, 136, 256, 264
_MOST_BASES = 16
_MOST_ITEMS = 8
_DIGIT = 30
_STARTS = frozenset({"<module>", "_run_module_as_main"})
"""Frames of the program that runs: as long as one of them stands, nothing has come through to the interpreter."""


@dataclass(frozen=True)
class Place:
    """One line of a traceback."""

    file: str
    line: int | None
    function: str


@dataclass(frozen=True)
class Raised:
    """An exception. ``text`` as ``str()`` has it; None where only its own code could tell.

    ``places``: its traceback, the outermost call first. ``because`` is the one that it was raised from, or while it was
    handled (``is_cause``: the former).
    """

    type: str
    text: str | None
    places: tuple[Place, ...] = ()
    because: Raised | None = None
    is_cause: bool = False


@dataclass(frozen=True)
class State:
    """What an interpreter shows at one moment.

    ``uncaught``: nobody has caught ``raised``, the program is over; else an ``except`` block works at it. ``written``:
    what Python wrote to stderr last; None where it is not known, as where stderr has no buffer. ``frames``: what runs
    in the first thread, innermost first.
    """

    raised: Raised | None = None
    uncaught: bool = False
    written: str | None = None
    frames: tuple[Frame, ...] = ()


def traceback_of(raised: Raised) -> str:
    """The text that Python prints of it, without lines of code."""
    lines: list[str] = []
    if raised.because is not None:
        lines.append(traceback_of(raised.because))
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
    lines.append(raised.type + (f": {raised.text}" if raised.text else ""))
    return "\n".join(lines)


class Objects:
    """Reads dictionaries and exceptions of one interpreter."""

    def __init__(self, memory: Memory, frames: FrameReader, runtime: int, layout: Layout, minor: int) -> None:
        """``minor``: 11 for CPython 3.11."""
        self._memory, self._frames, self._layout = memory, frames, layout
        self._runtime, self._minor = runtime, minor
        self._known: dict[int, str | None] = {}
        """Names that were keys, by their addresses: those of a module stay where they are."""

    # ------------------------------------------------------------ the interpreter

    def state(self) -> State:
        """What it shows now; nothing where it has been taken down."""
        interpreter = self._memory.u64(self._runtime + self._layout.interpreters)
        at = self._layout.sys_dict
        names = self._memory.u64(interpreter + at) if interpreter and at is not None else None
        if interpreter is None or not names:
            return State()
        known = self.items(names, ("last_exc", "last_value", "__stderr__"))
        written = self._written(known.get("__stderr__", 0))
        thread = self._main_thread()
        for name in ("last_exc", "last_value"):
            raised = self.exception(known[name]) if name in known else None
            if raised is not None and thread is not None and not self._runs(thread):
                return State(raised, uncaught=True, written=written)
        if thread is None:
            return State(written=written)
        handled = self._handled(thread)
        frames = tuple(itertools.islice(self._frames.frames_of(thread), _MOST_PLACES))
        return State(self.exception(handled) if handled else None, written=written, frames=frames)

    def has_raised(self) -> bool:
        """There is something to be read by ``state``."""
        interpreter = self._memory.u64(self._runtime + self._layout.interpreters)
        at = self._layout.sys_dict
        names = self._memory.u64(interpreter + at) if interpreter and at is not None else None
        if not names:
            return False
        known = self.items(names, ("last_exc", "last_value"))
        if any(self._type_name(one) != "NoneType" for one in known.values()):
            return True
        thread = self._main_thread()
        return thread is not None and self._handled(thread) is not None

    def _main_thread(self) -> int | None:
        """The state of the thread that was first: new ones are put in front of it."""
        return next(iter([*self._frames.threads(self._runtime)][::-1]), None)

    def _runs(self, thread: int) -> bool:
        return any(frame.function in _STARTS for frame in self._frames.frames_of(thread))

    def _handled(self, thread: int) -> int | None:
        """The exception that the innermost ``except`` block of the thread works at."""
        info = self._memory.u64(thread + self._layout.exc_info)
        for _ in range(_MOST_CHAINED):
            if not info:
                return None
            # To 3.10 there are type, value and traceback; then the value alone. The item below comes behind them.
            old = self._minor <= 10
            value = self._memory.u64(info + (8 if old else 0))
            if value and self._type_name(value) not in {None, "NoneType"}:
                return value
            info = self._memory.u64(info + (24 if old else 8))
        return None

    def _written(self, stream: int) -> str | None:
        """What the stream's buffer was given last, and what it has written of it: all. None where it has no buffer."""
        if self._type_name(stream) != "_io.TextIOWrapper":
            return None
        buffered = self._memory.u64(stream + 32)
        if not buffered or self._type_name(buffered) != "_io.BufferedWriter":
            return None
        head = self._memory.exactly(buffered + 56, 16)
        if head is None:
            return None
        at, size = struct.unpack("<Qq", head)
        data = self._memory.some(at, min(size, _LONGEST_WRITTEN)) if size > 0 else b""
        text = data.decode("utf-8", "replace")
        is_text = text and all(char.isprintable() or char in "\n\t\r\x1b" for char in text)
        return text.strip() or None if is_text else None

    # ------------------------------------------------------------ dictionaries

    def items(self, address: int, wanted: tuple[str, ...]) -> dict[str, int]:
        """The addresses of the values of these keys, which are names."""
        keys = self._memory.u64(address + 32)
        found: dict[str, int] = {}
        for key, value in self._entries(keys) if keys else ():
            if not key or not value:
                continue
            name = self._name(key, wanted)
            if name is not None:
                found[name] = value
        return found

    def _entries(self, keys: int) -> Iterator[tuple[int, int]]:
        """Of a ``PyDictKeysObject``: key and value of each entry, the newest first."""
        head = self._memory.exactly(keys, 40)
        if head is None:
            return
        if self._minor <= 10:
            (size,), (count,) = struct.unpack_from("<q", head, 8), struct.unpack_from("<q", head, 32)
            start, width, row = 40, 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4, struct.Struct("<8xQQ")
            indices = size * width
        else:
            count, start, indices = struct.unpack_from("<q", head, 24)[0], 32, 1 << min(head[9], 24)
            row = struct.Struct("<QQ") if head[10] else struct.Struct("<8xQQ")
        if not 0 < count <= _MOST_ENTRIES or not 0 < indices < 1 << 24:
            return
        data = self._memory.exactly(keys + start + indices, count * row.size)
        if data is not None:
            yield from reversed(list(row.iter_unpack(data)))

    def _name(self, key: int, wanted: tuple[str, ...]) -> str | None:
        head = self._memory.exactly(key + 16, 8)
        length = int.from_bytes(head, "little") if head is not None else 0
        fits = [one for one in wanted if len(one) == length]
        if not fits:
            return None
        if key not in self._known:
            self._known[key] = self.text(key)
        text = self._known[key]
        return text if text in fits else None

    # ------------------------------------------------------------ exceptions

    def exception(self, address: int, depth: int = 0) -> Raised | None:
        """The exception at ``address``; None where there is none, or it asks for the program's end (SystemExit)."""
        names = self._names(address)
        if not names or "BaseException" not in names or "SystemExit" in names:
            return None
        old = self._minor <= 10
        fields = self._memory.exactly(address + (32 if old else 40), 25)
        if fields is None:
            return None
        trace, context, cause, suppressed = struct.unpack("<QQQ?", fields)
        other = cause or (context if not suppressed else 0)
        because = self.exception(other, depth + 1) if other and depth < _MOST_CHAINED else None
        raised = Raised(self._full_name(address, names[0]), self._said(address, names), tuple(self._places(trace)))
        return replace(raised, because=because, is_cause=bool(cause)) if because is not None else raised

    def _places(self, trace: int) -> Iterator[Place]:
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
            yield Place(source or "?", line if line > 0 else computed, function or "?")

    def _said(self, address: int, names: tuple[str, ...]) -> str | None:
        """What ``str()`` makes of the exception; None where that takes code of its class that is not known here."""
        known = self._own_str(address)
        arguments = self._tuple(self._memory.u64(address + 24) or 0)
        if arguments is None:
            return None
        base = 64 if self._minor <= 10 else 72
        if "OSError" in names and known in {"OSError", "BaseException"}:
            said = self._of_os_error(address, base)
            if said is not None:
                return said
        if "SyntaxError" in names and arguments:
            return self.text(arguments[0])
        if known not in {"BaseException", "OSError", "KeyError", "ImportError"}:
            return None
        if not arguments:
            return ""
        if len(arguments) == 1:
            is_key = known == "KeyError"
            said = self.text(arguments[0]) if not is_key else None
            return said if said is not None else self._repr(arguments[0])
        shown = [self._repr(one) for one in arguments]
        return f"({', '.join(one for one in shown if one is not None)})" if None not in shown else None

    def _own_str(self, address: int) -> str | None:
        """The outermost base whose ``__str__`` the class has inherited; None where it has one of its own."""
        kind = self._memory.u64(address + 8) or 0
        found, own = None, self._memory.u64(kind + _TYPE_STR)
        for _ in range(_MOST_BASES):
            if not kind or not own or self._memory.u64(kind + _TYPE_STR) != own:
                break
            found = self._name_of_type(kind)
            kind = self._memory.u64(kind + _TYPE_BASE) or 0
        return found

    def _of_os_error(self, address: int, base: int) -> str | None:
        values = self._memory.exactly(address + base, 32)
        if values is None:
            return None
        number, words, *files = struct.unpack("<4Q", values)
        said, code = self.text(words), self._repr(number)
        if said is None or code is None:
            return None
        names = [shown for one in files if one and (shown := self._repr(one)) not in {None, "None"}]
        return f"[Errno {code}] {said}" + (": " + " -> ".join(map(str, names)) if names else "")

    # ------------------------------------------------------------ plain values

    def _tuple(self, address: int) -> tuple[int, ...] | None:
        if self._type_name(address) != "tuple":
            return None
        size = self._memory.u64(address + 16)
        if size is None or size > _MOST_ITEMS:
            return None
        data = self._memory.exactly(address + 24, 8 * size) if size else b""
        return None if data is None else struct.unpack(f"<{size}Q", data)

    def _repr(self, address: int) -> str | None:
        """As ``repr()`` has it, of the plainest types."""
        kind = self._type_name(address)
        if kind == "str":
            text = self.text(address)
            return repr(text) if text is not None else None
        if kind == "int":
            return self._int(address)
        if kind == "float":
            data = self._memory.exactly(address + 16, 8)
            return repr(struct.unpack("<d", data)[0]) if data is not None else None
        if kind == "tuple":
            shown = [self._repr(one) for one in self._tuple(address) or ()]
            comma = "," if len(shown) == 1 else ""
            return f"({', '.join(map(str, shown))}{comma})" if None not in shown else None
        return "None" if kind == "NoneType" else None

    def _int(self, address: int) -> str | None:
        data = self._memory.exactly(address + 16, 16)
        if data is None:
            return None
        tag, low, high = struct.unpack("<qII", data)
        tagged = self._minor >= 12
        count, negative = (tag >> 3, tag & 3 == 2) if tagged else (abs(tag), tag < 0)
        if count > 2:
            return None
        value = (low if count else 0) | (high << _DIGIT if count > 1 else 0)
        return str(-value if negative else value)

    def text(self, address: int) -> str | None:
        """A ``str``, shortened."""
        head = self._memory.exactly(address, 40) if self._type_name(address) == "str" else None
        if head is None:
            return None
        length, _hash, state = struct.unpack_from("<QqI", head, 16)
        width, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if coding is None or not is_compact:
            return None
        start = address + (self._layout.ascii if is_ascii else self._layout.wide)
        data = self._memory.exactly(start, min(length, _LONGEST) * width)
        return None if data is None else data.decode(coding, "replace")

    # ------------------------------------------------------------ types

    def _type_name(self, address: int) -> str | None:
        kind = self._memory.u64(address + 8) if address and address % 8 == 0 else None
        return self._name_of_type(kind) if kind else None

    def _name_of_type(self, kind: int) -> str | None:
        at = self._memory.u64(kind + _TYPE_NAME)
        name = self._memory.c_string(at, 200) if at else None
        return name if name and name.isprintable() else None

    def _names(self, address: int) -> tuple[str, ...]:
        """The names of the object's type and of its bases up to ``object``; none where it is no object."""
        kind = self._memory.u64(address + 8) if address and address % 8 == 0 else None
        found: list[str] = []
        for _ in range(_MOST_BASES):
            name = self._name_of_type(kind) if kind else None
            if kind is None or name is None:
                break
            found.append(name)
            kind = self._memory.u64(kind + _TYPE_BASE)
        return tuple(found) if found and found[-1] == "object" else ()

    def _full_name(self, address: int, name: str) -> str:
        """With its module, as a traceback shows it."""
        kind = self._memory.u64(address + 8) or 0
        names = self._memory.u64(kind + _TYPE_DICT)
        module = self.items(names, ("__module__",)).get("__module__") if names else None
        said = self.text(module) if module else None
        return name if said in {None, "builtins", "__main__"} or "." in name else f"{said}.{name}"
