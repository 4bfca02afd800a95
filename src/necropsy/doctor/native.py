"""Native libraries of checked distributions, and what the loader would choose for each library they need.

Headers and dynamic sections are read, and the loader's search is repeated (``loader``); nothing is loaded. Libraries
already loaded by the interpreter or LD_PRELOAD are not searched again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.doctor import elf
from necropsy.doctor.loader import LibraryPlace, Loader, expand, folders
from necropsy.errors import InputError
from necropsy.formats.elf_dynamic import MACHINES, Dynamic, dynamic
from necropsy.model import Interpreter, Library, Needed, Preload, VersionNeed

_MAGIC = {b"MZ": "win32", b"\xcf\xfa\xed\xfe": "darwin", b"\xce\xfa\xed\xfe": "darwin", b"\xca\xfe\xba\xbe": "darwin"}
_LOADER = ("ld-linux", "ld64.so", "linux-vdso", "linux-gate")


@dataclass
class _One:
    path: str
    distribution: str | None
    read: Dynamic | None
    machine: str | None = None
    system: str | None = None
    needed: list[Needed] | None = None
    is_op: bool = False
    asked_by: set[str] = field(default_factory=set)
    """Paths of libraries that need it and whose RPATH applies to it too."""


class Libraries:
    """All libraries that were looked at, by their path."""

    def __init__(
        self, interpreter: Interpreter, variables: Mapping[str, str], provided: Mapping[str, Sequence[str]]
    ) -> None:
        """``provided``: files of the same installation by name, which packages load by their path."""
        self._all: dict[str, _One] = {}
        self._provided = provided
        self._machine = interpreter.machine or ""
        self.loader = Loader(self._machine, folders(variables.get("LD_LIBRARY_PATH", "")))
        self._loaded: dict[str, str] = {}
        self._executable_rpaths: tuple[tuple[str, str], ...] = ()
        self.preload = tuple(self._preloads(variables.get("LD_PRELOAD", "")))
        program = os.path.realpath(interpreter.executable)
        for path in (*(one.path for one in self.preload if one.path), program):
            self._load(path)
        read = self._all[program].read
        if read is not None:
            self._executable_rpaths = tuple((one, os.path.dirname(program)) for one in read.rpath)
        self.program = program

    def _preloads(self, value: str) -> Iterator[Preload]:
        for entry in value.replace(":", " ").split():
            expanded = expand(entry, "")
            if "/" in entry:
                found = expanded if os.path.isfile(expanded) else None
            else:
                place, _ = self.loader.find(entry, "", (), ())
                found = place.path if place is not None else None
            yield Preload(entry=entry, path=found)

    def _load(self, path: str) -> None:
        """``path`` and all it needs are loaded at the start."""
        open_ = [path]
        while open_:
            one = self._look(open_.pop(0), None)
            soname = one.read.soname if one.read is not None else None
            for name in {os.path.basename(one.path), soname or os.path.basename(one.path)}:
                self._loaded.setdefault(name, one.path)
            open_ += [path for path in self._resolve(one) if path not in self._all]

    def add(self, distribution: str, paths: Iterable[str]) -> None:
        """Look at the libraries of a distribution and, of the system, at what they need."""
        open_ = [self._look(path, distribution) for path in paths]
        while open_:
            one = open_.pop()
            if one.needed is not None:
                continue
            open_ += [self._look(path, None) for path in self._resolve(one)]

    def add_ops(self, paths: Iterable[str]) -> None:
        """Look at libraries of the user's own, which are loaded after the frameworks."""
        for path in map(os.path.abspath, paths):
            self._look(path, None).is_op = True
            open_ = [path]
            while open_:
                one = self._look(open_.pop(), None)
                if one.needed is None:
                    open_ += self._resolve(one)

    def _look(self, path: str, distribution: str | None) -> _One:
        one = self._all.get(path)
        if one is None:
            one = self._all[path] = _One(path, distribution, None)
            try:
                with elf.opened(path) as file:
                    one.machine, one.system = MACHINES.get(file.machine, str(file.machine)), "linux"
                    one.read = dynamic(file)
            except InputError:
                one.machine, one.system = _kind(path)
            except OSError:
                pass
        elif distribution is not None:
            one.distribution = distribution
        return one

    def _resolve(self, one: _One) -> list[str]:
        if one.read is None or one.machine != self._machine:
            one.needed = [] if one.read is not None else None
            return []
        origin = os.path.dirname(one.path)
        rpaths = tuple((folder, origin) for folder in one.read.rpath)
        if not one.read.runpath:
            rpaths += self._rpaths_of_those_that_load(one) + self._executable_rpaths
        one.needed = []
        for name in one.read.needed:
            if name.startswith(_LOADER):
                continue
            need = self._need(name, origin, rpaths, one.read.runpath)
            one.needed.append(need)
            if need.path is not None and one.read.rpath:
                self._look(need.path, None).asked_by.add(one.path)
        return [need.path for need in one.needed if need.path is not None]

    def _rpaths_of_those_that_load(self, one: _One) -> tuple[tuple[str, str], ...]:
        parents = [self._all[path] for path in sorted(one.asked_by)]
        return tuple(
            (folder, os.path.dirname(parent.path)) for parent in parents if parent.read for folder in parent.read.rpath
        )

    def _need(self, name: str, origin: str, rpaths: tuple[tuple[str, str], ...], runpath: tuple[str, ...]) -> Needed:
        loaded = self._loaded.get(name)
        place, otherwise = self.loader.find(name, origin, rpaths, runpath)
        if loaded is not None:
            return Needed(name=name, path=loaded, by="loaded")
        if place is None:
            # Many packages bring a copy under one name: its own is nearest to it.
            given = max(
                self._provided.get(name, ()), key=lambda path: len(os.path.commonpath((path, origin))), default=None
            )
            return Needed(name=name, path=given, by="loaded" if given is not None else None)
        return Needed(name=name, path=place.path, by=place.by, otherwise=_other(place, otherwise))

    def nouns(self) -> tuple[Library, ...]:
        """Every library, those of distributions first."""
        order = sorted(self._all.values(), key=lambda one: (one.distribution is None, one.path))
        return tuple(_noun(one) for one in order)


def _other(place: LibraryPlace, otherwise: LibraryPlace | None) -> str | None:
    if otherwise is None:
        return ""
    return None if os.path.realpath(place.path) == os.path.realpath(otherwise.path) else otherwise.path


def _kind(path: str) -> tuple[str | None, str | None]:
    """Machine and system of a file that is not 64-bit ELF; (None, None) if unknown."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None, None
    if head[:5] == b"\x7fELF\x01" and len(head) == 20:
        number = int.from_bytes(head[18:20], "little")
        return MACHINES.get(number, str(number)), "linux"
    return None, next((system for magic, system in _MAGIC.items() if head.startswith(magic)), None)


def _noun(one: _One) -> Library:
    library = Library(
        path=one.path, distribution=one.distribution, machine=one.machine, system=one.system, is_op=one.is_op
    )
    if one.read is None:
        return library
    return msgspec.structs.replace(
        library,
        soname=one.read.soname,
        build_id=one.read.build_id,
        needed=tuple(one.needed) if one.needed is not None else None,
        rpath=one.read.rpath,
        runpath=one.read.runpath,
        needs=tuple(VersionNeed(library=name, versions=versions) for name, versions in one.read.needs),
        defines=one.read.defines,
        tls_size=one.read.tls_size,
        static_tls=one.read.static_tls,
        isa_level=one.read.isa_level,
    )
