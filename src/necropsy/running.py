"""``necropsy.run`` and ``necropsy.profile``: a command under the supervisor, from a program that goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, overload

from necropsy import errors, supervised
from necropsy.capture.run_options import LogMode
from necropsy.consequences import command_of
from necropsy.crashed import Crashed, signal_name
from necropsy.document import news
from necropsy.errors import NecropsyError, NoInputError, OptionError
from necropsy.model import Document, Exit

if TYPE_CHECKING:
    from necropsy.profile.own_process import Profiled

__all__ = ["RunResult", "profile", "run"]

_NOTHING = (None, False, None, None, None, False, None)
_PATIENCE_S = 90.0
"""Seconds after the time limit in which the command is ended and reported on; then the supervisor is killed."""


@dataclass(frozen=True)
class RunResult:
    """How a command ended.

    ``returncode`` is that of ``subprocess``: the exit code, or minus the number of the signal. ``document`` has all
    that was seen of the run, whether or not it ended well; None where the supervisor was killed. ``stdout`` and
    ``stderr`` are None unless they were captured.
    """

    command: tuple[str, ...]
    returncode: int
    document: Document | None = field(default=None, repr=False)  # pages long
    timed_out: bool = False
    stdout: bytes | None = None
    stderr: bytes | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code; None where a signal ended the command."""
        return self.returncode if self.returncode >= 0 else None

    @property
    def signal(self) -> str | None:
        """The signal that ended the command, such as ``"SIGSEGV"``."""
        return signal_name(-self.returncode) if self.returncode < 0 else None

    @property
    def report(self) -> Document | None:
        """The document with only what ``necropsy run`` would print; None where it would print nothing."""
        if self.document is None:
            return None
        shown = news(self.document, timed_out=self.timed_out)
        return shown if shown.reports else None

    def check(self) -> None:
        """Raise where the command died natively.

        Raises:
            necropsy.Crashed: a signal killed it (a time limit does not count), or on Windows an exception.

        """
        if self.timed_out:
            return
        if self.document is None:
            if self.signal is not None:
                raise Crashed.without_report(signal=self.signal)
        elif _end_of(self.document).kind == "signaled" or _end_of(self.document).ntstatus is not None:
            raise Crashed.of(self.document)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout: float | None = None,
    check: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - as subprocess.run has it
    capture_output: bool = False,
    log: LogMode = "auto",
    python_locals: bool = False,
    guard: bool = False,
    reports: str | os.PathLike[str] | None = None,
) -> RunResult:
    """Run a command under necropsy's supervision, and wait for its end.

    The supervisor is a process of its own: this process is not forked, and its signals and files stay as they are.

    ``timeout``: seconds after which the command and its children are stopped; then ``timed_out`` is true, and the
    document says where they stood. ``check``: raise ``Crashed`` where the command dies natively. ``cwd``, ``env``: its
    working directory and environment, as of ``subprocess.run``. ``input``: its standard input; without it, the
    command has that of this process. ``capture_output``: keep what it writes, in ``stdout`` and ``stderr``; they are
    files then. ``log``: how the end of its stderr is read for the report. ``python_locals``: keep the local variables
    of Python frames; they may hold secrets. ``guard``: find accesses beyond the ends of buffers, as `run --guard` does
    (Linux). ``reports``: the folder for the report, instead of the usual one.

    Raises:
        necropsy.Crashed: with ``check``, the command died natively.
        necropsy.errors.CommandNotFoundError: there is no such command.
        necropsy.errors.NotExecutableError: the system does not run that file.
        necropsy.errors.OptionError: an argument is not what it should be.
        necropsy.errors.NoInputError: there is no folder ``cwd``.
        necropsy.errors.NecropsyError: it could not be started.

    """
    modes = ("auto", "pipe", "off") if sys.platform == "win32" else ("auto", "probe", "tap", "pty", "off")
    if log not in modes:
        raise OptionError(f"log is one of {', '.join(modes)} here, not {log!r}")
    options = ["--log", log, *(["--python-locals"] if python_locals else []), *(["--guard"] if guard else [])]
    return _supervised(
        "run",
        command,
        options,
        timeout=timeout,
        check=check,
        cwd=cwd,
        env=env,
        given=input,
        reports=reports,
        capture_output=capture_output,
    )


