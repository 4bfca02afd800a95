"""Findings in C++ sources -> the same, with what the optional layers know of them; and which layers were not used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.audit.cxx.preprocess import is_header
from necropsy.audit.layers import clang_tidy, compile_commands, measured_frames
from necropsy.audit.layers.compilation import Compilation, Job, JobResult, headers_of, of_command, of_tensorflow, run
from necropsy.audit.layers.gcc_call_graph import GccCallGraph
from necropsy.audit.reading import keep
from necropsy.model import LAYERS, CodeDefect, Gap

DATABASE, CALL_GRAPH, TIDY = LAYERS
_SECONDS = 60.0
"""For all programs of a check together."""
_HEADERS_SECONDS = 20.0
_LARGEST = 64 << 20
_SHOWN = 3
_NO_HEADERS = "neither compile_commands.json nor --tensorflow PYTHON tells where the headers are"


@dataclass(frozen=True)
class _Task:
    layer: str
    path: str
    compilation: Compilation
    job: Job
    call_graph: Path | None = None
    kept: Path | None = None
    """Where to keep the result for later checks of the same contents."""

    def known(self) -> JobResult | None:
        """The result of an earlier check."""
        if self.kept is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(self.kept.read_bytes(), type=JobResult)
        return None

    def ended(self, result: JobResult) -> JobResult:
        """Keep a successful result, with the call graph as its text."""
        if result.trouble is None and self.call_graph is not None:
            result = JobResult(_text(self.call_graph))
        if result.trouble is None and self.kept is not None:
            with contextlib.suppress(OSError):
                keep(self.kept, msgspec.json.encode(result))
        return result

    def seen(self, defects: list[CodeDefect], result: JobResult) -> list[CodeDefect]:
        """Add the program's findings to the source's defects."""
        directory = self.compilation.directory
        if self.call_graph is None:
            said = list(clang_tidy.read(result.out, directory))
            return [clang_tidy.supported(one, said) for one in defects]
        if result.trouble is not None:
            return defects
        graph = GccCallGraph(result.out, directory)
        return [measured_frames.measured(one, graph, self.compilation) for one in defects]


@dataclass
class OptionalLayers:
    """Asks the compiler and clang-tidy about sources with findings; ``gaps`` has what was not used.

    ``python``: an interpreter with TensorFlow, if named; ``jobs``: parallel programs.
    """

    python: str | None
    jobs: int | None
    tell: Callable[[str], None] | None = None
    cache: Path | None = None
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Header hashes by source; entries of ``cache`` are valid as long as these match."""
    gaps: list[Gap] = field(default_factory=list)

    def applied(self, found: Mapping[str, Sequence[CodeDefect]]) -> dict[str, list[CodeDefect]]:
        """The defects of each source in ``found``, in their order."""
        sources = [path for path in found if not is_header(path)]
        if not sources:
            for layer in LAYERS if found else ():
                self._unused(layer, "headers are not compiled on their own")
            return {path: list(defects) for path, defects in found.items()}
        self._of_databases(sources)
        known = {path: list(defects) for path, defects in found.items()}
        asked = [path for path in sources if found[path]]
        about_stack = [path for path in asked if any(one.rule in measured_frames.RULES for one in found[path])]
        compiler, tidy = shutil.which("g++"), shutil.which("clang-tidy")
        if tidy is None:
            self._unused(TIDY, "it is not installed")
        if compiler is None:
            self._unused(CALL_GRAPH, "no g++ was found")
        compilations = self._compilations(sources, asked if tidy else about_stack if compiler else [])
        if not compilations:
            return known
        with tempfile.TemporaryDirectory(prefix="necropsy-layers-") as place:
            tasks = []
            for number, (path, one) in enumerate(compilations.items()):
                if compiler is not None and path in about_stack:
                    out = Path(place) / f"{number}.s"
                    made = ("-w", "-fcallgraph-info=su,da", "-S", "-o", str(out))
                    job = Job((compiler, *one.options, *made, one.source), one.directory)
                    kept = self._kept(compiler, path, one)
                    tasks.append(_Task(CALL_GRAPH, path, one, job, out.with_suffix(".ci"), kept))
                if tidy is not None:
                    job = Job(clang_tidy.words(tidy, one), one.directory)
                    tasks.append(_Task(TIDY, path, one, job, None, self._kept(tidy, path, one)))
            results = self._run(tasks)
        for task, result in zip(tasks, results, strict=True):
            known[task.path] = task.seen(known[task.path], result)
        for layer in (CALL_GRAPH, TIDY):
            self._failed(
                layer,
                [
                    f"{Path(task.path).name}: {result.trouble}"
                    for task, result in zip(tasks, results, strict=True)
                    if task.layer == layer and result.trouble is not None
                ],
            )
        return known

    def _run(self, tasks: Sequence[_Task]) -> list[JobResult]:
        results = [one.known() for one in tasks]
        left = [task for task, known in zip(tasks, results, strict=True) if known is None]
        if self.tell is not None and left:
            self.tell(f"{len(left)} runs of g++ and clang-tidy")
        ended = iter(run([one.job for one in left], _SECONDS, self.jobs or os.cpu_count() or 1))
        return [
            known if known is not None else task.ended(next(ended)) for task, known in zip(tasks, results, strict=True)
        ]

    def _kept(self, program: str, path: str, one: Compilation) -> Path | None:
        """The cache file for these contents and this program."""
        if self.cache is None:
            return None
        try:
            stamp = Path(program).stat().st_mtime_ns
            digest = hashlib.sha256(Path(path).read_bytes())
        except OSError:
            return None
        parts = (program, stamp, path, one, sorted(self.headers.get(path, {}).items()), clang_tidy.CHECKS)
        digest.update(repr(parts).encode("utf-8", "backslashreplace"))
        return self.cache / f"{digest.hexdigest()}.json"

    def _failed(self, layer: str, why: list[str]) -> None:
        if why:
            more = f"; and {len(why) - _SHOWN} more" if len(why) > _SHOWN else ""
            of = f"{len(why)} sources" if len(why) > 1 else "a source"
            self.gaps.append(Gap(part=f"{layer} of {of}", why="; ".join(why[:_SHOWN]) + more))

    def _unused(self, layer: str, why: str) -> None:
        if all(one.part != layer for one in self.gaps):
            self.gaps.append(Gap(part=layer, why=why))

    def _of_databases(self, sources: Sequence[str]) -> None:
        left = [path for path in sources if compile_commands.of(path) is None]
        if left and len(left) == len(sources):
            trouble = next(filter(None, map(compile_commands.trouble, left)), None)
            self._unused(DATABASE, trouble or "none above the sources or in a folder build lists them")
        elif left:
            part = f"{DATABASE} for {len(left)} of {len(sources)} sources"
            self.gaps.append(Gap(part=part, why=f"{Path(left[0]).name} is not listed"))

    def _compilations(self, sources: Sequence[str], asked: Sequence[str]) -> dict[str, Compilation]:
        """By source; TensorFlow's headers are located only for sources that need them."""
        commands = {path: compile_commands.of(path) for path in sources}
        why = _NO_HEADERS
        headers = None
        if self.python is not None and any(commands[path] is None for path in asked):
            headers = headers_of(self.python, _HEADERS_SECONDS)
            why = f"{self.python} has no TensorFlow with headers" if headers is None else ""
        found = {}
        for path in asked:
            command = commands[path]
            if command is not None:
                found[path] = of_command(path, command)
            elif headers is not None:
                found[path] = of_tensorflow(path, headers)
        if not found and (self.python is None or asked) and not all(commands.values()):
            self._unused(CALL_GRAPH, why)
            self._unused(TIDY, why)
        return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
