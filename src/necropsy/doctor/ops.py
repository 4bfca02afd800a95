"""The libraries that were named with ``--op``: what they need of a framework, and how they were built."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from necropsy.doctor import elf, instructions, symbols
from necropsy.errors import InputError
from necropsy.formats import op_abi
from necropsy.formats.cpu_features import processor_flags
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import has, undefined
from necropsy.formats.op_abi import NUMPY_ONE, NUMPY_TWO
from necropsy.model import Gap, Library, Op

_PT_GNU_STACK, _PT_GNU_RELRO = 0x6474E551, 0x6474E552
_DT_TEXTREL, _DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1 = 22, 24, 30, 0x6FFFFFFB
_DF_TEXTREL, _DF_BIND_NOW, _DF_1_NOW = 0x4, 0x8, 0x1
_MOST_SYMBOLS = 200_000
_MOST_MISSING = 200
_FORTIFIED = re.compile(r"__\w+_chk$")
_COULD_BE_FORTIFIED = frozenset(["memcpy", "memmove", "memset", "strcpy", "strcat", "sprintf", "snprintf", "read"])


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
            abseil, strings, wanted_strings = _of_tensorflow(libraries, missing) if missing else (None, None, None)
            return Op(
                path=library.path,
                missing=missing,
                wants_abseil=op_abi.abseil_of(missing or ()),
                has_abseil=abseil,
                wants_strings=wanted_strings,
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
    """A framework imported earlier may export its libraries' symbols to all, so these count."""
    known = {one.path: one for one in libraries}
    start = [library, known[program]] if program in known else [library]
    closure = symbols.needed_by(start, known)
    # Nothing was searched for a library of another machine.
    if closure is None or program not in known or library.machine != known[program].machine:
        return None
    first = [one.path for one in closure if one.path != library.path]
    rest = [one.path for one in libraries if one.distribution is not None]
    rest.sort(key=lambda path: not os.path.basename(path).startswith(op_abi.PROVIDERS))
    names = symbols.without(library.path, list(dict.fromkeys((*first, *rest))))
    return None if names is None else tuple(names[:_MOST_MISSING])


def _of_tensorflow(
    libraries: Sequence[Library], missing: Sequence[str]
) -> tuple[str | None, op_abi.Strings | None, op_abi.Strings | None]:
    """TensorFlow's Abseil release and string ABI, and the string ABI of the missing names."""
    paths = [one.path for one in libraries if one.distribution and _is_framework(one.path)]
    with ExitStack() as opened:
        files = [opened.enter_context(elf.opened(one)) for one in sorted(paths, key=os.path.basename, reverse=True)]
        abseil, strings = op_abi.of_framework(files[0]) if files else (None, None)
        return abseil, strings, op_abi.strings_of(missing, lambda name: any(has(one, name) for one in files))


def _is_framework(path: str) -> bool:
    return os.path.basename(path).startswith(op_abi.PROVIDERS)


def _flag(file: ElfFile, tag: int, bit: int) -> bool:
    value = file.tag(tag)
    return value != -1 and bool(value & bit)


def _executable_stack(file: ElfFile) -> bool:
    """The header declares it; without this header, the result differs between machines."""
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


_LARGEST = 64 << 20
"""Bytes; larger files belong to frameworks, which tables cover."""
_CHUNK = 1 << 20


def numpy_generation(path: str) -> int | None:
    """1 or 2; None for a library that does not use it, and for one that is too large or cannot be read."""
    found = False
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                return None
            tail = b""
            while data := file.read(_CHUNK):
                text = tail + data
                if NUMPY_TWO in text:
                    return 2
                found = found or NUMPY_ONE in text
                tail = text[-len(NUMPY_TWO) :]
    except OSError:
        return None
    return 1 if found else None