@overload
def profile(
    command: Sequence[str | os.PathLike[str]],
    *,
    interval: float = ...,
    heap: Literal["off", "memray", "memray-native", "sample"] = ...,
    timeout: float | None = ...,
    check: bool = ...,
    cwd: str | os.PathLike[str] | None = ...,
    env: Mapping[str, str] | None = ...,
    input: bytes | None = ...,
    capture_output: bool = ...,
    reports: str | os.PathLike[str] | None = ...,
) -> RunResult: ...


@overload
def profile() -> Profiled: ...


def profile(
    command: Sequence[str | os.PathLike[str]] | None = None,
    *,
    interval: float = 0.1,
    heap: Literal["off", "memray", "memray-native", "sample"] = "off",
    timeout: float | None = None,
    check: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - as subprocess.run has it
    capture_output: bool = False,
    reports: str | os.PathLike[str] | None = None,
) -> RunResult | Profiled:
    """Run a command as ``run`` does, and measure how close it comes to its limits (Linux).

    ``document.processes`` has the stack peaks of each thread (``stacks``), the memory over time (``memory``), the most
    of each resource (``peaks``) and the limits that are set (``limits``). ``document.findings`` are warnings of what
    came close. ``interval``: seconds between two looks. ``heap``: with ``memray``,
    ``memray-native`` or ``sample``, ``document.processes`` also says who allocated the memory of each Python process
    (``heap``). The other parameters are those of ``run``.

    Without a command: ``with necropsy.profile() as profiled:`` measures how deep the stacks of this process itself get
    during the block, and its memory.

    Raises:
        necropsy.Crashed: with ``check``, the command died natively.
        necropsy.errors.CommandNotFoundError: there is no such command.
        necropsy.errors.NotExecutableError: the system does not run that file.
        necropsy.errors.OptionError: an argument is not what it should be.
        necropsy.errors.NoInputError: there is no folder ``cwd``.
        necropsy.errors.NecropsyError: it could not be started, or the system is not Linux.

    """
    if sys.platform != "linux":
        raise NecropsyError("necropsy.profile works on Linux only so far")
    if command is None:
        if (interval, heap, timeout, check, cwd, env, input, capture_output, reports) != (0.1, "off", *_NOTHING):
            raise OptionError("without a command, necropsy.profile() takes no arguments: use it in a `with` statement")
        from necropsy.profile.own_process import Profiled

        return Profiled()
    if not 0.01 <= interval < float("inf"):
        raise OptionError(f"the interval is a number of seconds, 0.01 or more, not {interval!r}")
    if heap not in {"off", "memray", "memray-native", "sample"}:
        raise OptionError(f"heap is off, memray, memray-native or sample, not {heap!r}")
    options = ["--interval", str(interval), "--heap", heap]
    return _supervised(
        "profile",
        command,
        options,
        timeout=timeout,
        check=check,
        cwd=cwd,
        env=env,
        given=input,
        reports=reports,
        capture_output=capture_output,
    )


