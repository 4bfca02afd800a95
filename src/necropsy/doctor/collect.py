"""Collects the environment: each collector fills its part, and what fails is a gap, never the end of it all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from necropsy.doctor import (
    cuda_builds,
    distributions,
    dlls,
    elf,
    files,
    gpus,
    instructions,
    interpreter,
    machine,
    metadata,
    modules,
    ops,
    symbols,
    system,
    variables,
)
from necropsy.doctor.distributions import Installed
from necropsy.doctor.gpus import Graphics
from necropsy.doctor.native import Libraries
from necropsy.errors import InputError
from necropsy.model import (
    CudaBuild,
    CudaDriver,
    Dll,
    Environment,
    Gap,
    Interpreter,
    Library,
    Machine,
    Op,
    Overlap,
    Preload,
    Processor,
    Requirement,
    UnreadSetting,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to examine. ``variables``: those doctor was started with, including LD_PRELOAD and PYTHONPATH.

    ``packages``: in pip's form (``torch>=2``, ``tensorflow[and-cuda]``). ``deep``: compare the contents of files.
    """

    python: str | None = None
    packages: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] | None = None
    hard_limits: Mapping[str, int] | None = None
    reports: str | None = None
    tracing: str | None = None
    """Why this process cannot trace a child of its own; None if it can."""
    ops: Sequence[str] = ()
    """Paths of the user's libraries, such as custom ops."""
    deep: bool = False
    root: str = "/"
    """The folder that contains /proc, /sys and /dev."""


def collect(wanted: Wanted) -> Environment:
    """The environment of a program that the interpreter would run, started where doctor was.

    Raises ``NoInputError`` (no such interpreter or library), ``InputError`` (not an interpreter, a package name or a
    library), or ``NecropsyError`` (the interpreter does not answer).
    """
    for path in wanted.ops:
        elf.check(path)
    described, gaps = interpreter.describe(interpreter.find(wanted.python), wanted.variables)
    found, twice = distributions.read(described)
    asked = tuple(_asked(text, described) for text in wanted.packages)
    extras = distributions.checked(found, asked, described)
    collector = _Collector(wanted, described, found, twice, extras, asked, list(gaps))
    return collector.environment()


def _asked(text: str, described: Interpreter) -> Requirement:
    requirement = metadata.requirement(text, described.markers)
    if requirement is None:
        raise InputError(f"{text!r} is no package as pip spells it, such as numpy or 'torch>=2'")
    return requirement


