"""What R, Android, Rust, Go and Julia print of a death."""

from __future__ import annotations

import pytest

from necropsy.formats.readers import printed_stacks
from necropsy.model import Crash
from reading import pieces, verdict

READERS = [one for one in printed_stacks.READERS if one.kind in {"r", "julia", "runtime"}]

R = """ *** caught segfault ***
address 0x8, cause 'memory not mapped'

Traceback:
 1: py_call_impl(callable, call_args$unnamed, call_args$named)
An irrecoverable exception occurred. R is aborting now ...
"""

# debuggerd's lines as logcat shows them; re-made after public reports of Kivy and Chaquopy programs.
ANDROID = """F/libc    ( 4711): Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x10 in tid 4730 (SDLThread), pid 4711 (org.test.app)
F/DEBUG   ( 4800): pid: 4711, tid: 4730, name: SDLThread  >>> org.test.app <<<
F/DEBUG   ( 4800): backtrace:
F/DEBUG   ( 4800):       #00 pc 000000000001f3a4  /data/app/lib/arm64/libop.so (Walk(Node*)+16)
F/DEBUG   ( 4800):       #01 pc 00000000000a1b2c  /data/app/lib/arm64/libpython3.11.so (PyObject_Call+64)
F/DEBUG   ( 4800):       #02 pc 0000000000012345  /system/lib64/libc.so (__pthread_start(void*)+36)
"""

RUST = """
thread 'polars-3' has overflowed its stack
fatal runtime error: stack overflow, aborting
Aborted (core dumped)
"""

GO = "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x7f5a2c0012a4]\n"
JULIA = "\n[4711] signal (11.1): Segmentation fault\nin expression starting at REPL[1]:1\n"


def crash(text: str) -> Crash:
    (piece,) = pieces(text, *READERS)
    return piece.crash


def test_r() -> None:
    found = crash(R)
    assert found.fault is not None
    assert (found.fault.signal, found.fault.code, found.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 8)
    assert verdict(R, *READERS).rule == "null-dereference"
    illegal = crash(" *** caught illegal operation ***\naddress 0x7f00, cause 'illegal operand'\n")
    assert illegal.fault is not None and (illegal.fault.signal, illegal.fault.code) == ("SIGILL", "ILL_ILLOPN")


def test_android() -> None:
    found = crash(ANDROID)
    assert found.pid == 4711
    assert found.fault is not None and found.fault.address == 0x10
    thread = found.crashed_thread
    assert thread is not None and (thread.tid, thread.name) == (4730, "SDLThread")
    assert thread.frames is not None
    assert [frame.function for frame in thread.frames] == ["Walk(Node*)", "PyObject_Call", "__pthread_start(void*)"]
    assert thread.frames[0].module_offset == 0x1F3A4
    judged = verdict(ANDROID, *READERS)
    assert judged.rule == "null-dereference"
    assert judged.culprit is not None and judged.culprit.function == "Walk(Node*)"


def test_android_that_ended_itself() -> None:
    found = crash(
        "signal 6 (SIGABRT), code -6 (SI_TKILL), fault addr --------\n    #00 pc 00021f34  /system/lib/libc.so (abort+63)\n"
    )
    assert found.fault is not None
    assert (found.fault.code, found.fault.address, found.fault.sent_by_itself) == ("SI_TKILL", None, True)


def test_rust() -> None:
    found = crash(RUST)
    assert found.crashed_thread is not None and found.crashed_thread.name == "polars-3"
    judged = verdict(RUST, *READERS)
    assert judged.rule == "stack-overflow-recursion"
    assert judged.confidence != "certain"


def test_go_and_julia() -> None:
    found = crash(GO)
    assert found.fault is not None and (found.fault.code, found.fault.address) == ("SEGV_MAPERR", 0)
    found = crash(JULIA)
    assert found.pid == 4711
    assert found.fault is not None and found.fault.signal == "SIGSEGV"


@pytest.mark.parametrize(
    "text",
    [
        "signal (processing): Fourier",
        "signal 11 (SIGABRT), code 1, fault addr 0x0",
        "thread 'a' panicked at src/x.rs:1",
        "*** caught segfault",
        "[signal SIGNAL: x]",
    ],
)
def test_what_is_none(text: str) -> None:
    assert pieces(text, *READERS) == []
