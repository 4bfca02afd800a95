"""One run of the program under one change: started, watched, ended, and put into one of a few outcomes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from necropsy import launcher, serialize
from necropsy.capture.linux.supervise import guard_preload
from necropsy.confirm import checkers, subreaper
from necropsy.confirm.checkers import LOG, Said
from necropsy.confirm.warm_start import WarmStart, WarmStartError
from necropsy.consequences import command_of
from necropsy.errors import NecropsyError
from necropsy.model import Change, Crash, Document, Outcome, Report
from necropsy.rule import Rule

_GRACE_S = 120
"""Added to the program's time limit, because capturing a death takes time and ends by itself."""
NO_REPORT = "its supervisor was ended before it could report"
_CANNOT_RUN = frozenset({125, 126, 127})
_FAILED_AT_START = 126
"""Exit status of an interpreter in which a statement failed (``preload/python/sitecustomize.py``)."""


@dataclass(frozen=True)
class TrialRun:
    """The outcome of one run. ``report``: the death of the command, or the first dead worker; None: none died.

    ``status``: as in a shell; ``wall_s``: seconds; ``peaks``: the maximum stack in bytes by thread name, if measured.
    """

    outcome: Outcome
    status: int | None
    wall_s: float
    report: Report | None = None
    document: Document | None = None
    why: str | None = None
    said: Said | None = None
    cpu_s: float | None = None
    """Seconds of processor time, including its children and necropsy."""
    output: str | None = None
    """SHA-256 of what it wrote to stdout, in hex."""

    @property
    def crashed(self) -> bool:
        """It died, in whatever way."""
        return self.outcome in {"same", "another"}