@dataclass
class _Collector:
    wanted: Wanted
    interpreter: Interpreter
    found: dict[str, Installed]
    twice: list[tuple[Installed, Installed]]
    extras: dict[str, tuple[str, ...]]
    """Requested extras of the checked distributions."""
    asked: tuple[Requirement, ...]
    gaps: list[Gap]
    _program: str = ""

    def environment(self) -> Environment:
        """Parts in order of dependency."""
        checked = [self.found[name] for name in sorted(self.extras)]
        self._try("distributions", lambda: self._read_files(checked))
        chip = self._try("processor", self._processor)
        libraries, preload, cuda = self._try("libraries", lambda: self._libraries(checked)) or (None, None, None)
        if libraries is not None and chip is not None and chip.flags:
            known = libraries
            libraries = (
                self._try("instructions", lambda: instructions.of_packages(known, frozenset(chip.flags))) or known
            )
        graphics = self._try("gpus", lambda: self._graphics(cuda))
        overlaps = self._try("overlaps", self._overlaps)
        user = system.user()
        is_linux = sys.platform == "linux"
        if not is_linux:
            self.gaps += [Gap(part=part, why="it is only read on Linux") for part in ("machine", "groups")]
        return Environment(
            platform=" ".join(os.uname()[::2]) if sys.platform != "win32" else self.interpreter.system,
            python=self.interpreter.version,
            executable=self.interpreter.executable,
            libc=self.interpreter.libc,
            variables=dict(self.wanted.variables),
            limits=dict(self.wanted.limits) if self.wanted.limits is not None else None,
            interpreter=self.interpreter,
            distributions=tuple(one.noun for _, one in sorted(self.found.items())),
            asked=self.asked,
            overlaps=overlaps,
            libraries=libraries,
            dlls=self._try("dlls", lambda: self._dlls(checked)) if self.interpreter.system == "win32" else None,
            preload=preload,
            ops=self._try("ops", lambda: self._ops(libraries)) if self.wanted.ops else None,
            mounts=self._try("mounts", lambda: system.mounts(self.wanted.variables, self.wanted.reports)),
            user=user,
            machine=self._try("machine", lambda: self._machine(user)) if is_linux else None,
            groups=self._try("groups", machine.groups) if is_linux else None,
            unread=self._try("unread", lambda: self._unread(libraries)),
            gpus=graphics.gpus if graphics is not None else None,
            driver=graphics.driver if graphics is not None else None,
            cuda=cuda,
            processor=chip,
            gaps=tuple(self.gaps),
        )

    def _try(self, part: str, step: Callable[[], T]) -> T | None:
        """The result of ``step``; if it fails, the part becomes a gap."""
        try:
            return step()
        except (OSError, ValueError, MemoryError, InputError) as error:
            self.gaps.append(Gap(part=part, why=f"{type(error).__name__}: {error}"))
            return None

    def _read_files(self, checked: Iterable[Installed]) -> None:
        importing = modules.Importing(self.interpreter)
        hidden = {
            second.name: second for first, second in reversed(self.twice) if first.noun.location != second.noun.location
        }
        frameworks = {*distributions.FRAMEWORKS, *(one.name for one in self.asked)}
        for one in checked:
            missing, damaged = files.check(one, deep=self.wanted.deep)
            one.noun = msgspec.structs.replace(one.noun, modules=modules.of(one))
            conda = distributions.conda_package(one, self.interpreter)
            one.noun = msgspec.structs.replace(
                one.noun,
                conda=conda,
                installer="conda" if conda is not None else one.noun.installer,
                checked=True,
                named=one.name in frameworks,
                requires=self._requirements(one),
                recorded=len(one.rows) if one.rows is not None else None,
                missing=missing,
                damaged=damaged,
                shadows=tuple(importing.shadows(one, hidden)),
                generated_by=distributions.protobuf_generated_by(one),
            )

    def _requirements(self, one: Installed) -> tuple[Requirement, ...]:
        return tuple(metadata.requirements(one.lines, self.interpreter.markers, self.extras[one.name]))

    def _machine(self, user: int | None) -> Machine:
        wanted = self.wanted
        return machine.machine(user, wanted.variables, hard_limits=wanted.hard_limits, tracing=wanted.tracing)

    def _unread(self, libraries: Sequence[Library] | None) -> tuple[UnreadSetting, ...]:
        checked = [self.found[name] for name in sorted(self.extras)]
        files = ((one.noun.location, (row.path for row in one.rows or ())) for one in checked)
        sources = variables.sources(files, self.interpreter.working_directory)
        return variables.unread(self.wanted.variables, libraries or (), checked, sources)

    def _overlaps(self) -> tuple[Overlap, ...]:
        own = tuple(files.overlaps(self.found, self.extras))
        same = tuple(
            files.overlap(first, second, [])
            for first, second in self.twice
            if first.name in self.extras and first.noun.location == second.noun.location
        )
        return own + same

    def _graphics(self, cuda: tuple[CudaBuild, ...] | None) -> Graphics | None:
        if cuda == ():
            # No package has to do with GPUs, so there is nothing that they could lack.
            return Graphics((), CudaDriver())
        if self.interpreter.system != "linux":
            why = f"GPUs are not looked for on {self.interpreter.system} yet"
            self.gaps += [Gap(part=part, why=why) for part in ("gpus", "driver")]
            return None
        found = gpus.find(self.wanted.variables, self.interpreter.machine or "", self.wanted.root)
        self.gaps += found.gaps
        return found

    def _processor(self) -> Processor | None:
        if self.interpreter.system != "linux":
            self.gaps.append(Gap(part="processor", why=f"it is not looked at on {self.interpreter.system} yet"))
            return None
        return machine.processor_of(self.wanted.root)

    def _libraries(
        self, checked: Sequence[Installed]
    ) -> tuple[tuple[Library, ...], tuple[Preload, ...], tuple[CudaBuild, ...] | None] | None:
        why = None
        if self.interpreter.system != "linux":
            why = f"libraries are not read on {self.interpreter.system} yet"
        elif not (self.interpreter.libc or "").startswith("glibc"):
            why = "libraries are only looked for as glibc's loader does, and this is another C library"
        if why is not None:
            self.gaps += [Gap(part=part, why=why) for part in ("libraries", "preload", "cuda")]
            return None
        natives = {one.name: list(_natives(one)) for one in checked}
        provided: dict[str, list[str]] = {}
        for one in self.found.values():
            for path in _provided(one, natives):
                provided.setdefault(os.path.basename(path), []).append(path)
        libraries = Libraries(self.interpreter, self.wanted.variables, provided)
        for name, paths in natives.items():
            libraries.add(name, paths)
        libraries.add_ops(self.wanted.ops)
        self._program = libraries.program
        nouns = symbols.with_missing(libraries.nouns(), libraries.program)
        cuda = self._try("cuda", lambda: cuda_builds.find(checked, self.found, nouns, libraries.loader))
        return tuple(map(self._with_numpy, nouns)), libraries.preload, cuda

    def _dlls(self, checked: Sequence[Installed]) -> tuple[Dll, ...]:
        natives = {one.name: list(_natives(one)) for one in checked}
        return dlls.read(natives, checked, self.interpreter, self.wanted.variables)

    def _ops(self, libraries: tuple[Library, ...] | None) -> tuple[Op, ...] | None:
        if libraries is None:
            return None
        found, gaps = ops.look(libraries, self._program)
        self.gaps += gaps
        return found

    def _with_numpy(self, library: Library) -> Library:
        """The NumPy it was compiled for, needed only if its distribution requires NumPy."""
        one = self.found.get(library.distribution or "")
        if one is None or not any(each.name == "numpy" for each in one.noun.requires):
            return library
        return msgspec.structs.replace(library, numpy=ops.numpy_generation(library.path))


def _natives(one: Installed) -> Iterable[str]:
    for row in distributions.rows(one) or ():
        if files.is_native(row.path) and not row.path.startswith(".."):
            path = os.path.normpath(f"{one.noun.location}/{row.path}")
            if os.path.isfile(path):
                yield path


def _provided(one: Installed, natives: Mapping[str, list[str]]) -> Iterable[str]:
    if one.name in natives:
        return natives[one.name]
    text = distributions.text_of(f"{one.folder}/RECORD") or ""
    names = (line.partition(",")[0] for line in text.splitlines())
    return [f"{one.noun.location}/{name}" for name in names if files.is_native(name)]
