"""Which file the dynamic loader takes for a name, as ld.so(8) describes it for glibc.

RPATH of the library and of those that load it (only without RUNPATH), LD_LIBRARY_PATH, RUNPATH of the library, the
cache, the default folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from necropsy.doctor import elf
from necropsy.errors import InputError
from necropsy.formats import elf_dynamic
from necropsy.formats.elf_dynamic import MACHINES

_CACHE = "/etc/ld.so.cache"
_PLATFORMS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True)
class LibraryPlace:
    """A file that was found, and by what."""

    path: str
    by: str


@dataclass
class Loader:
    """The loader of a machine's own programs; ``library_path`` are the folders of LD_LIBRARY_PATH."""

    machine: str
    library_path: tuple[str, ...] = ()
    _fits: dict[str, bool] = field(default_factory=dict)
    _found: dict[tuple[str, tuple[str, ...]], str | None] = field(default_factory=dict)

    def find(
        self, name: str, origin: str, rpaths: tuple[tuple[str, str], ...], runpath: tuple[str, ...]
    ) -> tuple[LibraryPlace | None, LibraryPlace | None]:
        """The file for ``name``, and the one without LD_LIBRARY_PATH.

        ``origin``: folder of the loading library; ``rpaths``: RPATH folders, each with its own origin.
        """
        if "/" in name:
            place = LibraryPlace(name, "path") if os.path.exists(name) else None
            return place, place
        expanded = tuple(expand(folder, of) for folder, of in rpaths)
        by_rpath = self._in(name, expanded, "RPATH")
        if by_rpath is not None:
            return by_rpath, by_rpath
        rest = (
            self._in(name, tuple(expand(one, origin) for one in runpath), "RUNPATH")
            or self._cached(name)
            or self._in(name, self.default, "default")
        )
        return self._in(name, self.library_path, "LD_LIBRARY_PATH") or rest, rest

    @cached_property
    def default(self) -> tuple[str, ...]:
        """The folders that are searched last."""
        triplet = _PLATFORMS.get(self.machine)
        more = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if triplet else ()
        return tuple(one for one in (*more, *_DEFAULT) if os.path.isdir(one))

    @cached_property
    def _cache(self) -> Mapping[str, str]:
        try:
            with open(_CACHE, "rb") as file:
                data = file.read()
        except OSError:
            return {}
        found: dict[str, str] = {}
        for name, path in elf_dynamic.cache_entries(data, self.machine):
            found.setdefault(name, path)
        return found

    def _cached(self, name: str) -> LibraryPlace | None:
        path = self._cache.get(name)
        return LibraryPlace(path, "ld.so.cache") if path is not None and self._is_for_us(path) else None

    def _in(self, name: str, folders: tuple[str, ...], by: str) -> LibraryPlace | None:
        key = (name, folders)
        if key not in self._found:
            paths = (f"{folder.rstrip('/')}/{name}" for folder in folders)
            self._found[key] = next((path for path in paths if self._is_for_us(path)), None)
        path = self._found[key]
        return None if path is None else LibraryPlace(path, by)

    def _is_for_us(self, path: str) -> bool:
        """The loader skips files for another machine, but takes a damaged one and fails."""
        if path not in self._fits:
            self._fits[path] = os.path.isfile(path) and self._fits_machine(path)
        return self._fits[path]

    def _fits_machine(self, path: str) -> bool:
        try:
            with elf.opened(path) as file:
                return MACHINES.get(file.machine, self.machine) == self.machine
        except InputError:
            return False
        except OSError:
            return False


def expand(folder: str, origin: str) -> str:
    """The folder with ``$ORIGIN`` in its place."""
    if "$" not in folder:
        return folder
    folder = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return os.path.normpath(folder.replace("${LIB}", "lib").replace("$LIB", "lib"))


def folders(value: str) -> tuple[str, ...]:
    """The folders of LD_LIBRARY_PATH; an empty one is the working directory."""
    if not value:
        return ()
    return tuple(expand(one or ".", ".") for one in value.replace(";", ":").split(":"))
