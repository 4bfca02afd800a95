"""What the packages' compiled files import on Windows, and which files they would get.

Images are read, not loaded, and the loader's search is repeated (``dll_search``). Functions imported from Microsoft's
C++ runtime are looked up in the copy that would be loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.doctor.cuda_builds import TENSORFLOW, assigned
from necropsy.doctor.distributions import Installed
from necropsy.doctor.dll_search import DllSearch
from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.pe_imports import Exports, wanted
from necropsy.model import Dll, DllNeed, Interpreter

_RUNTIME = re.compile(r"(?:msvcp140(?:_\w+)?|vcruntime140(?:_\d+)?|concrt140|vccorlib140|vcomp140)\.dll")
_CUDNN = re.compile(r"cudnn64_\d+\.dll")
_NO_FILE = re.compile(r"(?:api|ext)-ms-")
"""Names that Windows maps to DLLs of its own (API sets)."""
_DRIVER, _ZLIB = "nvcuda.dll", "zlibwapi.dll"
_MACHINES = {"AMD64": pe.X64, "ARM64": pe.ARM64, "x86": pe.X86}
_LARGEST = 16 << 20
"""Maximum bytes to search in cuDNN's first DLL, which has 300 kB and loads the others."""


def read(
    natives: Mapping[str, Iterable[str]],
    checked: Sequence[Installed],
    interpreter: Interpreter,
    variables: Mapping[str, str],
) -> tuple[Dll, ...]:
    """Every DLL of the distributions by name, then relevant system DLLs; ``natives``: compiled files of each."""
    provided: dict[str, list[tuple[str, str]]] = {}
    for name, paths in natives.items():
        for path in paths:
            provided.setdefault(os.path.basename(path).lower(), []).append((name, path))
    search = DllSearch.of(
        interpreter,
        variables,
        provided,
        brought={one.name: frozenset(each.name for each in one.noun.requires if each.applies) for one in checked},
        sources={one.name: _sources(one) for one in checked},
    )
    reader = _Reader(search, _MACHINES.get(interpreter.machine or ""))
    found = [one for name, paths in natives.items() for path in paths if (one := reader.dll(path, name)) is not None]
    return (*found, *reader.of_others(found, tuple(_opened_by_tensorflow(checked))))


@dataclass
class _Reader:
    search: DllSearch
    machine: int | None
    """The interpreter's processor type, because others' files are not loaded; None if unknown."""
    _exports: dict[str, dict[str, bool]] = field(default_factory=dict)
    """For each file of the runtime: whether it has the requested functions."""

    def dll(self, path: str, distribution: str | None) -> Dll | None:
        """None if it is not an image for this processor."""
        folder, name = os.path.split(path)
        try:
            with open(path, "rb") as file:
                image = pe.in_file(file)
                if self.machine is not None and image.machine != self.machine:
                    return None
                needs = tuple(self._needs(image, folder, distribution))
                is_cudnn = _CUDNN.fullmatch(name.lower()) is not None
                file.seek(0)
                opens = (_ZLIB,) if is_cudnn and _ZLIB.encode() in file.read(_LARGEST) else ()
                return Dll(
                    path=path,
                    distribution=distribution,
                    version=image.file_version,
                    linker=f"{image.linker[0]}.{image.linker[1]:02}",
                    imports=needs,
                    opens=tuple(self.search.find(one, folder) for one in opens),
                )
        except (InputError, OSError):
            return None

    def _needs(self, image: pe.Image, folder: str, distribution: str | None) -> Iterator[DllNeed]:
        names = dict.fromkeys(name.lower() for name in image.imports)
        functions: dict[str, list[str]] = {name: [] for name in names if _RUNTIME.fullmatch(name)}
        for dll, function in wanted(image) if functions else ():
            if dll.lower() in functions and isinstance(function, str):
                functions[dll.lower()].append(function)
        for name, taken in functions.items():
            need = self.search.find(name, folder)
            lacking = self._lacking(need.path, taken) if need.path is not None else ()
            yield msgspec.structs.replace(need, functions=tuple(taken), lacking=tuple(lacking))
        if distribution is None:
            yield from (self.search.find(name, folder) for name in names if _CUDNN.fullmatch(name))
            return
        for name in names:
            if name not in functions and not _NO_FILE.match(name):
                yield self.search.find(name, folder, distribution)
        for name in dict.fromkeys(name.lower() for name in image.delay_imports):
            if name not in names and not _NO_FILE.match(name):
                yield self.search.find(name, folder, distribution, delayed=True)

    def _lacking(self, path: str, functions: Sequence[str]) -> Iterator[str]:
        known = self._exports.setdefault(path, {})
        new = [one for one in functions if one not in known]
        if new:
            try:
                with open(path, "rb") as file:
                    exports = Exports(pe.in_file(file))
                    known.update({one: exports.offers(one) is not False for one in new})
            except (InputError, OSError):
                known.update(dict.fromkeys(new, True))
        return (one for one in functions if not known[one])

    def of_others(self, own: Sequence[Dll], opened: Sequence[str]) -> Iterator[Dll]:
        """The C++ runtime, files that shadow others, cuDNN if frameworks open it, and the driver."""
        paths = {
            need.path
            for one in own
            for need in one.imports
            if need.path is not None
            and (need.otherwise is not None or _RUNTIME.fullmatch(need.name) or _CUDNN.fullmatch(need.name))
        }
        paths |= {need.path for name in opened if (need := self.search.find(name)).path is not None}
        driver = self.search.find(_DRIVER)
        if driver.path is not None:
            paths.add(driver.path)
        for path in sorted(paths - {one.path for one in own}):
            one = self.dll(path, None)
            if one is not None:
                yield one


def _sources(one: Installed) -> tuple[str, ...]:
    """Its Python code, including ``.pth`` files that run at start."""
    return tuple(f"{one.noun.location}/{row.path}" for row in one.rows or () if row.path.endswith((".py", ".pth")))


def _opened_by_tensorflow(checked: Iterable[Installed]) -> Iterator[str]:
    """The cuDNN named in TensorFlow for Windows."""
    for one in checked:
        if one.name in TENSORFLOW:
            told = assigned(f"{one.noun.location}/tensorflow/python/platform/build_info.py", "build_info")
            name = told.get("cudnn_dll_name") if isinstance(told, dict) else None
            if isinstance(name, str) and _CUDNN.fullmatch(name):
                yield name
