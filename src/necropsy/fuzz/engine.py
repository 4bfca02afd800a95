"""Makes calls in forked workers of the target's interpreter, and says how each ended.

The fork server (``target/server.py``) loads the target once. A batch of calls costs a write and a read; the results
lie in memory that the worker shares with this process: a death costs only the call that died, and it is known which.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from necropsy import sandbox
from necropsy.capture.linux.supervise import guard_preload
from necropsy.errors import NecropsyError
from necropsy.fuzz.cheap_signature import Death, death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.function_names import FunctionNames
from necropsy.fuzz.limits import Limits, limits_of
from necropsy.fuzz.target import server
from necropsy.fuzz.target.worker import ACCEPTED, COMPARED, FIRST, HEAD, MOST, RECORD, REFUSED, SHARED
from necropsy.json_lines import Answers
from necropsy.model import Gap
from necropsy.temporary_folders import TemporaryFolder

START_S = 180.0
"""Seconds that loading the target may take."""
_WORKER_S = 60.0
"""Seconds in which a worker must have begun with its first call."""
_TICK_S, _LOG = 0.05, 8000
_MOST_BATCHES = 50
"""After so many a worker is replaced: what a target or a framework does not release would use up its memory."""
QUIET = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "OPENBLAS_NUM_THREADS": "1",  # without it `import numpy` starts threads, and a fork would lose them
    "PYTHONDONTWRITEBYTECODE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
}
_COMPARED, _NAMES = struct.Struct("=q"), ("results", "batch", "messages", "log")

Call = tuple[str, str]
"""What is called, and its keyword arguments, as texts of Python."""


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    ``kind``: ``accepted``, ``refused``, ``misused`` (its arguments do not fit), ``died``, ``slow``, ``hungry`` or
    ``stopped``. ``message`` and ``digest`` are hashes of the error and of the result, ``size`` its bytes.
    """

    kind: str
    message: str | None = None
    digest: str | None = None
    seconds: float = 0.0
    death: Death | None = None
    size: int = 0


class RefusedTargetError(NecropsyError):
    """The target cannot be loaded; ``what``: ``framework``, ``library``, ``op`` or ``module``."""

    def __init__(self, what: str, text: str) -> None:
        self.what = what
        super().__init__(text)