@dataclass(frozen=True)
class Command:
    """What is run again: its command, folder and variables, and the signature of the death that is looked into."""

    command: tuple[str, ...]
    folder: Path
    signature: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Replacements for ``{NAME}`` in the command unless a change sets them."""
    reads: Path | None = None
    """The file that each run reads as standard input; None: it is empty."""


class Runner:
    """Runs ``target`` below ``place``, limited to ``timeout_s`` seconds; ``rules`` judge a checker's output."""

    def __init__(self, target: Command, place: Path, timeout_s: float, rules: Sequence[Rule[Crash]] = ()) -> None:
        self.target = target
        self.place = place
        self.timeout_s = timeout_s
        self.rules = rules
        self._count = 0
        self._warm: WarmStart | None = None

    def run(self, change: Change, *, always: bool = False) -> TrialRun:
        """Run once; ``always``: measure stacks of healthy runs too. Raises ``OSError`` if the folder cannot be made."""
        self._count += 1
        place = self.place / f"run-{self._count:04d}"
        place.mkdir(mode=0o700, parents=True)
        began = time.monotonic()
        try:
            words = command_under(change, self.target.command, self.target.defaults)
        except NecropsyError as error:
            return TrialRun("cannot-run", None, 0.0, why=str(error))
        if change.checker is not None:
            words = [word.replace(LOG, str(place / checkers.PREFIX)) for word in words]
        limit = self.timeout_s if change.seconds is None else change.seconds
        status, cpu = self._start(words, place, limit, always=always)
        wall = time.monotonic() - began
        document = _read(place / "report.json")
        said = checkers.read(change, place, self.rules) if change.checker is not None else None
        output = _digest(place / "stdout")
        shutil.rmtree(place, ignore_errors=True)
        run = dataclasses.replace(self._judged(status, document, wall), said=said, cpu_s=cpu, output=output)
        if change.at_start and status == _FAILED_AT_START:
            return dataclasses.replace(run, outcome="cannot-run", why="the interpreter could not do that at startup")
        return run

    def _start(self, words: Sequence[str], place: Path, limit: float, *, always: bool) -> tuple[int | None, float]:
        """The exit status, None if it had to be ended, and processor time in seconds."""
        ours = ["run", "--quiet", "--json", str(place / "report.json")]
        ours += ["--timeout", f"{limit:g}", *(["--always"] if always else []), "--", *words]
        environment = dict(self.target.environment) | {"NECROPSY_KEEP": "0"} | launcher.for_another()
        environment.pop("NECROPSY_OUTPUT", None)
        environment.pop("GITHUB_ACTIONS", None)
        reads = self.target.reads or Path(os.devnull)
        with (
            (place / "stdout").open("wb") as out,
            (place / "stderr").open("wb") as err,
            reads.open("rb") as read,
        ):
            files = (read.fileno(), out.fileno(), err.fileno())
            try:
                if self._warm is None:
                    self._warm = WarmStart(environment, self.target.folder)
                return self._warm.run(ours, files, limit + _GRACE_S)
            except WarmStartError:
                used = _cpu_of_children()
                status = self._cold(ours, files, environment, limit + _GRACE_S)
                return status, _cpu_of_children() - used

    def _cold(
        self, words: Sequence[str], files: tuple[int, int, int], environment: Mapping[str, str], limit: float
    ) -> int | None:
        keeper = [sys.executable, "-I", "-S", subreaper.__file__, str(os.getpid())]
        process = subprocess.Popen(
            [*keeper, sys.executable, "-m", "necropsy", *words],
            cwd=self.target.folder,
            env=environment,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # It ends whatever there is of the run before it ends itself.
            process.terminate()
            process.wait()

    def close(self) -> None:
        """End what starts the runs."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    def _judged(self, status: int | None, document: Document | None, wall: float) -> TrialRun:
        if document is None and status is None:
            return TrialRun("hangs", status, wall, why="no report was written")
        if document is None:
            why = "necropsy could not start it" if status in _CANNOT_RUN else NO_REPORT
            return TrialRun("cannot-run", status, wall, why=why)
        own = command_of(document.processes)
        end = own.exit if own is not None else None
        report = next((one for one in document.reports if one.crash.fault or _by_signal(one)), None)
        report = report or next(iter(document.reports), None)
        if end is not None and end.kind == "timeout":
            return TrialRun("hangs", status, wall, report, document)
        if report is None and end is not None and end.kind == "exited" and not end.code:
            return TrialRun("survives", status, wall, None, document)
        same = report is not None and self.target.signature is not None and report.signature == self.target.signature
        return TrialRun("same" if same else "another", status, wall, report, document)


def _cpu_of_children() -> float:
    """Seconds, including a compiler that ends meanwhile."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def readable_input() -> Path | None:
    """The file that our standard input is, which every run can read again; None where it is a terminal or a pipe."""
    link = Path("/proc/self/fd/0")
    try:
        path = link.readlink()
    except OSError:
        return None
    return path if path.is_file() else None


def _by_signal(report: Report) -> bool:
    return report.crash.exit is not None and report.crash.exit.kind == "signaled"


def _digest(path: Path) -> str | None:
    found = hashlib.sha256()
    with contextlib.suppress(OSError), path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
        return found.hexdigest()
    return None


def _read(path: Path) -> Document | None:
    try:
        return serialize.loads(path.read_bytes())
    except (OSError, NecropsyError):
        return None


def command_under(change: Change, command: Sequence[str], defaults: Mapping[str, str] | None = None) -> list[str]:
    """The words that start ``command`` under ``change``, with ``env`` and ``ulimit`` in front.

    They exec the command, so the process stays the same and necropsy outside is unaffected. Raises ``NecropsyError`` if
    the hard limit does not permit the change.
    """
    words = [filled(word, {**(defaults or {}), **change.arguments}) for word in command]
    words = [*(filled(word, {"CPU": str(min(os.sched_getaffinity(0)))}) for word in change.wrapper), *words]
    variables = dict(change.environment)
    preload = [_guard() if word == "{GUARD}" else word for word in change.preload]
    if change.library is not None:
        preload.append(str(_hook("replace_library")))
        variables["NECROPSY_REPLACE_FROM"], variables["NECROPSY_REPLACE_TO"] = change.library
    if change.thread_stack is not None:
        preload.append(str(_hook("thread_stack")))
        variables["NECROPSY_THREAD_STACK"] = str(change.thread_stack)
    if change.checker == "memory":
        preload.append(str(_hook("refused")))
        variables["NECROPSY_REFUSED"] = LOG
    if change.checker == "mappings":
        preload.append(str(_hook("unmapped")))
        variables["NECROPSY_UNMAPPED"] = LOG
    if change.own_memory is not None:
        preload.append(str(_hook("own_memory")))
        variables["NECROPSY_OWN_MEMORY"] = str(change.own_memory)
    if change.at_start:
        takes_variables(words[len(change.wrapper) :])
        variables |= at_start("\n".join(change.at_start))
    if preload:
        variables["LD_PRELOAD"] = ":".join([*preload, *filter(None, [os.environ.get("LD_PRELOAD")])])
    limits = _limits(change)
    if limits:
        words = ["/bin/sh", "-c", f'{limits} && exec "$@"', "sh", *words]
    if variables:
        unset = [word for name, value in variables.items() if value is None for word in ("-u", name)]
        sets = [f"{name}={value}" for name, value in variables.items() if value is not None]
        words = ["/usr/bin/env", *unset, *sets, *words]
    return words


def at_start(statements: str) -> dict[str, str]:
    """Environment variables with which an interpreter runs these statements of Python before its program."""
    place = str(files("necropsy.confirm").joinpath("preload/python"))
    path = os.pathsep.join([place, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "NECROPSY_AT_START": statements}


def takes_variables(words: Sequence[str]) -> None:
    """A Python interpreter, which reads the variables."""
    if not Path(words[0]).name.startswith("python"):
        raise NecropsyError(f"{words[0]} is not a Python interpreter that can run code before the program")
    for word in words[1:]:
        if not word.startswith("-") or word in {"-", "--"}:
            break
        if not word.startswith("--") and set(word[1:]) & set("IES") and set(word[1:]) <= set("bBdEiIOqsSuvx"):
            raise NecropsyError(f"{words[0]} {word} does nothing before the program")


def _hook(name: str) -> Path:
    """A library to preload, built once per processor type from ``preload/NAME.c``."""
    path = Path(str(files("necropsy.confirm").joinpath(f"preload/{name}-{platform.machine()}.so")))
    if not path.is_file():
        raise NecropsyError(f"there is no build of preload/{name}.c for {platform.machine()}")
    return path


def _guard() -> str:
    guard_preload.check()
    return str(guard_preload.LIBRARY)


def filled(word: str, arguments: Mapping[str, str]) -> str:
    """``word`` with the value of each name for ``{NAME}``."""
    for name, value in arguments.items():
        word = word.replace("{" + name + "}", value)
    return word


def _limits(change: Change) -> str:
    steps = []
    for flag, number, what, value in (
        ("s", resource.RLIMIT_STACK, "stack", change.stack_limit),
        ("v", resource.RLIMIT_AS, "address space", change.address_space),
        ("d", resource.RLIMIT_DATA, "data segment", change.data_limit),
    ):
        if value is None:
            continue
        hard = resource.getrlimit(number)[1]
        beyond = hard != resource.RLIM_INFINITY and (value < 0 or value > hard)
        if beyond and not _may_raise():
            raise NecropsyError(f"the hard limit of the {what} is {hard >> 10:,} KiB here (ulimit -H -{flag})")
        soft = "" if beyond else " -S"
        steps.append(f"ulimit{soft} -{flag} {'unlimited' if value < 0 else shlex.quote(str(value // 1024))}")
    return " && ".join(steps)


_SYS_RESOURCE = 24
"""Bit of CAP_SYS_RESOURCE (capabilities(7)), which permits raising a hard limit."""


def _may_raise() -> bool:
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return held is not None and bool(int(held[1], 16) >> _SYS_RESOURCE & 1)
