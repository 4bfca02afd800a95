"""The start of ``necropsy run``: its plain forms are understood without click; nothing is loaded before its time."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from necropsy.errors import CommandNotFoundError, NecropsyError, NotExecutableError
from necropsy.reporting import ReportRequest, descriptor_of, loading, report_end

if TYPE_CHECKING:
    from pathlib import Path

    from necropsy.model import RunRecord

_FLAGS = frozenset({"--quiet", "--python-locals", "--full-memory", "--always", "--full", "--guard"})
_LOGS = frozenset({"auto", "probe", "tap", "pty", "off"})


class RunCommand(NamedTuple):
    """What ``run`` was asked for; ``debug`` is for Windows."""

    report: ReportRequest
    log: str = "auto"
    python_locals: bool = False
    full_memory: bool = False
    no_stacks_at: frozenset[str] = frozenset()
    debug: bool = True
    guard: bool = False
    profile_s: float | None = None
    heap: str = "off"


def understood(words: Sequence[str]) -> RunCommand | None:
    """What click would understand; None where that is for click to say: an option that is rare, new or wrong."""
    if sys.platform != "linux":
        return None
    flags: set[str] = set()
    log, module, at = "auto", None, 0
    while at < len(words) and words[at].startswith("-") and module is None:
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in _FLAGS and not equals:
            flags.add(name)
        elif word == "-c":
            return None
        elif name in {"--log", "-m"} and not (equals and name == "-m"):
            if not equals:
                if at == len(words):
                    return None
                value = words[at]
                at += 1
            if name == "-m":
                module = value
            elif value in _LOGS:
                log = value
            else:
                return None
        else:
            return None
    command = tuple(words[at:])
    if module is not None:
        command = of_module(module, command)
    if not command:
        return None
    return RunCommand(
        ReportRequest(command, full="--full" in flags, quiet="--quiet" in flags, always="--always" in flags),
        log=log,
        python_locals="--python-locals" in flags,
        full_memory="--full-memory" in flags,
        guard="--guard" in flags,
    )


def of_module(module: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command for ``-m MODULE``, with the `python` of PATH: under pipx or uvx, another one runs necropsy."""
    return (_python(), "-m", module, *arguments)


def of_code(code: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command for ``-c CODE``; see ``of_module``."""
    return (_python(), "-c", code, *arguments)


def _python() -> str:
    import shutil

    return shutil.which("python") or sys.executable


def run(wanted: RunCommand, failure: Path | None = None) -> int:
    """Run the command; return its exit code or die of its signal. Raises ``NecropsyError`` if it could not be run.

    ``failure``: the file that such an error is written to instead, for the library call that raises it again.
    """
    try:
        if wanted.heap.startswith("memray"):
            return _recorded(wanted)
        return _run(wanted)
    except NecropsyError as error:
        if failure is None:
            raise
        import json

        noted = {"error": type(error).__name__, "message": str(error), "hint": error.hint}
        failure.write_text(json.dumps(noted), encoding="utf-8")
        return error.exit_code


def _recorded(wanted: RunCommand) -> int:
    """As ``_run``, and memray records what is allocated. The reporter reads the recordings."""
    from necropsy.profile import memray_recording
    from necropsy.temporary_folders import TemporaryFolder, remove

    folder = TemporaryFolder("necropsy-heap-")
    try:
        native = wanted.heap == "memray-native"
        os.environ.update(memray_recording.variables(wanted.report.command, folder.path, native=native))
        asked = wanted.report._replace(heap=folder.path)
        return _run(wanted._replace(report=asked), keep=(folder.lock,) if folder.lock is not None else (), report_s=600)
    finally:
        remove(folder.path)  # its lock is the tracer's by now


def _run(wanted: RunCommand, keep: tuple[int, ...] = (), report_s: float = 60) -> int:
    """``keep``: descriptors that stay open until the report is written, which may take ``report_s``."""
    asked = wanted.report
    if sys.platform == "linux":
        # What is loaded now stays: looking through it for garbage takes a tenth of the start. See ``launch``.
        gc.disable()
        from necropsy.capture.linux.supervise import command

        if wanted.guard:
            from necropsy.capture.linux.supervise import guard_preload

            guard_preload.check()
        for_us = asked.json_file or asked.out or asked.output or asked.quiet or asked.timeout or asked.always
        if not for_us and command.is_watched():
            with _advised(asked.command):
                command.step_aside(asked.command, guard=wanted.guard)
    from necropsy.capture.run_options import RunOptions

    options = RunOptions(
        timeout_s=asked.timeout,
        log=wanted.log,
        python_locals=wanted.python_locals,
        always=asked.always,
        profile_s=wanted.profile_s,
        heap_sample=wanted.heap == "sample",
        keep=(*filter(None, map(descriptor_of, (asked.json_file, asked.html_file, asked.out))), *keep),
        report_s=report_s,
        # Set by the keeper of an experiment's run, and nothing that the command should see.
        tied=os.environ.pop("NECROPSY_TIED", None) is not None,
        no_stacks_at=wanted.no_stacks_at,
        guard=wanted.guard,
        # A report of Ctrl-C is not printed, and not kept.
        at_terminal=bool(asked.json_file or asked.output),
        core="off" if _keeps_nothing() else "full" if wanted.full_memory else "small",
        loading=loading,
    )
    report = partial(on_end, asked.absolute())
    with _advised(asked.command):
        if sys.platform == "win32":
            from necropsy.capture.windows import launch as on_windows

            return on_windows.run(asked.command, options, report, debug=wanted.debug)
        from necropsy.capture.linux.supervise import launch

        return launch.run(asked.command, options, report)


def on_end(request: ReportRequest, ended: RunRecord) -> None:
    """Report the end of the command, in the reporter process; an error is one line on stderr."""
    try:
        report_end(request, ended)
    except Exception as error:  # noqa: BLE001 - main's own `except` is in another process
        from necropsy.cli.messages import tell

        tell(error)


@contextlib.contextmanager
def _advised(command: Sequence[str]) -> Iterator[None]:
    """If the command cannot be started, add a suggestion to the error."""
    try:
        yield
    except (CommandNotFoundError, NotExecutableError) as error:
        from necropsy.cli import suggestions

        suggestions.advise(error, command)
        raise


def _keeps_nothing() -> bool:
    if "NECROPSY_KEEP" not in os.environ:
        return False
    from necropsy import store

    return store.limit() == 0
