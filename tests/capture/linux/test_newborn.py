"""A thread that has not begun yet: it stands behind the system call that made it, and nobody called it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import harness
import pytest

import needs
from necropsy.capture.linux.inspect import memory_map, modules, registers
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.unwind import unwinder as native
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.linux.unwind.symbolizer import Symbolizer

# Where a thread is to begin is kept at the upper end of its stack: a call in front of it makes it look like a caller.
SOURCE = """
#include <pthread.h>
__asm__(".text\\n call *%rax\\n.globl work\\n.type work, @function\\nwork: mov %rdi, %rax\\n ret");
void *work(void *given);
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, work, 0);
  return pthread_join(thread, 0);
}
"""


def newborn(program: Path) -> tuple[int, int]:
    """The process, stopped where it made a thread, and that thread, before its first instruction."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(read, 1)
        os.execv(program, [str(program)])
    harness._ptrace(harness._SEIZE, pid, 0, ctypes.c_void_p(harness._OPTIONS))
    os.write(write, b"x")
    os.close(read)
    os.close(write)
    while True:
        _, status = harness._wait(pid)
        assert os.WIFSTOPPED(status), status
        if status >> 16 == harness._EVENT_CLONE:
            break
        harness._ptrace(harness._CONT, pid)
    made = ctypes.c_ulong()
    harness._ptrace(0x4201, pid, 0, ctypes.cast(ctypes.byref(made), ctypes.c_void_p))  # PTRACE_GETEVENTMSG
    harness._wait(made.value)
    return pid, made.value


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(Symbolizer, marks=needs.package("drgn"), id="drgn"),
        pytest.param(SymbolTables, id="symbol tables"),
    ],
)
def test_it_has_no_caller(by: type[Symbolizer | SymbolTables], tmp_path: Path) -> None:
    pid, tid = newborn(harness.build(tmp_path, SOURCE, "-static", "-s"))  # no name says what stands where
    try:
        with ProcessMemory(pid) as memory:
            mapped = memory_map.read(pid)
            files = modules.find(pid, mapped, memory)
            unwinder = native.Unwinder(mapped, memory, files, by(mapped, memory, files))
            try:
                found = unwinder.unwind(registers.read(tid), None, time.monotonic() + 30)
            finally:
                unwinder.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        harness.reap(pid)
    assert len(found.places) == 1, found.places
    assert found.places[0].function is None
    assert found.complete
