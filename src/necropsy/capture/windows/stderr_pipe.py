"""The supervisor's side of ``--log pipe``: the pipe, the relay's process, and what takes its place."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from necropsy.capture.windows import pipe_relay

_STANDS, _IN, _OUT, _FIRST, _OVERLAPPED = 0, 0x1, 0x2, 0x80000, 0x40000000
_REJECT_REMOTE = 0x8
_WRITES = 0x40000000 | 0x80
"""GENERIC_WRITE and FILE_READ_ATTRIBUTES, as CreatePipe gives them."""
_OPEN_EXISTING = 3
_NEW_GROUP = 0x200
"""CREATE_NEW_PROCESS_GROUP: Ctrl-C is not for it."""
_PAUSE_S = 0.002
_PATIENCE_S, _NO_PATIENCE_S = 2.0, 0.05
_START_S = 30.0
"""So long a full machine may take to start the relay's Python, from the start of the run on, or to let it answer."""


class StderrPipe:
    """The pipe of one run. ``theirs`` is the end for the command, which may be inherited."""

    def __init__(self) -> None:
        """Start the relay. Raises OSError without a pipe or a process; nothing has been changed then."""
        self._api = pipe_relay.windows()
        name = f"necropsy-{os.getpid()}-{os.urandom(8).hex()}"
        self._ring = pipe_relay.RelayRing.named(name)
        self._data, self.theirs = self._pipe(f"{name}-data")
        self._questions, self._asks = self._pipe(f"{name}-ask")
        self._asked = 0
        self._late = False
        self._begun = time.monotonic()
        self._process = self._start(name)
        _inherit(self.theirs)
        threading.Thread(target=self._watch, daemon=True).start()

    def _pipe(self, name: str) -> tuple[int, int]:
        """Its reading end, for overlapped reads, and its writing end."""
        path = rf"\\.\pipe\{name}"
        ours = self._api.CreateNamedPipe(
            path, _IN | _FIRST | _OVERLAPPED, _REJECT_REMOTE, 1, pipe_relay.PIPE_SIZE, pipe_relay.PIPE_SIZE, 0, 0
        )
        theirs = self._api.CreateFile(path, _WRITES, 0, 0, _OPEN_EXISTING, 0, 0)
        return int(ours), int(theirs)

    def _start(self, name: str) -> Any:
        popen: Any = subprocess
        program = getattr(sys, "_base_executable", None) or sys.executable
        handles = [self._data, self._questions]
        info = popen.STARTUPINFO(lpAttributeList={"handle_list": handles})
        for one in handles:
            _inherit(one)
        try:
            return subprocess.Popen(
                [program, "-I", "-S", str(Path(pipe_relay.__file__)), *map(str, handles), name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                startupinfo=info,
                creationflags=_NEW_GROUP,
                # It may outlive the command, and a folder in which somebody stands cannot be removed.
                cwd=os.environ.get("SYSTEMROOT"),
            )
        finally:
            for one in handles:
                _inherit(one, inherit=False)

    def given(self) -> None:
        """The command has its end: ours is closed, so that the last of theirs ends the pipe."""
        self._api.CloseHandle(self.theirs)

    def _watch(self) -> None:
        code = self._process.wait()
        if code not in {pipe_relay.ALL_GONE, pipe_relay.TARGET_GONE}:
            # What it was asked when it was ended, it cannot answer.
            self._ring.answer(self._asked)
            with contextlib.suppress(OSError):
                code = pipe_relay.serve(self._data, self._questions, self._ring, pipe_relay.to_stderr)
        if code == pipe_relay.TARGET_GONE:
            # The command is told so by its next write, as it would have been.
            self._api.CloseHandle(self._data)

    def settle(self) -> bool:
        """Wait until all past writes have been passed on; false where nobody reads the target, or not for two seconds.

        Deaths must not wait for each other then. A relay that has not begun yet, or that a full machine does not let
        run, is different: the words of the program are still to come.
        """
        if self._process.poll() == pipe_relay.TARGET_GONE:  # it answers nobody any more
            return False
        while not self._ring.serving and time.monotonic() < self._begun + _START_S:
            time.sleep(_PAUSE_S)
        late, self._late = self._late, True
        limits = (_NO_PATIENCE_S, _NO_PATIENCE_S) if late else (_PATIENCE_S, _START_S)
        if not is_answered(self._ring, self._asked, *limits):
            return False
        self._asked += 1
        try:
            self._api.WriteFile(self._asks, self._asked.to_bytes(8, "little"))
        except OSError:
            return False
        self._late = not is_answered(self._ring, self._asked, *limits)
        return not self._late

    def tail(self) -> bytes:
        """The end of what has been passed on."""
        return self._ring.tail()


def is_answered(ring: pipe_relay.RelayRing, number: int, stands_s: float, longest_s: float) -> bool:
    """Wait for the answer; false if the relay is blocked in one write for ``stands_s``, or after ``longest_s``."""
    begun = since = time.monotonic()
    passed = ring.total
    while ring.answered < number:
        now = time.monotonic()
        if not ring.writing or ring.total != passed:
            since, passed = now, ring.total
        if now > since + stands_s or now > begun + longest_s:
            return False
        time.sleep(_PAUSE_S)
    return True


def _inherit(handle: int, *, inherit: bool = True) -> None:
    system: Any = os  # on Windows only it has the function
    system.set_handle_inheritable(handle, inherit)
