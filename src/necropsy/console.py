"""Writing to stderr, past Python's buffers, so that nothing the command did to it can cost more than the text."""

from __future__ import annotations

import os


def say(line: str) -> None:
    """One line, with every control character in it as an escape."""
    write("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line) + "\n")


def write(text: str) -> None:
    """Text to fd 2, whole; nothing happens where the command has closed it or nobody is reading any more."""
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


def shape(handle: int = 2) -> tuple[bool, int]:
    """Whether the terminal at ``handle`` wants colour, and its width in columns; (False, 80) where there is none.

    The width is never more than 100: longer lines are hard to read.
    """
    if not os.isatty(handle):
        return False, 80
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
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
