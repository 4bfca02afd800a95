"""Missing symbols that one distribution's library needs from another's.

Python loads extension modules with RTLD_NOW, so one missing symbol makes the import fail. Libraries within one
distribution were built together and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack

import msgspec

from necropsy.doctor import elf
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import has, undefined
from necropsy.model import Library, MissingSymbol

_MOST_SYMBOLS = 200_000
_MOST_MISSING = 20


def with_missing(libraries: tuple[Library, ...], program: str) -> tuple[Library, ...]:
    """The libraries, each that needs one of another distribution with the symbols that it lacks."""
    known = {one.path: one for one in libraries}
    own: dict[str, list[Library]] = {}
    for one in libraries:
        if one.distribution is not None:
            own.setdefault(one.distribution, []).append(one)
    return tuple(_with_missing(one, known, own, program) for one in libraries)


def _with_missing(
    library: Library, known: Mapping[str, Library], own: Mapping[str, list[Library]], program: str
) -> Library:
    needed = [known[need.path] for need in library.needed or () if need.path is not None and need.path in known]
    others = [one for one in needed if one.distribution not in {None, library.distribution}]
    if library.distribution is None or not others or any(need.path is None for need in library.needed or ()):
        return library
    closure = needed_by([library, known[program]] if program in known else [library], known)
    if closure is None:
        return library
    # Packages load their own libraries so that all others see them: those of the others, and its own, as PyTorch's
    # libtorch_nvshmem.so takes what libc10_cuda.so has and does not name it.
    names = dict.fromkeys(one.distribution for one in (*others, library) if one.distribution is not None)
    rest = [more for name in names for more in own[name] if more.path != library.path]
    order = list(dict.fromkeys(one.path for one in (*others, *closure, *rest)))
    try:
        missing = without(library.path, order)
    except (InputError, OSError):
        return library
    if missing is None:
        return library
    wanted_of = tuple(one.path for one in others)
    found = tuple(MissingSymbol(name=name, wanted_of=wanted_of) for name in missing[:_MOST_MISSING])
    return msgspec.structs.replace(library, missing=found)


def needed_by(start: Iterable[Library], known: Mapping[str, Library]) -> list[Library] | None:
    """The libraries and all that they need; None where one of these cannot be found or read."""
    found: dict[str, Library] = {}
    open_ = list(start)
    while open_:
        one = open_.pop(0)
        if one.path in found:
            continue
        if one.needed is None or any(need.path is None or need.path not in known for need in one.needed):
            return None
        found[one.path] = one
        open_ += [known[need.path] for need in one.needed if need.path is not None]
    return list(found.values())


def without(path: str, providers: Iterable[str]) -> list[str] | None:
    """The names that none of ``providers`` has; None where there are too many to look for."""
    with ExitStack() as opened:
        wanted = undefined(opened.enter_context(elf.opened(path)), _MOST_SYMBOLS)
        if wanted is None:
            return None
        # Versions are compared by rules of their own.
        names = [one.name for one in wanted if one.version is None]
        for provider in providers:
            if not names:
                break
            try:
                file: ElfFile = opened.enter_context(elf.opened(provider))
            except InputError:
                continue
            names = [name for name in names if not has(file, name)]
        return names
