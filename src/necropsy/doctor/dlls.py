"""What the compiled files of packages import of Microsoft's C++ runtime on Windows, and the cuDNN that they would load.

Nothing is loaded: images are read, and the search of the loader is done again. Since Python 3.8, that for what an
extension module imports is: the module's own folder, the one of ``python.exe``, folders that packages add, System32.
What packages add is not known: a file of that name in any checked distribution counts as found. PATH comes last; there,
packages look themselves, and DLLs that open others by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.doctor.cuda_builds import TENSORFLOW, assigned
from necropsy.doctor.distributions import Installed
from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.pe_imports import Exports, wanted
from necropsy.model import Dll, DllNeed, Interpreter

_RUNTIME = re.compile(r"(?:msvcp140(?:_\w+)?|vcruntime140(?:_\d+)?|concrt140|vccorlib140|vcomp140)\.dll")
_CUDNN = re.compile(r"cudnn64_\d+\.dll")
_DRIVER, _ZLIB = "nvcuda.dll", "zlibwapi.dll"
_MACHINES = {"AMD64": pe.X64, "ARM64": pe.ARM64, "x86": pe.X86}
_LARGEST = 16 << 20
"""Bytes of cuDNN's first DLL that are searched; it has 300 kB and loads the others."""


@dataclass(frozen=True)
class Search:
    """The folders that Windows looks into after that of the file itself, each with a word for it, and PATH."""

    folders: tuple[tuple[str, str], ...]
    path: tuple[tuple[str, str], ...]
    provided: Mapping[str, Sequence[str]]
    """Files of checked distributions, by their names in small letters."""

    @classmethod
    def of(
        cls, interpreter: Interpreter, variables: Mapping[str, str], provided: Mapping[str, Sequence[str]]
    ) -> Search:
        """That of programs of this interpreter, started with these variables."""
        known = {name.upper(): value for name, value in variables.items()}
        # The python.exe of a virtual environment starts the one that it was made with.
        python = interpreter.base_prefix or os.path.dirname(interpreter.executable)
        system = known.get("SYSTEMROOT") or r"C:\Windows"
        path = tuple((one.strip('"'), "PATH") for one in known.get("PATH", "").split(";") if one)
        folders = [(python, "Python's folder"), (os.path.join(system, "System32"), "System32")]
        if interpreter.conda and interpreter.prefix is not None:
            folders.insert(1, (os.path.join(interpreter.prefix, "Library", "bin"), "conda's folder"))
        return cls(tuple(folders), path, provided)

    def find(self, name: str, origin: str | None = None) -> DllNeed:
        """The file that is taken for ``name``, asked for by one that lies in ``origin``."""
        for folder, by in (*(((origin, "own folder"),) if origin is not None else ()), *self.folders):
            if os.path.isfile(path := os.path.join(folder, name)):
                return DllNeed(name=name, path=path, by=by)
        if given := self.provided.get(name):
            return DllNeed(name=name, path=given[0], by="package")
        for folder, by in self.path:
            if os.path.isfile(path := os.path.join(folder, name)):
                return DllNeed(name=name, path=path, by=by)
        return DllNeed(name=name)


def read(
    natives: Mapping[str, Iterable[str]],
    checked: Sequence[Installed],
    interpreter: Interpreter,
    variables: Mapping[str, str],
) -> tuple[Dll, ...]:
    """Every DLL of the distributions, by name; then those of the system that count here.

    ``natives``: paths of the compiled files of each distribution.
    """
    provided: dict[str, list[str]] = {}
    for paths in natives.values():
        for path in paths:
            provided.setdefault(os.path.basename(path).lower(), []).append(path)
    search = Search.of(interpreter, variables, provided)
    reader = _Reader(search, _MACHINES.get(interpreter.machine or ""))
    found = [one for name, paths in natives.items() for path in paths if (one := reader.dll(path, name)) is not None]
    return (*found, *reader.of_others(found, tuple(_opened_by_tensorflow(checked))))


@dataclass
class _Reader:
    search: Search
    machine: int | None
    """The processor of the interpreter; what packages bring for others is not loaded. None: unknown."""
    _exports: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Of each file of the runtime: whether it has the functions that were asked for."""

    def dll(self, path: str, distribution: str | None) -> Dll | None:
        """The file; None where it is no image for this processor."""
        folder, name = os.path.split(path)
        try:
            with open(path, "rb") as file:
                image = pe.in_file(file)
                if self.machine is not None and image.machine != self.machine:
                    return None
                needs = tuple(self._needs(image, folder))
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

    def _needs(self, image: pe.Image, folder: str) -> Iterator[DllNeed]:
        names = dict.fromkeys(name.lower() for name in image.imports)
        functions: dict[str, list[str]] = {name: [] for name in names if _RUNTIME.fullmatch(name)}
        for dll, function in wanted(image) if functions else ():
            if dll.lower() in functions and isinstance(function, str):
                functions[dll.lower()].append(function)
        for name, taken in functions.items():
            need = self.search.find(name, folder)
            lacking = self._lacking(need.path, taken) if need.path is not None else ()
            yield msgspec.structs.replace(need, functions=tuple(taken), lacking=tuple(lacking))
        yield from (self.search.find(name, folder) for name in names if _CUDNN.fullmatch(name))

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
        """The files of the runtime that would be taken, the cuDNN that frameworks look for on PATH, and the driver."""
        paths = {need.path for one in own for need in one.imports if need.path is not None}
        paths |= {need.path for name in opened if (need := self.search.find(name)).path is not None}
        driver = self.search.find(_DRIVER)
        if driver.path is not None:
            paths.add(driver.path)
        for path in sorted(paths - {one.path for one in own}):
            one = self.dll(path, None)
            if one is not None:
                yield one


def _opened_by_tensorflow(checked: Iterable[Installed]) -> Iterator[str]:
    """The name of the cuDNN that a TensorFlow for Windows says it opens."""
    for one in checked:
        if one.name in TENSORFLOW:
            told = assigned(f"{one.noun.location}/tensorflow/python/platform/build_info.py", "build_info")
            name = told.get("cudnn_dll_name") if isinstance(told, dict) else None
            if isinstance(name, str) and _CUDNN.fullmatch(name):
                yield name
