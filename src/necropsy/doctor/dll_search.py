"""Which file Windows loads for a DLL that a package's compiled file imports.

For imports of extension modules, Python 3.8 and later search the module's folder, that of ``python.exe``, folders that
packages add (``os.add_dll_directory``) and System32; before 3.8, PATH came last. Delayed imports are searched as in any
program: the folder of ``python.exe``, System32 and PATH. A loaded DLL of that name always comes first, so packages that
open theirs by path are never shadowed. The packages' sources show which of these they do.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from necropsy.model import DllNeed, Interpreter

_OWN, _PYTHON, _CONDA, _SYSTEM, _WINDOWS = (
    "own folder",
    "Python's folder",
    "conda's folder",
    "System32",
    "Windows' folder",
)
_ADDS = re.compile(rb"add_dll_directory|AddDllDirectory|SetDllDirectory")
_LOADS = re.compile(rb"\b(?:WinDLL|CDLL|PyDLL|LoadLibrary\w*|windll|cdll)\b")
_SETS_PATH = re.compile(rb"(?:environ\W{1,20}|putenv\W{1,3})PATH\b")
_MOST_SOURCES, _LARGEST = 4000, 1 << 20


@dataclass(frozen=True)
class DllSources:
    """What Python code of a distribution does so that its DLLs are found."""

    adds: bool = False
    """It adds folders to search."""
    loads: bool = False
    """It opens libraries by their path."""
    sets_path: bool = False
    """It changes PATH."""

    @classmethod
    def of(cls, paths: Iterable[str]) -> DllSources:
        """By the files at these paths; the ones nearest to the top, which are run first, count where there are many."""
        adds = loads = sets_path = False
        for path in sorted(paths, key=lambda one: one.count("/"))[:_MOST_SOURCES]:
            try:
                with open(path, "rb") as file:
                    text = file.read(_LARGEST)
            except OSError:
                continue
            adds = adds or _ADDS.search(text) is not None
            loads = loads or _LOADS.search(text) is not None
            sets_path = sets_path or _SETS_PATH.search(text) is not None
        return cls(adds=adds, loads=loads, sets_path=sets_path)


@dataclass
class DllSearch:
    """The folders that Windows looks into after that of the file itself, each with a word for it, and PATH."""

    python: str
    conda: str | None
    system: str
    path: tuple[str, ...]
    extends_path: bool
    """PATH is searched for extension modules' imports: Python is older than 3.8."""
    provided: Mapping[str, Sequence[tuple[str, str]]]
    """Files of checked distributions by lower-case name, with their distributions."""
    brought: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Each distribution itself and its requirements."""
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Paths of each distribution's Python code."""
    _done: dict[tuple[str, str | None, str | None, bool], DllNeed] = field(default_factory=dict)
    _read: dict[str, DllSources] = field(default_factory=dict)
    _there: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        interpreter: Interpreter,
        variables: Mapping[str, str],
        provided: Mapping[str, Sequence[tuple[str, str]]],
        *,
        brought: Mapping[str, frozenset[str]] | None = None,
        sources: Mapping[str, Sequence[str]] | None = None,
    ) -> DllSearch:
        """That of programs of this interpreter, started with these variables."""
        known = {name.upper(): value for name, value in variables.items()}
        return cls(
            # The python.exe of a virtual environment starts the one that it was made with.
            python=interpreter.base_prefix or os.path.dirname(interpreter.executable),
            conda=os.path.join(interpreter.prefix, "Library", "bin")
            if interpreter.conda and interpreter.prefix is not None
            else None,
            system=known.get("SYSTEMROOT") or r"C:\Windows",
            path=tuple(one.strip('"') for one in known.get("PATH", "").split(";") if one),
            extends_path=_is_before_3_8(interpreter.version),
            provided=provided,
            brought=brought or {},
            sources=sources or {},
        )

    def find(
        self, name: str, origin: str | None = None, distribution: str | None = None, *, delayed: bool = False
    ) -> DllNeed:
        """The file loaded as ``name`` for a file of ``distribution`` in ``origin``; ``delayed``: only on first use."""
        key = (name, origin, distribution, delayed)
        if key not in self._done:
            self._done[key] = self._find(*key)
        return self._done[key]

    def _find(self, name: str, origin: str | None, distribution: str | None, delayed: bool) -> DllNeed:
        if origin is not None and not delayed and (path := self._in(origin, name)) is not None:
            return DllNeed(name=name, path=path, by=_OWN)
        ours = self._ours(name, distribution)
        first = [(self.python, _PYTHON), *([(self.conda, _CONDA)] if self.conda is not None else [])]
        system = [(os.path.join(self.system, "System32"), _SYSTEM), (self.system, _WINDOWS)]
        on_path = [(one, "PATH") for one in self.path]
        everywhere = delayed or self.extends_path
        places = [*first, *system, *on_path] if everywhere else [*first, *system[:1]]
        found = next(((path, by) for folder, by in places if (path := self._in(folder, name)) is not None), None)
        if ours is not None and (found is None or not self._wins(ours, distribution, found[1], delayed=delayed)):
            return DllNeed(name=name, path=ours[1], by="package", delayed=delayed)
        if found is not None:
            otherwise = ours[1] if ours is not None and found[1] != _CONDA and _differ(ours[1], found[0]) else None
            return DllNeed(name=name, path=found[0], by=found[1], otherwise=otherwise, delayed=delayed)
        if given := self.provided.get(name):
            return DllNeed(name=name, path=given[0][1], by="package", delayed=delayed)
        # Here, packages look themselves, and DLLs that open others by name.
        seen = next((path for folder, _ in on_path if (path := self._in(folder, name)) is not None), None)
        return DllNeed(name=name, path=seen, by="PATH" if seen is not None else None, delayed=delayed)

    def _ours(self, name: str, distribution: str | None) -> tuple[str, str] | None:
        """The copy from the distribution or one it requires."""
        if distribution is None:
            return None
        rows = self.provided.get(name, ())
        own = [one for one in rows if one[0] == distribution]
        family = self.brought.get(distribution, frozenset())
        return next(iter([*own, *(one for one in rows if one[0] in family)]), None)

    def _wins(self, ours: tuple[str, str], distribution: str | None, by: str, *, delayed: bool) -> bool:
        """The file found by ``by`` is loaded instead of the package's own."""
        known = [self._sources(one) for one in {ours[0], distribution} if one is not None]
        if any(one.loads for one in known):
            return False
        if by == "PATH":
            # Who changes it puts the own folder first.
            return not any(one.sets_path for one in known)
        # Added folders come before System32, but not for what is loaded later.
        return by == _PYTHON or delayed or self.extends_path or not any(one.adds for one in known)

    def _sources(self, distribution: str) -> DllSources:
        if distribution not in self._read:
            self._read[distribution] = DllSources.of(self.sources.get(distribution, ()))
        return self._read[distribution]

    def _in(self, folder: str, name: str) -> str | None:
        path = os.path.join(folder, name)
        if path not in self._there:
            self._there[path] = os.path.isfile(path)
        return path if self._there[path] else None


def _differ(one: str, other: str) -> bool:
    try:
        return not filecmp.cmp(one, other, shallow=False)
    except OSError:
        return True


def _is_before_3_8(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (3, 8)