def _supervised(
    verb: Literal["run", "profile"],
    command: Sequence[str | os.PathLike[str]],
    options: Sequence[str],
    *,
    timeout: float | None,
    check: bool,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    given: bytes | None,
    reports: str | os.PathLike[str] | None,
    capture_output: bool,
) -> RunResult:
    words = _words(command)
    if timeout is not None and not 0 < timeout < float("inf"):
        raise OptionError(f"the timeout is a number of seconds above 0, not {timeout!r}")
    # Where the supervisor has to be killed, the command goes with it.
    variables = {**(os.environ if env is None else env), "NECROPSY_TIED": "1"}
    if reports is not None:
        variables["NECROPSY_OUTPUT"] = str(Path(reports).absolute())
    if timeout is not None:
        options = [*options, "--timeout", str(timeout)]
    with tempfile.TemporaryDirectory(prefix="necropsy-") as name:
        folder = Path(name)
        failure = folder / "failure.json"
        start = supervised.command(folder / "report.json", None, [*options, "--failure", str(failure)], verb=verb)
        if not start:
            raise NecropsyError("necropsy.run works on Linux and Windows only so far")
        with _files(folder, given, capture_output=capture_output) as files:
            code, killed = _wait([*start, *words], timeout, files, cwd, variables)
        document = supervised.document(folder / "report.json")
        if document is None:
            _raise_failure(failure)
        result = RunResult(
            command=words,
            returncode=code,
            document=document,
            timed_out=killed or (document is not None and _end_of(document).kind == "timeout"),
            stdout=(folder / "stdout").read_bytes() if capture_output else None,
            stderr=(folder / "stderr").read_bytes() if capture_output else None,
        )
    if check:
        result.check()
    return result


def _end_of(document: Document) -> Exit:
    own = command_of(document.processes)
    return own.exit if own is not None and own.exit is not None else Exit(kind="unknown")


def _words(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Raises ``OptionError`` if the command is empty, or not a sequence of texts and paths."""
    if isinstance(command, str | bytes):
        raise OptionError('the command is a list of words, such as ["python", "train.py"]')
    words = tuple(os.fsdecode(word) for word in command)
    if not words or any("\0" in word for word in words):
        raise OptionError('the command is a list of words without NUL, such as ["python", "train.py"]')
    return words


@contextmanager
def _files(folder: Path, given: bytes | None, *, capture_output: bool) -> Iterator[dict[str, IO[bytes]]]:
    """The command's standard files that differ from those of this process.

    Files, not pipes: the report can read the end of stderr, and a surviving child does not block the reader.
    """
    opened: dict[str, IO[bytes]] = {}
    try:
        if given is not None:
            (folder / "stdin").write_bytes(given)
            opened["stdin"] = (folder / "stdin").open("rb")
        if capture_output:
            # Appending: the file offset is shared with all that the command starts, and nobody truncates.
            opened["stdout"] = (folder / "stdout").open("ab")
            opened["stderr"] = (folder / "stderr").open("ab")
        yield opened
    finally:
        for file in opened.values():
            file.close()


def _wait(
    command: Sequence[str],
    timeout: float | None,
    files: Mapping[str, IO[bytes]],
    cwd: str | os.PathLike[str] | None,
    variables: Mapping[str, str],
) -> tuple[int, bool]:
    """The supervisor's exit status, and whether it was killed for exceeding the time limit; an interrupt ends both."""
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=variables,
            stdin=files.get("stdin"),
            stdout=files.get("stdout"),
            stderr=files.get("stderr"),
        )
    except (OSError, ValueError) as error:
        if cwd is not None and not Path(cwd).is_dir():
            raise NoInputError(f"there is no folder {cwd}") from None
        raise NecropsyError(f"cannot start the supervisor: {error}") from error
    try:
        return process.wait(None if timeout is None else timeout + _PATIENCE_S), False
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), True
    except BaseException:  # Ctrl-C, which a terminal has sent to the command as well
        process.terminate()
        try:
            process.wait(supervised.GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _raise_failure(failure: Path) -> None:
    """Raise the error noted by the supervisor, if any, with the same class."""
    try:
        noted = json.loads(failure.read_bytes())
    except (OSError, ValueError):
        return
    kind = getattr(errors, noted["error"], NecropsyError)
    error: NecropsyError = kind(noted["message"])
    error.hint = noted["hint"]
    raise error
