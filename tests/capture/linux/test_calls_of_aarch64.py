"""Which interrupted calls are made again on AArch64, and which return EINTR: on a thread that is only written down.

The emulated machine (tests/aarch64) has real ones; here they stop in the order of a slow tracer.
"""

from __future__ import annotations

import signal
import struct
import time

import pytest

from necropsy.capture.linux.supervise import call_results, interrupted_calls, ptrace
from necropsy.capture.linux.supervise.interrupted_calls import InterruptedCalls
from necropsy.formats.processors import AARCH64

TID, POLL, EPOLL_PWAIT = 4711, 5, 22
BEHIND_CALL = 0x400104
EINTR = (1 << 64) - 4
TIMEOUT_S = 0.1


class Thread:
    """In epoll_pwait(5, ..., 100 ms), which a signal has interrupted."""

    def __init__(self) -> None:
        self.switches, self.now = 10, 0.0
        self.values = dict.fromkeys(AARCH64.live, 0)
        self.interrupt()

    def interrupt(self) -> None:
        """The kernel has put EINTR in the place of the first argument."""
        self.values |= {"x0": EINTR, "x3": int(TIMEOUT_S * 1000), "x8": EPOLL_PWAIT, "pc": BEHIND_CALL, "sp": 0x7000}
        self.values["syscallno"] = (1 << 32) - 1

    def waits_again(self) -> None:
        """It goes on, waits, and the next signal interrupts it."""
        self.switches += 2
        self.interrupt()

    def stops_again(self) -> None:
        """The next signal was there before it could go on."""
        self.switches += 1

    @property
    def result(self) -> str:
        at, first = self.values["pc"], self.values["x0"]
        if (at, first) == (BEHIND_CALL - 4, POLL):
            return "made again"
        assert at == BEHIND_CALL
        return {EINTR: "EINTR"}.get(first, str(first))

    def registers(self, _tid: int) -> bytes:
        return struct.pack(f"<{len(AARCH64.live)}Q", *self.values.values())

    def set_registers(self, _tid: int, raw: bytes) -> None:
        self.values |= AARCH64.parse(raw)

    def status(self, _tid: int) -> dict[str, str]:
        caught = 1 << (signal.SIGHUP - 1)
        return {"voluntary_ctxt_switches": str(self.switches), "SigIgn": "0", "SigCgt": f"{caught:016x}"}


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Thread:
    one = Thread()

    class KernelFile:
        def __init__(self, _path: str) -> None: ...

        def read_text(self, encoding: str) -> str:
            return f"{EPOLL_PWAIT} {POLL:#x} 0x0" if encoding else ""

    for module in (ptrace, call_results):
        monkeypatch.setattr(module, "HERE", AARCH64)
    monkeypatch.setattr(ptrace, "REGISTERS_SIZE", AARCH64.live_size)
    monkeypatch.setattr(ptrace, "getregset", one.registers)
    monkeypatch.setattr(ptrace, "setregset", one.set_registers)
    monkeypatch.setattr(ptrace, "set_call", lambda _tid, _number: None)
    monkeypatch.setattr(call_results, "_CALLS", call_results._NAMES[AARCH64.name])
    monkeypatch.setattr(call_results, "_again", {})
    monkeypatch.setattr(call_results, "_handled", {})
    monkeypatch.setattr(call_results, "_read", lambda _tid, _address, _size: AARCH64.system_call)
    monkeypatch.setattr(call_results, "Path", KernelFile)
    for holder in (call_results, interrupted_calls):
        monkeypatch.setattr(holder, "status_of", one.status)
    monkeypatch.setattr(time, "monotonic", lambda: one.now)
    return one


def test_after_an_ignored_signal_the_call_is_made_again(thread: Thread) -> None:
    assert InterruptedCalls().resume(TID, signal.SIGWINCH)
    assert thread.result == "made again"


def test_after_a_handled_signal_it_returns_eintr(thread: Thread) -> None:
    assert not InterruptedCalls().resume(TID, signal.SIGHUP)
    assert thread.result == "EINTR"


@pytest.mark.parametrize("stops", [0, 1, 3])
def test_a_handled_signal_behind_ignored_ones_undoes_it(thread: Thread, stops: int) -> None:
    calls = InterruptedCalls()
    calls.resume(TID, signal.SIGWINCH)
    for _ in range(stops):
        thread.stops_again()
        assert interrupted_calls.was_interrupted(TID, signal.SIGWINCH), "the Python loop asks again"
        calls.resume(TID, signal.SIGWINCH)
        assert thread.result == "made again"
    thread.stops_again()
    calls.resume(TID, signal.SIGHUP)
    assert thread.result == "EINTR"


@pytest.mark.parametrize("stops", [0, 1, 3])
def test_ignored_signals_behind_a_handled_one_leave_it(thread: Thread, stops: int) -> None:
    """SIGCONT and SIGCHLD behind the SIGSTOP that interrupted it, where the tracer is slow."""
    calls = InterruptedCalls()
    calls.resume(TID, signal.SIGHUP)
    for _ in range(stops):
        thread.stops_again()
        calls.resume(TID, signal.SIGCHLD)
        assert thread.result == "EINTR"
    thread.waits_again()
    calls.resume(TID, signal.SIGCHLD)
    assert thread.result == "made again", "it has waited once more: another call"


@pytest.mark.parametrize("stops", [0, 1, 3])
def test_a_flood_of_signals_does_not_prolong_it_for_ever(thread: Thread, stops: int) -> None:
    calls = InterruptedCalls()
    calls.resume(TID, signal.SIGWINCH)
    for _ in range(stops):
        thread.stops_again()
        calls.resume(TID, signal.SIGWINCH)
    thread.now += TIMEOUT_S
    thread.waits_again()
    assert not calls.resume(TID, signal.SIGWINCH)
    assert thread.result == "0", "as after its timeout"


def test_what_the_tracer_itself_has_interrupted_is_made_again(thread: Thread) -> None:
    InterruptedCalls().resume(TID, 0)
    assert thread.result == "made again"
