"""Writing to stderr, past Python's buffers, so that nothing the command did to it can cost more than the text."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_VIRTUAL_TERMINAL = 0x4
"""``ENABLE_VIRTUAL_TERMINAL_PROCESSING``."""
SLOW_S = 2.0
"""Seconds; what takes longer shows how far it is."""


def say(line: str) -> None:
    """One line, with every control character in it as an escape, and without the commands that CI services obey."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    write((shown.replace("##", "#\\x23") if "##" in shown and "[" in shown else shown) + "\n")


def write(text: str) -> None:
    """Text to fd 2, whole; nothing happens where the command has closed it or nobody is reading any more."""
    if os.name == "nt" and os.isatty(2):
        _write_to_console(text)
        return
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        try:
            data = data[os.write(2, data) :]
        except BlockingIOError:  # noqa: PERF203 - the command left its terminal non-blocking: wait until there is room
            import select

            if not select.select([], [2], [], 5)[1]:
                return
        except OSError:
            return


def _write_to_console(text: str) -> None:
    """Unicode, because bytes would be decoded with the console's own code page."""
    try:
        with open("CONOUT$", "w", encoding="utf-8", errors="backslashreplace", newline="") as console:  # noqa: PTH123
            console.write(text.replace("\n", "\r\n"))
    except OSError:
        return


def understands_escapes(handle: int) -> bool:
    """The terminal takes escape sequences; Windows' console does from Windows 10 on, once it is asked to."""
    if os.name != "nt":
        return True
    import ctypes
    import msvcrt

    try:
        console = vars(msvcrt)["get_osfhandle"](handle)
        kernel, mode = vars(ctypes)["WinDLL"]("kernel32"), ctypes.c_uint32()
        if not kernel.GetConsoleMode(ctypes.c_void_p(console), ctypes.byref(mode)):
            return False
        return bool(kernel.SetConsoleMode(ctypes.c_void_p(console), mode.value | _VIRTUAL_TERMINAL))
    except OSError:
        return False


_chosen_color: bool | None = None


def choose_color(chosen: bool | None) -> None:
    """Colour always or never, whatever the terminal and the variables say; None leaves it to them."""
    global _chosen_color  # noqa: PLW0603 - there is one command line
    _chosen_color = chosen


def _wants_color(handle: int) -> bool:
    """By ``--color``, or else NO_COLOR, or else FORCE_COLOR, or else the terminal."""
    if _chosen_color is not None:
        return _chosen_color
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in {"", "0"}:
        return True
    return os.isatty(handle) and os.environ.get("TERM") != "dumb" and understands_escapes(handle)


def shape(handle: int = 2) -> tuple[bool, int]:
    """Whether to colour text, and the terminal's columns: 80 if there is none, at most 100 for readability."""
    color = _wants_color(handle)
    if not os.isatty(handle):
        return color, 80
    try:
        columns = os.get_terminal_size(handle).columns
    except OSError:
        columns = 80
    return color, min(max(columns, 40), 100) if columns else 80


def whole_width(handle: int) -> int | None:
    """The columns of the terminal at ``handle``; None where there is none, and lines need no end."""
    if not os.isatty(handle):
        return None
    try:
        return max(os.get_terminal_size(handle).columns, 40)
    except OSError:
        return 80


class Watched(io.RawIOBase):
    """A stream that shows on the terminal how much of it is read, once that takes longer than two seconds."""

    def __init__(self, stream: BinaryIO, name: str, size: int | None, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._stream, self._name, self._size, self._tell = stream, name, size, tell
        self._seen, self._next = 0, time.monotonic() + SLOW_S

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Read as much as fits, and tell of it from time to time."""
        data = self._stream.read(len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        self._seen += len(data)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.2
            self._tell(f"\r\x1b[K{self._line()}")
        return len(data)

    def _line(self) -> str:
        """One terminal line, since a second could not be erased; a long name is cut at its front."""
        share = self._share()
        room = (whole_width(2) or 80) - len(share) - 3
        name = "".join(char if char.isprintable() else "?" for char in self._name)
        if len(name) > room:
            name = f"...{name[len(name) - max(0, room - 3) :]}"
        return f"{name}: {share}"

    def _share(self) -> str:
        read = f"{self._seen / 1e6:,.0f} MB"
        return f"{read} of {self._size / 1e6:,.0f} MB" if self._size else f"{read} read"


@contextmanager
def watched(stream: BinaryIO, name: str, size: int | None) -> Iterator[BinaryIO]:
    """``stream``, with its progress on the terminal where there is one; quiet with ``CI`` or ``NO_COLOR`` set."""
    if not os.isatty(2) or os.environ.get("CI") or os.environ.get("NO_COLOR") or not understands_escapes(2):
        yield stream
        return
    shown: list[str] = []

    def tell(text: str) -> None:
        shown.append(text)
        write(text)

    try:
        yield io.BufferedReader(Watched(stream, name, size, tell), 1 << 20)
    finally:
        if shown:
            write("\r\x1b[K")