class Engine:
    """A fork server with at most one worker, until it is closed."""

    lacks: Gap | None = None
    """What its calls cannot be made with, in one gap; None where it makes them in all configurations."""
    is_traced = True
    """It is known where workers die; without ptrace, only of which signal."""

    def __init__(
        self,
        python: str,
        target: Mapping[str, Any],
        limits: Limits | None = None,
        *,
        guard: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Load the target; with ``guard`` behind the guard allocator, which guards nothing in plain workers.

        ``variables``: more of the environment.

        Raises:
            RefusedTargetError: it cannot be loaded there.
            NecropsyError: the interpreter cannot be run, or ended.

        """
        self.limits = limits or Limits()
        self.configuration = PLAIN
        self._one_thread = False
        self.texts: dict[str, str] = {}
        """The messages that were seen, by their hashes."""
        self.is_stopped: Callable[[], bool] = lambda: False
        """Asked while calls are made: whether nobody wants more of them. The call in progress ends as ``stopped``."""
        self.starts = 0
        """Workers that were forked."""
        self._folder = TemporaryFolder("necropsy-calls-")
        self._files = {name: os.memfd_create(f"necropsy-{name}", 0) for name in _NAMES}
        os.posix_fallocate(self._files["results"], 0, SHARED)
        self._shared = mmap.mmap(self._files["results"], SHARED)
        self._wake, self._done = os.pipe(), os.pipe()
        descriptors = {**self._files, "wake": self._wake[0], "done": self._done[1]}
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._batches = 0
        self._read_messages = 0
        self._guards_small_inputs = "function" in target
        """Whether small blocks are guarded while inputs are made. Tensors, whose blocks are aligned, always are."""
        self.guards_handles = False
        """Whether all small blocks are guarded then: many are allocated before the resource behind a handle."""
        library = target.get("library") or target.get("sanitized")
        self._names = FunctionNames(Path(library)) if library is not None else None
        options = {"target": dict(target), "descriptors": descriptors, "parent": os.getpid()}
        try:
            pid = self._start(python, options, tuple(descriptors.values()), guard=guard, more=variables or {})
        except BaseException:
            self.close()
            raise
        if limits is None:
            self.limits = limits_of(pid, is_python="function" in target)

    def _start(
        self,
        python: str,
        options: Mapping[str, Any],
        kept: tuple[int, ...],
        *,
        guard: bool,
        more: Mapping[str, str],
    ) -> int:
        """Start the process that forks the workers; its number."""
        words = [
            *(sys.executable, "-I", "-S", str(Path(sandbox.__file__)), str(self._folder.path), "--"),
            *(python, str(Path(server.__file__)), json.dumps(options)),
        ]
        variables = {name: value for name, value in os.environ.items() if name != "NECROPSY_WATCHER"}
        variables |= {"TMPDIR": str(self._folder.path), **QUIET, **more}
        if guard:
            variables = _with_guard(variables)
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.path,
                env=variables,
                pass_fds=kept,
                start_new_session=True,
            )
        except OSError as error:
            raise NecropsyError(f"cannot run {python}: {error.strerror}") from error
        self._stdin, self._stdout = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._answers = Answers(self._stdout, "the process that loads the target")
        first = self._answers.next(START_S)
        if "refused" in first:
            raise RefusedTargetError(first["what"], first["refused"])
        self.offered: dict[str, Any] = first["offered"]
        self.imports: tuple[str, ...] = tuple(first["imports"])
        """The large modules that the target needs."""
        self._takes_arrays = self.offered.get("function", {}).get("arrays", False)
        self.python_version: str = first["python"]
        self.has_guard: bool = first["guard"]
        """Guarded configurations can be used."""
        return self._process.pid

    # ------------------------------------------------------------ calls

    def run(self, calls: Sequence[Call], *, fresh: bool = False, compare: bool = False) -> list[Ended]:
        """Make calls one after the other until one ends the worker: how each ended, the last one's end among them.

        ``fresh``: in a worker that has made no call before. ``compare``: each call is made several times, and its
        message is what that showed (``target/comparing.py``). Raises ``NecropsyError`` if the fork server was lost.
        """
        if len(calls) > MOST:
            raise ValueError(f"a batch has {MOST} calls at most")
        self._ready(fresh=fresh)
        self._shared[FIRST : FIRST + len(calls) * RECORD.size] = bytes(len(calls) * RECORD.size)
        HEAD.pack_into(self._shared, 0, -1, 0.0)
        self._send(json.dumps({"calls": list(calls), "compare": compare, **self._how()}).encode())
        ended = self._wait()
        made = self._results(len(calls))
        self._collect_messages()
        if ended is not None and len(made) < len(calls):
            made.append(ended)
        return made

    def _ready(self, *, fresh: bool) -> None:
        if fresh or self._batches >= _MOST_BATCHES:
            self.end_worker()
        if self._pid is None:
            self._fork()
        self._batches += 1

    def _send(self, batch: bytes) -> None:
        os.ftruncate(self._files["batch"], 0)
        os.pwrite(self._files["batch"], batch, 0)
        os.write(self._wake[1], b".")

    def _how(self) -> dict[str, Any]:
        """The configuration, for the worker."""
        how = self.configuration
        made = {"stack": how.stack, "graph": how.graph, "threads": None if how.threads is None else asdict(how.threads)}
        if how.guard is None:
            return {**made, "guard": None}
        inputs = how.small_blocks if self._guards_small_inputs else 0
        inputs = -1 if self.guards_handles and how.small_blocks else inputs
        guard = {"begin": how.guard == "begin", "inputs": inputs, "call": how.small_blocks}
        return {**made, "guard": guard}

    def _wait(self) -> Ended | None:
        """Wait until the batch is done; where the worker ended instead, how its last call did."""
        out, since = self._stdout.fileno(), time.monotonic()
        why = None
        while True:
            ready, _, _ = select.select([self._done[0], out], [], [], _TICK_S)
            if self._done[0] in ready:
                os.read(self._done[0], 64)
                return None
            if out in ready or self._answers.has_line:
                return self._gone(self._answers.next(_WORKER_S), why)
            at, began = HEAD.unpack_from(self._shared, 0)
            now = time.monotonic()
            if why is not None:
                continue
            if self.is_stopped():
                why = "stopped"
            elif now - (began if at >= 0 else since) > (self.limits.seconds if at >= 0 else _WORKER_S):
                why = "slow"
            elif self._resident() > self.limits.resident:
                why = "hungry"
            if why is not None and self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def _gone(self, answer: Mapping[str, Any], why: str | None) -> Ended:
        self._pid = None
        self._drain()
        _, began = HEAD.unpack_from(self._shared, 0)
        seconds = max(0.0, time.monotonic() - began) if began else 0.0
        if why is not None:
            return Ended(why, seconds=seconds)
        place = self._names.of(answer.get("place")) if self._names is not None else answer.get("place")
        found = death({**answer, "place": place}, self.log())
        if found.is_for_want_of_memory:
            return Ended("hungry", seconds=seconds, death=found)
        return Ended("died", seconds=seconds, death=found)

    def _results(self, many: int) -> list[Ended]:
        found = []
        for at in range(many):
            status, message, digest, seconds, size = RECORD.unpack_from(self._shared, FIRST + at * RECORD.size)
            if not status:
                break
            kind = {ACCEPTED: "accepted", REFUSED: "refused"}.get(status, "misused")
            found.append(
                Ended(
                    kind,
                    message=message.hex() if any(message) else None,
                    digest=digest.hex() if status == ACCEPTED else None,
                    seconds=seconds,
                    size=size,
                )
            )
        return found

    def _collect_messages(self) -> None:
        size = os.fstat(self._files["messages"]).st_size
        data = os.pread(self._files["messages"], size - self._read_messages, self._read_messages)
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            with contextlib.suppress(ValueError, KeyError):
                noted = json.loads(line)
                self.texts.setdefault(noted["digest"], noted["text"])
        self._read_messages += whole

    @property
    def compared(self) -> list[int]:
        """The constants that the calls so far were compared with, if the library was built to collect them."""
        many = _COMPARED.unpack_from(self._shared, COMPARED)[0]
        whole = range(COMPARED + 8, COMPARED + 8 + min(many, (SHARED - COMPARED) // 8 - 1) * 8, 8)
        return [_COMPARED.unpack_from(self._shared, at)[0] for at in whole]

    def forget_compared(self) -> None:
        """Collect the constants anew."""
        _COMPARED.pack_into(self._shared, COMPARED, 0)

    def log(self) -> str:
        """The end of what the last worker wrote to stdout and stderr."""
        size = os.fstat(self._files["log"]).st_size
        return os.pread(self._files["log"], _LOG, max(0, size - _LOG)).decode("utf-8", "replace")

    # ------------------------------------------------------------ processes

    def _fork(self) -> None:
        self._drain()
        request = {"data": self.limits.data, "one_thread": self._one_thread}
        try:
            self._stdin.write(json.dumps(request).encode() + b"\n")
            self._stdin.flush()
        except OSError as error:
            raise NecropsyError("the process that forks the workers ended unexpectedly") from error
        answer = self._answers.next(_WORKER_S)
        self._pid, self.is_traced, self._batches = answer["pid"], answer["traced"], 0
        self.starts += 1

    def _drain(self) -> None:
        """Leave nothing of a dead worker's batch for the next one."""
        for reading in (self._wake[0], self._done[0]):
            while select.select([reading], [], [], 0)[0]:
                os.read(reading, 4096)

    def _resident(self) -> int:
        from necropsy.capture.linux.inspect.resource_use import resident  # not for Windows

        return (resident(self._pid) if self._pid is not None else None) or 0

    def limit_seconds(self, seconds: float) -> None:
        """Set the time limit of a call."""
        self.limits = replace(self.limits, seconds=seconds)

    def limit_data(self, data: int | None) -> None:
        """Set the memory that the next worker may ask for; what it uses is watched all the same."""
        if data != self.limits.data:
            self.end_worker()
            self.limits = replace(self.limits, data=data)

    def use(self, configuration: Configuration) -> None:
        """Make the next calls so."""
        if self._takes_arrays and configuration.guard != self.configuration.guard:
            self.end_worker()  # NumPy uses the memory of earlier arrays again
        self.configuration = configuration

    def use_one_thread(self, *, wanted: bool) -> None:
        """Let an op's work be done by one thread, in the next worker."""
        self.end_worker()
        self._one_thread = wanted

    def end_worker(self) -> None:
        """Let the next call begin in a new worker."""
        if self._pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._pid = None
        self._answers.next(_WORKER_S)

    def close(self) -> None:
        """End all of its processes."""
        process, self._process = self._process, None
        if process is not None:
            pid, self._pid = self._pid, None
            for one in (pid, process.pid):
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(one or process.pid, signal.SIGKILL)
            process.communicate()
        for handle in (*self._files.values(), *self._wake, *self._done):
            with contextlib.suppress(OSError):
                os.close(handle)
        self._files, self._wake, self._done = {}, (-1, -1), (-1, -1)
        self._folder.close()


def _with_guard(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process in which the guard allocator waits to be armed."""
    entries = guard_preload.added(os.fsencode(f"{name}={value}") for name, value in variables.items())
    pairs = (os.fsdecode(one).partition("=") for one in entries)
    return {**{name: value for name, _, value in pairs}, guard_preload.OPTIONS: "disarmed,small=1,large=1"}
