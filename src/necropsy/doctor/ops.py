"""The libraries that were named with ``--op``: what they need of a framework, and how they were built."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from necropsy.doctor import elf, instructions, symbols
from necropsy.errors import InputError
from necropsy.formats.cpu_features import processor_flags
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import undefined
from necropsy.model import Gap, Library, Op

_PT_GNU_STACK, _PT_GNU_RELRO = 0x6474E551, 0x6474E552
_DT_STRTAB, _DT_STRSZ, _DT_TEXTREL, _DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1 = 5, 10, 22, 24, 30, 0x6FFFFFFB
_DF_TEXTREL, _DF_BIND_NOW, _DF_1_NOW = 0x4, 0x8, 0x1
_MOST_SYMBOLS = 200_000
_MOST_MISSING = 200
_ABSEIL = re.compile(r"lts_(?P<release>\d{8})")
_IN_FILE = b"4absl12lts_"
_PROVIDERS = ("libtensorflow_framework.so", "libtensorflow_cc.so")
_FORTIFIED = re.compile(r"__\w+_chk$")
_COULD_BE_FORTIFIED = frozenset(["memcpy", "memmove", "memset", "strcpy", "strcat", "sprintf", "snprintf", "read"])
# What is skipped to leave the types of a mangled name: literals, substitutions with a number, template parameters.
_TOKEN = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T[0-9A-Z]*_|\d+")


def look(libraries: Sequence[Library], program: str) -> tuple[tuple[Op, ...], tuple[Gap, ...]]:
    """Each library of the user's own, and what could not be looked at."""
    gaps: list[Gap] = []
    found = tuple(_op(one, libraries, program, gaps) for one in libraries if one.is_op)
    return found, tuple(gaps)


def _op(library: Library, libraries: Sequence[Library], program: str, gaps: list[Gap]) -> Op:
    name = os.path.basename(library.path)
    try:
        with elf.opened(library.path) as file:
            wanted = [one.name for one in undefined(file, _MOST_SYMBOLS) or ()]
            missing = _missing(library, libraries, program)
            if missing is None:
                gaps.append(Gap(part=f"symbols of {name}", why="not all libraries that it needs were found"))
            unsupported, why = instructions.unsupported(file, wanted, processor_flags())
            if why is not None:
                gaps.append(Gap(part=f"instructions of {name}", why=why))
            abseil, strings = _of_tensorflow(libraries) if missing else (None, None)
            return Op(
                path=library.path,
                missing=missing,
                wants_abseil=tuple(
                    sorted({each["release"] for one in missing or () for each in _ABSEIL.finditer(one)})
                ),
                has_abseil=abseil,
                wants_strings=_strings(missing or ()),
                has_strings=strings,
                unsupported=unsupported,
                executable_stack=_executable_stack(file),
                text_relocations=file.tag(_DT_TEXTREL) != -1 or _flag(file, _DT_FLAGS, _DF_TEXTREL),
                unprotected=tuple(_unprotected(file, wanted)),
            )
    except (InputError, OSError) as error:
        gaps.append(Gap(part=f"the library {name}", why=str(error)))
        return Op(path=library.path)


def _missing(library: Library, libraries: Sequence[Library], program: str) -> tuple[str, ...] | None:
    """A framework that was imported before may have made its libraries visible to all: these count too."""
    known = {one.path: one for one in libraries}
    start = [library, known[program]] if program in known else [library]
    closure = symbols.needed_by(start, known)
    # Nothing was searched for a library of another machine.
    if closure is None or program not in known or library.machine != known[program].machine:
        return None
    first = [one.path for one in closure if one.path != library.path]
    rest = [one.path for one in libraries if one.distribution is not None]
    rest.sort(key=lambda path: not os.path.basename(path).startswith(_PROVIDERS))
    names = symbols.without(library.path, list(dict.fromkeys((*first, *rest))))
    return None if names is None else tuple(names[:_MOST_MISSING])


def _of_tensorflow(libraries: Sequence[Library]) -> tuple[str | None, Literal["old", "new"] | None]:
    """Abseil's release and the string ABI in the names that the installed TensorFlow's library has."""
    path = next((one.path for one in libraries if one.distribution and _is_framework(one.path)), None)
    if path is None:
        return None, None
    with elf.opened(path) as file:
        start, size = file.offset_of(file.tag(_DT_STRTAB)), file.tag(_DT_STRSZ)
        if start is None or size <= 0:
            return None, None
        at = file.find(_IN_FILE, start, size)
        release = file.bytes_at(at + len(_IN_FILE), 8).decode("ascii", "replace") if at >= 0 else None
        strings: Literal["old", "new"] = "new" if file.find(b"cxx11", start, size) >= 0 else "old"
        return release if release and release.isdigit() else None, strings


def _is_framework(path: str) -> bool:
    return os.path.basename(path).startswith(_PROVIDERS[0])


def _strings(names: Sequence[str]) -> Literal["old", "new"] | None:
    """The string ABI that C++ names were made with; None where no name has a string, or they do not agree."""
    new = any("__cxx11" in one or "B5cxx11" in one for one in names)
    old = any("Ss" in _types(one) for one in names if one.startswith("_Z"))
    return None if new == old else "new" if new else "old"


def _types(name: str) -> str:
    """A mangled name without the identifiers in it."""
    found, at = [], 2
    while at < len(name):
        token = _TOKEN.match(name, at)
        if token is None:
            found.append(name[at])
            at += 1
        else:
            at = token.end() + (int(token[0][:5]) if token[0].isdigit() else 0)
            found.append(" ")
    return "".join(found)


def _flag(file: ElfFile, tag: int, bit: int) -> bool:
    value = file.tag(tag)
    return value != -1 and bool(value & bit)


def _executable_stack(file: ElfFile) -> bool:
    """Its header says so. A library without this header says nothing: what happens then differs between machines."""
    return any(one.type == _PT_GNU_STACK and one.flags & 1 for one in file.segments)


def _unprotected(file: ElfFile, wanted: Sequence[str]) -> Iterator[str]:
    names = set(wanted)
    if not any(name.startswith("__stack_chk_fail") for name in names):
        yield "stack protector"
    now = file.tag(_DT_BIND_NOW) != -1 or _flag(file, _DT_FLAGS, _DF_BIND_NOW) or _flag(file, _DT_FLAGS_1, _DF_1_NOW)
    if not now or not any(one.type == _PT_GNU_RELRO for one in file.segments):
        yield "full RELRO"
    fortified = any(_FORTIFIED.match(name) for name in names - {"__stack_chk_fail"})
    if not fortified and names & _COULD_BE_FORTIFIED:
        yield "_FORTIFY_SOURCE"
