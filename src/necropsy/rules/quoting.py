"""Names from outside as one word of a command that is offered for copying.

A function's name, a path or a test's id comes from a log or from the program that died, and may hold anything. As a
word of a command it is quoted by the rules of the shell that it is for. What no quoting makes harmless in every way of
copying (a line end, an escape, a name that looks like an option) is not offered: a placeholder takes its place.
"""

from __future__ import annotations

import re
import shlex

from necropsy.model import Crash
from necropsy.predicates import on_windows

_BARE = re.compile(r"[\w.:\\/+=~-]+", re.ASCII)
# The command processor (cmd.exe) knows no single quotes, and expands %NAME% between double ones.
_NOT_FOR_CMD = frozenset('&|<>^%!"')

# PowerShell takes the typographic ones for quotes, too.
_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")


def word(text: str, placeholder: str, crash: Crash) -> str:
    """``text`` as one word of a shell's command, or ``placeholder``; for Windows where the process died there."""
    return windows(text, placeholder) if on_windows(crash) else posix(text, placeholder)


def posix(text: str, placeholder: str) -> str:
    """As one word for sh, bash and zsh."""
    return shlex.quote(text) if _can_be_quoted(text) else placeholder


def windows(text: str, placeholder: str) -> str:
    """As one word for PowerShell, and for cmd.exe nothing worse than several words."""
    if not _can_be_quoted(text) or not _NOT_FOR_CMD.isdisjoint(text):
        return placeholder
    return text if _BARE.fullmatch(text) else "'" + _QUOTES.sub(r"\g<0>\g<0>", text) + "'"


def python(text: str) -> str:
    """As a string of Python, raw where that is easier to read."""
    if text.isprintable() and not text.endswith("\\") and not re.search("[\"']", text):
        return f'r"{text}"'
    return ascii(text)


def package(text: str) -> str:
    """A name that pip and conda can have, or ``PACKAGE``."""
    return text if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", text) else "PACKAGE"


def _can_be_quoted(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("-")


_HERE = re.compile(r"(?:unset|export|mv) ")
_NAMED = re.compile(r"\$(\w+)")


def for_windows(command: str) -> str:
    r"""A command for sh as cmd.exe takes it; one of another kind as it is.

    >>> for_windows("unset OMP_NUM_THREADS")
    'set "OMP_NUM_THREADS="'
    >>> for_windows('export CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICE"; unset CUDA_VISIBLE_DEVICE')
    'set "CUDA_VISIBLE_DEVICES=%CUDA_VISIBLE_DEVICE%" & set "CUDA_VISIBLE_DEVICE="'
    """
    if _HERE.match(command) is None:
        return command
    return " & ".join(map(_one, command.split("; ")))


def _one(command: str) -> str:
    verb, *words = shlex.split(command)
    if verb == "unset":
        return " & ".join(f'set "{name}="' for name in words)
    if verb == "export":
        return " & ".join(f'set "{word}"' for word in (_NAMED.sub(r"%\1%", each) for each in words))
    return " ".join(["move", *(f'"{word}"' for word in words)]) if verb == "mv" else command
