"""Commands under the supervisor, for its tests: started, watched from outside, and always cleaned up."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from necropsy.capture.linux.supervise import c_library
from necropsy.capture.linux.supervise.launch import RunRecord

DRIVE = str(Path(__file__).with_name("drive.py"))
LIMIT_S = 60.0
COMMAND = Path(sys.executable).with_name("necropsy")
"""What was installed: the launcher where there was a compiler, else the console script."""
BY_LAUNCHER = COMMAND.exists() and COMMAND.read_bytes()[:4] == b"\x7fELF"
"""Whether the tests can use the launcher. It was not built without a compiler, or by an installer of another kind."""
NECROPSY = [str(COMMAND), "run"] if BY_LAUNCHER else [sys.executable, "-m", "necropsy", "run"]
"""A run as a user starts it."""
C_LOOP = pytest.mark.skipif(
    c_library.load() is None, reason="there is no C loop: no compiler was there at installation"
)
LOOPS = [pytest.param("c", marks=C_LOOP), "python"]
"""Both loops of the tracer, as values of ``NECROPSY_LOOP``."""
CORES_HERE = pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text() != "core\n" or not resource.getrlimit(resource.RLIMIT_CORE)[1],
    reason="this kernel does not write cores into the program's folder",
)


def words(command: Sequence[str], record: Path | str = "", **options: Any) -> list[str]:
    return [sys.executable, DRIVE, str(record), json.dumps(options), *command]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def run(
    command: Sequence[str], *, popen: dict[str, Any] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    extra: dict[str, Any] = {"capture_output": True, "timeout": LIMIT_S, "stdin": subprocess.DEVNULL, **(popen or {})}
    return subprocess.run(words(command, **options), check=False, **extra)


def record_of(path: Path) -> RunRecord:
    with path.open("rb") as file:
        record = pickle.load(file)
    assert isinstance(record, RunRecord)
    return record


def run_and_record(
    command: Sequence[str], folder: Path, *, popen: dict[str, Any] | None = None, **options: Any
) -> tuple[subprocess.CompletedProcess[bytes], RunRecord]:
    path = folder / "record"
    done = run(command, popen=popen, record=path, **options)
    return done, record_of(path)


def until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, ...; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def state(pid: int) -> str | None:
    fields = stat_of(pid)
    return fields[0] if fields else None


def is_alive(pid: int) -> bool:
    return state(pid) not in {None, "Z", "X"}


def children(pid: int) -> dict[int, str]:
    """Living children by pid, with their names."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = stat_of(int(entry.name))
            if fields and int(fields[1]) == pid and fields[0] != "Z":
                with contextlib.suppress(OSError):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def named(pid: int, name: str) -> int:
    """The child of ``pid`` of this name, once there is one."""
    return int(until(lambda: next((one for one, comm in children(pid).items() if comm == name), 0), f"child {name}"))


def command_pid(front: int) -> int:
    """The supervised command: the front's child that is no helper, once it has been executed."""

    def find() -> int:
        for pid, name in children(front).items():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if not name.startswith("necropsy-") and DRIVE.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    return int(until(find, "the command"))


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def started(
    command: Sequence[str], *, popen: dict[str, Any] | None = None, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """The front's process; it, and everything in its session, is killed in the end."""
    extra: dict[str, Any] = {"stdin": subprocess.DEVNULL, **(popen or {})}
    front = subprocess.Popen(words(command, **options), start_new_session=True, **extra)
    try:
        yield front
    finally:
        session = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and (stat_of(int(entry.name)) or ["", "", "", "0"])[3] == str(front.pid)
        ]
        kill(*session, *children(front.pid), front.pid)
        front.wait()
        for stream in (front.stdin, front.stdout, front.stderr):
            if stream is not None:
                stream.close()


class Terminal:
    """A command whose terminal is in our hands."""

    def __init__(self, command: Sequence[str]) -> None:
        self.seen = b""
        self.ended = False
        self.pid, self.end = os.forkpty()
        if not self.pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvp(command[0], list(command))

    def __enter__(self) -> Terminal:  # noqa: PYI034 - typing.Self needs 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            kill(*children(self.pid), self.pid)
            os.waitpid(self.pid, 0)
        os.close(self.end)

    def type(self, keys: bytes) -> None:
        os.write(self.end, keys)

    def read(self, wait_s: float = 0.05) -> bytes:
        deadline = time.monotonic() + 0.2  # a command that never pauses would hold us here
        while time.monotonic() < deadline and select.select([self.end], [], [], wait_s)[0]:
            try:
                data = os.read(self.end, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        return self.seen

    def rest(self) -> bytes:
        """All that was written before the end: what lies in the terminal already is not waited for."""
        while select.select([self.end], [], [], 0.05)[0]:
            try:
                data = os.read(self.end, 65536)
            except OSError:  # EIO: nobody has the terminal any more, and all is read
                break
            self.seen += data
        return self.seen

    def expect(self, text: bytes, times: int = 1) -> None:
        def there() -> bool:
            return self.read(0.02).count(text) >= times

        try:
            until(there, "")
        except AssertionError:
            raise AssertionError(f"{text!r} ({times} times) not in {self.seen!r}") from None

    def wait(self) -> int:
        """The wait status."""

        def ended() -> tuple[int] | None:
            self.read(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ended = self.ended or bool(pid)
            return (status,) if pid else None

        return int(until(ended, "the end")[0])
