"""The start of ``necropsy run``: its plain forms are understood without click; nothing is loaded before its time."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from necropsy.errors import CommandNotFoundError, NotExecutableError

if TYPE_CHECKING:
    from pathlib import Path

    from necropsy.document import Ended
    from necropsy.outcome import Outcome

_FLAGS = frozenset({"--quiet", "--python-locals", "--full-memory", "--always", "--full"})
_LOGS = frozenset({"auto", "probe", "tap", "pty", "off"})


class RunCommand(NamedTuple):
    """What ``run`` was asked for; ``debug`` is for Windows."""

    command: tuple[str, ...]
    json_file: Path | None = None
    form: str = "text"
    out: Path | None = None
    full: bool = False
    output: Path | None = None
    quiet: bool = False
    timeout: float | None = None
    log: str = "auto"
    python_locals: bool = False
    full_memory: bool = False
    always: bool = False
    no_stacks_at: frozenset[str] = frozenset()
    debug: bool = True


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
        command=command,
        log=log,
        full="--full" in flags,
        quiet="--quiet" in flags,
        python_locals="--python-locals" in flags,
        full_memory="--full-memory" in flags,
        always="--always" in flags,
    )


def of_module(module: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command for ``-m MODULE``: by the `python` that the user would get by typing it.

    Inside of pipx or uvx that is not the one that runs us.
    """
    return (_python(), "-m", module, *arguments)


def of_code(code: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command for ``-c CODE``; see ``of_module``."""
    return (_python(), "-c", code, *arguments)


def _python() -> str:
    import shutil

    return shutil.which("python") or sys.executable


def run(wanted: RunCommand) -> int:
    """Run the command and return its exit code; where a signal killed it, die of the same signal.

    Raises:
        NecropsyError: it could not be run.

    """
    if sys.platform == "linux":
        # What is loaded now stays: looking through it for garbage takes a tenth of the start. See ``launch``.
        gc.disable()
        from necropsy.capture.linux.supervise import nested

        for_us = wanted.json_file or wanted.out or wanted.output or wanted.quiet or wanted.timeout or wanted.always
        if not for_us and nested.is_watched():
            with _advised(wanted.command):
                nested.step_aside(wanted.command)
    from necropsy.capture.run_options import RunOptions

    told = _told(wanted)
    options = RunOptions(
        timeout_s=wanted.timeout,
        log=wanted.log,
        python_locals=wanted.python_locals,
        always=wanted.always,
        keep=(*_kept_open(wanted.json_file), *_kept_open(wanted.out)),
        # Set by the keeper of an experiment's run, and nothing that the command should see.
        tied=os.environ.pop("NECROPSY_TIED", None) is not None,
        no_stacks_at=wanted.no_stacks_at,
        # A report of Ctrl-C is not printed, and not kept.
        at_terminal=bool(wanted.json_file or wanted.output),
        core="off" if _keeps_nothing() else "full" if wanted.full_memory else "small",
        loading=loading,
    )
    on_end = _guarded(told)
    with _advised(wanted.command):
        if sys.platform == "win32":
            from necropsy.capture.windows import launch as on_windows

            return on_windows.run(wanted.command, options, on_end, debug=wanted.debug)
        from necropsy.capture.linux.supervise import launch

        return launch.run(wanted.command, options, on_end)


@contextlib.contextmanager
def _advised(command: Sequence[str]) -> Iterator[None]:
    """Where the command cannot be started, the error says what was probably meant."""
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


def _kept_open(path: Path | None) -> tuple[int, ...]:
    """The file descriptor that the document is to be written to, if ``path`` names one."""
    if path is None:
        return ()
    from necropsy.outcome import descriptor_of

    return tuple(filter(None, [descriptor_of(path)]))


def _told(wanted: RunCommand) -> Callable[[Ended], None]:
    """What is done with the end of the run. Without paths, it is loaded when there is something to tell."""

    def load() -> Outcome:
        from necropsy.outcome import Outcome

        return Outcome(
            json_file=wanted.json_file,
            form=wanted.form,
            out=wanted.out,
            full=wanted.full,
            output=wanted.output,
            quiet=wanted.quiet,
            always=wanted.always,
            timeout=wanted.timeout,
        )

    # Paths are meant from where the user stands now.
    outcome = load() if wanted.json_file or wanted.out or wanted.output else None

    def on_end(ended: Ended) -> None:
        if outcome is not None or wanted.always or _has_news(ended):
            (outcome or load()).on_end(ended, wanted.command)

    return on_end


def _has_news(ended: Ended) -> bool:
    """Whether there can be a report: not where the command has ended with 0 and no process of it has died."""
    end = ended.processes[0].exit if ended.processes else None
    return bool(ended.crashes) or ended.timed_out or end is None or (end.kind, end.code) != ("exited", 0)


# One after the other: each piece delays what waits for the tracer, for some milliseconds at most.
_LIBRARIES = ("zlib", "random", "hashlib", "shutil", "tempfile", "importlib.resources", "tomllib")
_REPORT = (
    *("necropsy.predicates", "necropsy.frame_filter", "necropsy.signature", "necropsy.document"),
    *("necropsy.reports.wording", "necropsy.reports.stack", "necropsy.reports.text", "necropsy.reports.brief"),
    "necropsy.outcome",
)
_SECRETS = ("json", "zipfile", "necropsy.secrets.forms", "necropsy.secrets.text", "necropsy.secrets.commands")


def loading() -> Iterator[bool]:
    """Get ready what a report needs, piece by piece, while the command runs: true where the next is soon worth it.

    Never raises.
    """
    import importlib

    for name in (*_LIBRARIES, *_REPORT):
        with contextlib.suppress(Exception):  # the report will tell
            importlib.import_module(name)
        yield name != _REPORT[-1]
    for name in _SECRETS:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        yield False
    with contextlib.suppress(Exception):
        from necropsy import redact

        redact.text("password=")  # reads the table
        yield False
    with contextlib.suppress(Exception):
        from necropsy.rules import one_by_one

        for _ in one_by_one():
            yield False


def _guarded(step: Callable[[Ended], None]) -> Callable[[Ended], None]:
    """The same step, which tells in one line what goes wrong in it: the command's end must not depend on it."""

    def guarded(ended: Ended) -> None:
        try:
            step(ended)
        except Exception as error:  # noqa: BLE001 - in the tracer, where main's own `except` cannot reach
            from necropsy.cli.messages import tell

            tell(error)

    return guarded
