"""One of several processes that fuzz at the same time: it loads the target once, and runs campaigns on its ops.

``Slot`` is the side of those who want them, ``main`` the process itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from necropsy.errors import NecropsyError
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.op_campaigns import Interrupts, Options, campaigns, loaded
from necropsy.fuzz.opened_target import OpenTarget, chosen
from necropsy.fuzz.recorded_calls import Recorded
from necropsy.model import Document

_START = "from necropsy.fuzz import slot; slot.main()"
_END_S = 5.0


@dataclass(frozen=True)
class Unit:
    """What a slot does in one go: a campaign on one op."""

    op: str
    seed: int


class SlotLostError(NecropsyError):
    """The process of a slot has ended."""


class Slot:
    """The process. It is in a process group of its own, so that Ctrl-C reaches it through ``interrupt`` only."""

    def __init__(self, target: str, options: Options) -> None:
        """Start it.

        Raises:
            NecropsyError: the system cannot start another process.

        """
        mine, other = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(other.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            mine.close()
            raise NecropsyError(f"cannot start another process: {error.strerror}") from error
        finally:
            other.close()
        self._connection = Connection(mine.detach())
        self._ops: tuple[OpDefinition, ...] | None = None
        self._connection.send((target, options))

    def ops(self) -> tuple[OpDefinition, ...]:
        """Wait until the target is loaded: the ops to fuzz.

        Raises:
            NecropsyError: it cannot be loaded, or the process ended.

        """
        if self._ops is None:
            self._ops = tuple(self._answer(lambda _text: None))
        return self._ops

    def run(self, unit: Unit, first: Recorded, watch: Callable[[str], None]) -> tuple[Document, bool]:
        """Run a campaign: its document, and whether it was interrupted.

        Raises:
            SlotLostError: the process ended.
            NecropsyError: the campaign failed.

        """
        try:
            self._connection.send((unit, first))
        except OSError as error:
            raise self._lost() from error
        answer: tuple[Document, bool] = self._answer(watch)
        return answer

    def _answer(self, watch: Callable[[str], None]) -> Any:
        try:
            while True:
                kind, content = self._connection.recv()
                if kind == "progress":
                    watch(content)
                elif kind == "failed":
                    raise content
                else:
                    return content
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def _lost(self) -> SlotLostError:
        return SlotLostError(f"process {self._process.pid}, which ran campaigns, ended unexpectedly")

    def interrupt(self) -> None:
        """End the campaign in order."""
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the process, and those that it has started."""
        self._connection.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Serve the process that has started this one, until it closes the connection or ends."""
    connection = Connection(int(sys.argv[1]))
    parent = int(sys.argv[2])
    with contextlib.suppress(OSError):
        threading.Thread(target=_end_with, args=(os.pidfd_open(parent),), daemon=True).start()
    if os.getppid() != parent:
        return
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            target, options = connection.recv()
            with loaded(target, options) as opened:
                connection.send(("ops", tuple(opened.ops)))
                _serve(connection, opened, options)
        except NecropsyError as error:
            connection.send(("failed", error))


def _end_with(process: int) -> NoReturn:
    """End when the process ends that has started this one; those that make the calls end with this one."""
    select.select([process], [], [])
    os._exit(1)


def _serve(connection: Connection, opened: OpenTarget, options: Options) -> None:
    def watch(text: str) -> None:
        connection.send(("progress", text))

    while True:
        unit, first = connection.recv()
        ops = chosen(opened.ops, (unit.op,), opened.name)
        with Interrupts() as interrupts:
            mine = replace(options, seed=unit.seed)
            document, interrupt = campaigns(opened, ops, mine, interrupts, watch, first=first)
        connection.send(("done", (document, interrupt is not None)))
