"""Who sent a signal: the process, its number here, and its command.

The kernel gives a sender's number in the receiver's PID namespace (pid_namespaces(7)): 7 there may be 4711 here. Of a
signal that necropsy's front passed on, it names the front.
"""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path

from necropsy.capture.linux.supervise import fatal_signals
from necropsy.capture.linux.supervise.crash_context import Sent
from necropsy.capture.linux.supervise.process_tree import ProcessTree
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced, command_of, status_of

_CODE, _SENDER = 8, 16
"""Where ``si_code`` and ``si_pid`` stand in ``siginfo_t``."""
SENT = frozenset({0, -1, -6})
"""SI_USER, SI_QUEUE, SI_TKILL."""
_MOST_THREADS = 256


class SignalSenders:
    """Finds them while the process that gets the signal still lives."""

    def __init__(self, members: ProcessTree, facts: Facts, front: int) -> None:
        self._members, self._facts, self._front = members, facts, front

    def note(self, process: Traced, signo: int, info: bytes | None) -> Sent:
        """Remember who sent the signal that is about to end the process; ``info`` is None after SIGKILL."""
        if signo not in process.sent:
            try:
                process.sent[signo] = self.of(process, signo, info)
            except (OSError, ValueError, struct.error):  # whatever /proc says: the signal itself is known
                process.sent[signo] = Sent(info)
        return process.sent[signo]

    def of(self, process: Traced, signo: int, info: bytes | None) -> Sent:
        """Who sent this signal, which need not end the process.

        Raises OSError, ValueError or struct.error where /proc or the kernel says something unexpected.
        """
        if info is None:
            itself = signo == signal.SIGKILL and _kills_itself(process.pid)
            return Sent(_made(signo, process.pid)) if itself else Sent()
        code, sender = (struct.unpack_from("<i", info, at)[0] for at in (_CODE, _SENDER))
        if code not in SENT:
            return Sent(info)
        if sender == self._front and (origin := self._facts.forwarded(signo)) is not None:
            return Sent(_with(info, origin.code, max(origin.sender, 0)), origin.command)
        known = _here(process.pid, sender)
        info = _with(info, code, known)
        return Sent(info, self._command(known) if known not in {0, process.pid} else None)

    def _command(self, pid: int) -> tuple[str, ...] | None:
        return self._members.command(pid) or command_of(pid)  # who sends a signal may have ended since


def _made(signo: int, sender: int) -> bytes:
    return struct.pack("<5i", signo, 0, 0, 0, sender).ljust(128, b"\0")


def _with(info: bytes, code: int, sender: int) -> bytes:
    parts = (info[:_CODE], struct.pack("<i", code), info[_CODE + 4 : _SENDER], struct.pack("<i", sender))
    return b"".join((*parts, info[_SENDER + 4 :]))


def _here(pid: int, sender: int) -> int:
    """The number, here, of the process that is ``sender`` in ``pid``'s namespace; 0 where it cannot be seen."""
    numbers = _numbers(pid)
    if len(numbers) < 2 or not sender:
        return sender
    if sender == numbers[-1]:
        return pid
    space = _space(pid)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and space is not None and _space(int(entry.name)) == space:
            found = _numbers(int(entry.name))
            if found and found[-1] == sender:
                return int(entry.name)
    return 0


def _numbers(pid: int) -> list[int]:
    """The numbers of a process, from the namespace of ``/proc`` to its own."""
    return [int(one) for one in status_of(pid).get("NSpid", "").split()]


def _space(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - of each process: Path takes longer
    except OSError:
        return None


def _kills_itself(pid: int) -> bool:
    """A thread of the process that SIGKILL ends is in the very call that sends it to the process.

    The kernel does not report who sent SIGKILL; but a process that sends it to itself does not return from the call.
    """
    numbers = _numbers(pid)
    own = numbers[-1] if numbers else pid
    for tid in sorted(fatal_signals.task_ids(pid))[:_MOST_THREADS]:
        try:
            words = Path(f"/proc/{tid}/syscall").read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError):
            continue
        if len(words) < 4 or not words[0].isdigit():
            continue
        number, first, second, third = (int(word, 0) for word in words[:4])
        if first not in {own, 0}:
            continue
        if (number == HERE.calls["kill"] and second == signal.SIGKILL) or (
            number == HERE.calls["tgkill"] and third == signal.SIGKILL
        ):
            return True
    return False
