"""Text on a terminal: columns, wrapping, and making harmless what a dying program may have put into it.

Every string that comes from the program (a function's name, a path, a line of its log) goes through ``clean``: a
control character in it would otherwise reach the reader's terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

# They reorder or hide what stands beside them: bidirectional controls, zero-width characters, line and paragraph ends.
_TREACHEROUS = frozenset("\u061c\u200b\u200e\u200f\u2028\u2029\u2060\ufeff" + "".join(map(chr, range(0x202A, 0x202F))))
_TREACHEROUS |= frozenset(map(chr, range(0x2066, 0x206A)))

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"


class Pen:
    """Writes with colour or without it."""

    def __init__(self, *, color: bool) -> None:
        self._color = color

    def __call__(self, text: str, *codes: str) -> str:
        """``text`` in the colours that ``codes`` (parameters of the SGR sequence) name."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._color and codes and text else text


def clean(text: str) -> str:
    r"""The same text in one line: control characters, lone surrogates and reordering marks as ``\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char not in _TREACHEROUS else _escape(char) for char in text)


# GitHub's runner reads a line that begins so as a command to itself, blanks and colours before it or not; its old form
# and those of Azure Pipelines and TeamCity count anywhere in a line.
_AT_START = re.compile(r"^((?:[^\S\n]|\x1b\[[0-9;]*m)*):(?=:)", re.MULTILINE)
_ANYWHERE = re.compile(r"#(?=#(?:\[|vso\[|teamcity\[))")


def without_commands(text: str) -> str:
    r"""The text without lines that the CI service which shows it would obey: ``::error::`` as ``\x3a:error::``."""
    return _ANYWHERE.sub(r"\\x23", _AT_START.sub(r"\1\\x3a", text))


def lines_of(text: str) -> Iterator[str]:
    """The lines of ``text``, each clean, tabs as spaces; a progress bar's earlier states are left out."""
    for line in text.replace("\r\n", "\n").split("\n"):
        yield clean(line.rstrip("\r").rsplit("\r", 1)[-1].expandtabs(4))


def _escape(char: str) -> str:
    if char == "\n":
        return "\\n"
    if char == "\t":
        return " "
    return ascii(char)[1:-1] if ord(char) > 0x7E or not char.isprintable() else char


def columns(text: str) -> int:
    """How many columns ``text`` takes: two for the wide characters of East Asia, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, its end left out for ``...`` where it is longer."""
    if columns(text) <= width:
        return text
    return _head(text, max(0, width - 3)) + "..."[: max(0, width)]


def one_line(words: Sequence[str], width: int) -> str:
    """A command in one line, line breaks and tabs as spaces, cut to ``width`` columns."""
    return cut(clean(" ".join(" ".join(words).split())), width)


def cut_path(path: str, width: int) -> str:
    """Cut a path to ``width`` columns at its front, because the file's name is at its end.

    A partial folder name is dropped too unless that costs more than a quarter of the width.
    """
    if columns(path) <= width:
        return path
    tail = _head(path[::-1], max(0, width - 3))[::-1]
    whole = tail.find("/")
    return "..." + (tail[whole:] if 0 < whole <= len(tail) // 4 else tail)


def _head(text: str, width: int) -> str:
    taken = 0
    for place, char in enumerate(text):
        taken += _columns_of(char)
        if taken > width:
            return text[:place]
    return text


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Wrap to ``width`` columns, with prefixes ``first`` and ``rest`` (spaces by default); long words are broken."""
    indent = " " * columns(first) if rest is None else rest
    lines: list[str] = []
    line, begun = first, False
    for word in map(clean, text.split()):
        while True:
            room = width - columns(line) - (1 if begun else 0)
            if columns(word) <= room:
                line += (" " if begun else "") + word
                begun = True
                break
            if begun:
                lines.append(line)
                line, begun = indent, False
                continue
            head = _head(word, max(1, room))
            lines.append(line + head)
            word = word[len(head) :]  # noqa: PLW2901 - what is left of it
            line = indent
            if not word:
                break
    if begun or not lines:
        lines.append(line)
    return [one.rstrip() for one in lines]


def shortened(lines: list[str], most: int, width: int) -> list[str]:
    """At most ``most`` lines; where some are left out, the last one ends with ``...``."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], cut(f"{lines[most - 1].rstrip('.,;:')} ...", width)]


def command_lines(command: str, width: int, indent: str) -> list[str]:
    r"""A command to copy: never broken inside quotes or a word, elsewhere continued by ``\`` as a shell reads it."""
    lines = []
    for part in command.splitlines():
        text = clean(part)
        fits = len(indent) + len(text) <= width
        if fits or "'" in text or '"' in text or max(map(len, text.split())) > width - 2 - len(indent) - 4:
            lines.append(indent + text)
            continue
        broken = wrap(text, width - 2, first=indent, rest=indent + "    ")
        lines += [f"{line} \\" for line in broken[:-1]] + broken[-1:]
    return lines


_OPENING, _CLOSING = "([{“", ")]}”"


def parted(text: str) -> tuple[str, str | None]:
    """The first statement and the rest or None, split at a full stop or semicolon outside brackets and quotes."""
    depth, quoted = 0, False
    for place, char in enumerate(text[:-2]):
        if char in '`"':
            quoted = not quoted
        depth += (char in _OPENING) - (char in _CLOSING)
        follows = text[place + 2]
        if quoted or depth > 0 or text[place + 1] != " ":
            continue
        if char == ";" or (char == "." and (follows.isupper() or follows == "`")):
            rest = text[place + 2 :]
            return text[:place] + ".", rest[:1].upper() + rest[1:]
    return text, None


def size(octets: float) -> str:
    """Bytes in the unit that people think in, three digits: ``128 B``, ``1.91 MiB``, ``8 MiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets >= scale:
            return f"{float(f'{octets / scale:.3g}'):,g} {unit}"
    return f"{round(octets, 1):g} B"


def bar(used: int, whole: int, width: int) -> str:
    """``[#####-----]`` to scale; a stack that is full is full to the last cell, and only that one."""
    cells = max(1, width - 2)
    filled = cells if used >= whole else min(cells - 1, round(used / whole * cells))
    return "[" + "#" * filled + "-" * (cells - filled) + "]"


def file_name(path: str) -> str:
    """The last part of a path of Linux or of Windows."""
    return re.split(r"[/\\]", path)[-1]
