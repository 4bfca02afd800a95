"""Trials without a fresh start: forks of one interpreter that has done the program's imports.

Only where that is safe, and only for changes that a running interpreter can still take: other arguments. Variables are
read while modules are imported, and the size of a thread's stack when the program starts: those need a fresh process. A
fork is not watched by necropsy: it says by which signal it died, and no more; what a death was, fresh ones say.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from necropsy.errors import NecropsyError
from necropsy.model import Change, Outcome

START_S = 120.0
"""Seconds that the imports may take."""
# With one thread OpenBLAS makes no pool when numpy is imported; its pool would be fork-aware, but is one less to trust.
_QUIET = {"OPENBLAS_NUM_THREADS": "1"}


class UnsafeError(NecropsyError):
    """A fork of this program would not be what a fresh start is."""


class ForkServer:
    """The interpreter, imports done; raises ``UnsafeError`` if there is no script, or imports fail or start threads."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        options, self.script = script_of(command, folder)
        self._process = subprocess.Popen(
            # The keeper sees to it that no fork outlives the campaign.
            [
                *(sys.executable, "-I", "-S", str(Path(__file__).with_name("subreaper.py")), str(os.getpid())),
                *(command[0], *options, str(Path(__file__).with_name("fork_server.py")), self.script),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**environment, **_QUIET},
            start_new_session=True,
        )
        self._rest = b""
        ready = self._answer(START_S)
        if ready is None:
            self.close()
            raise UnsafeError("its imports do not work alone in a fresh interpreter")
        if ready["threads"] != 1:
            self.close()
            raise UnsafeError(f"its imports leave {ready['threads']} threads running, which a fork would lose")
        self.imports_s = float(ready["imports_s"])

    def run(self, arguments: Sequence[str], timeout_s: float) -> tuple[int, bool] | None:
        """The wait status of one run with ``arguments``, and whether the time limit ended it; None: no answer came."""
        request = json.dumps({"argv": list(arguments), "timeout": timeout_s}).encode() + b"\n"
        stdin = self._process.stdin
        if stdin is None:
            return None
        try:
            stdin.write(request)
            stdin.flush()
        except OSError:
            return None
        answer = self._answer(timeout_s + 10)
        return None if answer is None else (int(answer["status"]), bool(answer["timed_out"]))

    def close(self) -> None:
        """End it and all its forks."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.terminate()
        self._process.wait()

    def _answer(self, seconds: float) -> dict[str, float] | None:
        stream = self._process.stdout
        if stream is None:
            return None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                return None
            data = os.read(stream.fileno(), 65536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            return None
        return answer if isinstance(answer, dict) else None


def script_of(command: Sequence[str], folder: Path) -> tuple[list[str], str]:
    """Split ``python [OPTIONS] SCRIPT ...`` into options and script; raises ``UnsafeError`` for other forms."""
    if not Path(command[0]).name.startswith("python"):
        raise UnsafeError(f"{command[0]} is not a Python interpreter")
    place = 1
    while place < len(command) and command[place].startswith("-"):
        if command[place] in {"-c", "-m", "-"}:
            raise UnsafeError(f"it is run by {command[place]}, not as a script")
        place += 2 if command[place] in {"-X", "-W"} else 1
    if place >= len(command) or not (folder / command[place]).is_file():
        raise UnsafeError("no script is in the command")
    return list(command[1:place]), command[place]


def takes(change: Change) -> bool:
    """The change is one that a running interpreter can still take: nothing but other arguments."""
    return bool(change.arguments) and change == Change(arguments=change.arguments)


def outcome(status: int, expected: str | None, *, timed_out: bool) -> Outcome:
    """What a wait status says, where the death that is looked for was by the signal ``expected``."""
    if timed_out:
        return "hangs"
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return "survives"
    return "same" if code < 0 and signal.Signals(-code).name == expected else "another"
