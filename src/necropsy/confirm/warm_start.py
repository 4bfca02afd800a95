"""Starts ``necropsy run`` without loading it each time: a fully loaded process forks for each run.

Loading takes several times as long as the report itself, and a campaign is dozens of runs. The forks match
``python -m necropsy run``: same environment, working directory and descriptors. Each has its keeper (``subreaper``).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from necropsy.capture.linux.supervise import descriptors
from necropsy.confirm import subreaper

_SERVE = """\
import importlib, sys
sys.path[:1] = []
module, name = sys.argv[2].split(":")
main = getattr(importlib.import_module(module), name)
from necropsy import reporting
from necropsy.capture.linux.supervise import crash_capture, launch
from necropsy.cli import start
from necropsy.confirm import warm_start
for steps in (crash_capture.loading(), crash_capture.warming(), reporting.loading()):
    for _ in steps:
        pass
warm_start.serve(int(sys.argv[1]), main)
"""
_STOP = b"stop"
_MOST = 1 << 17
"""Octets of a request: less than a socket takes at once."""


class WarmStartError(Exception):
    """A run has to be started from nothing: the system cannot do it, or the server is gone."""


class WarmStart:
    """The server, seen from the campaign; it ends with it.

    ``environment``, ``folder``: those of every run. ``main``: the function that is given the words, in a fork.
    ``before``: what the server's own command begins with (``setpriv ...``).
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        main: str = "necropsy.cli:main",
        before: Sequence[str] = (),
    ) -> None:
        """Start the server; raises ``WarmStartError`` if that fails."""
        if not hasattr(os, "pidfd_open"):
            raise WarmStartError("this Python cannot wait for a process and a request at once")
        self._way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*before, sys.executable, "-c", _SERVE, str(theirs.fileno()), main],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # the terminal's keys are the campaign's to answer
                )
            except OSError as error:
                self._way.close()
                raise WarmStartError(str(error)) from error

    def run(self, words: Sequence[str], files: Sequence[int], limit_s: float) -> tuple[int | None, float]:
        """Run ``necropsy WORDS`` with ``files`` as stdin, stdout and stderr; return exit status and CPU seconds.

        The status is None after ``limit_s``; the seconds include all child processes. Raises ``WarmStartError`` if
        nothing was run.
        """
        request = json.dumps(list(words)).encode("utf-8", "surrogateescape")
        if len(request) > _MOST:
            raise WarmStartError("too many words")
        try:
            socket.send_fds(self._way, [request], list(files))
            if self._way.recv(1) == b"":
                raise WarmStartError("the server has ended")
        except OSError as error:
            raise WarmStartError(str(error)) from error
        try:
            ready, _, _ = select.select([self._way], [], [], limit_s)
            if not ready:
                self._way.send(_STOP)
            answer = self._way.recv(_MOST)
        except BaseException:
            self.close()  # the run ends with the server
            raise
        if not answer:
            return None, 0.0
        status, cpu_s = json.loads(answer)
        return status if ready else None, cpu_s

    def close(self) -> None:
        """End the server, and the run that it has begun."""
        self._way.close()
        with contextlib.suppress(OSError):
            self._process.wait()


def serve(handle: int, main: Callable[[Sequence[str]], int]) -> None:
    """Answer requests until the campaign is gone. ``main``: the command line."""
    way = socket.socket(fileno=handle)
    while True:
        request, files, _, _ = socket.recv_fds(way, _MOST, 3)
        if not request:
            return
        if request == _STOP:  # it came when the run had ended
            continue
        status, cpu_s = _answered(way, json.loads(request.decode("utf-8", "surrogateescape")), files, main)
        try:
            way.send(json.dumps([status, cpu_s]).encode())
        except OSError:
            return


def _answered(
    way: socket.socket, words: Sequence[str], files: Iterable[int], main: Callable[[Sequence[str]], int]
) -> tuple[int, float]:
    ours = os.getpid()
    pid = os.fork()
    if not pid:
        _keep(ours, files, lambda: main(words))
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):
        way.send(b"x")
    return _ended(pid, way)


def _ended(pid: int, way: socket.socket) -> tuple[int, float]:
    """Wait for the keeper, or end it if the campaign says so or is gone; status, and seconds of all processes."""
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle, way.fileno()], [], [])
        if handle not in ready:
            os.kill(pid, signal.SIGTERM)
    finally:
        os.close(handle)
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def _keep(parent: int, files: Iterable[int], run: Callable[[], int]) -> NoReturn:
    """The fork: the keeper of one run."""
    status = 125
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        descriptors.keep_only({0, 1, 2})
        status = subreaper.keep(parent, lambda tie: _forked(tie, run))
    finally:
        os._exit(status)


def _forked(tie: Callable[[], None], run: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 125
    try:
        tie()
        os.environ[subreaper.TIED] = "1"
        status = run()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
