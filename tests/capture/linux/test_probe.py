"""The log probe hears what was written to fd 2 by those that it was told of, to the byte, and nobody hears it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import pytest

from necropsy.capture.linux import probe
from necropsy.capture.linux.stderr import Log

pytestmark = pytest.mark.skipif(not probe.is_allowed(), reason="needs CAP_BPF and CAP_PERFMON, on x86-64")

BEGIN = """
import ctypes, mmap, os, sys, tempfile, threading
from necropsy.capture.linux.probe import MOST, SIZE, Probe
sys.excepthook = lambda *told: print(*told)
stderr = tempfile.TemporaryFile()
os.dup2(stderr.fileno(), 2)
probe = Probe.open()
probe.add(os.getpid())
def equal(one, other):
    assert one == other, (one[:200], other[:200], len(one), len(other))
"""


def check(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code) + "\nprint('end')"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "end\n", done


def test_the_last_of_many_lines() -> None:
    check("""
    lines = [b"line %06d\\n" % number for number in range(40000)]
    for line in lines: os.write(2, line)
    equal(probe.tail(), b"".join(lines)[-SIZE:])
    equal(probe.missed, 0)
    """)


def test_of_one_write_the_last_bytes() -> None:
    check("""
    data = os.urandom(5 * MOST)
    os.write(2, b"before ")
    os.write(2, data)
    equal(probe.tail(), b"before " + data[-MOST:])
    for size in (0, 1, 7, MOST - 1, MOST, MOST + 1): os.write(2, data[:size])
    equal(probe.tail()[-MOST:], data[1:MOST + 1])
    equal(probe.tail()[-2 * MOST:-MOST], data[:MOST])
    """)


def test_pieces() -> None:
    check("""
    os.writev(2, [b"one ", b"", b"two ", b"x" * 100_000, b" three"])
    equal(probe.tail(), b"one two " + b"x" * MOST + b" three")
    equal(probe.missed, 0)
    os.writev(2, [b"%d " % number for number in range(12)])
    equal(probe.tail()[-16:], b"0 1 2 3 4 5 6 7 ")
    equal(probe.missed, 1)
    """)


def test_memory_that_nobody_has_touched_before() -> None:
    """The kernel itself brings the page in, to write it."""
    check("""
    with tempfile.TemporaryFile() as file:
        file.write(b"y" * 100_000); file.flush()
        memory = mmap.mmap(file.fileno(), 100_000, mmap.MAP_PRIVATE)
        view = (ctypes.c_char * 100_000).from_buffer(memory)
        libc = ctypes.CDLL(None)
        libc.write(2, ctypes.c_void_p(ctypes.addressof(view) + 50_000), ctypes.c_size_t(1000))
        equal(probe.tail(), b"y" * 1000)
        equal(probe.missed, 0)
    """)


def test_only_writes_to_fd_2_that_were_done_by_those_it_was_told_of() -> None:
    check("""
    os.write(os.open(os.devnull, os.O_WRONLY), b"elsewhere")
    pid = os.fork()
    if not pid:
        os.write(2, b"a stranger")
        os._exit(0)
    os.waitpid(pid, 0)
    other = os.dup(2)
    os.close(2)
    try: os.write(2, b"failed")
    except OSError: pass
    os.dup2(other, 2)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(reading, 1)
        os.write(2, b"known ")
        one = threading.Thread(target=os.write, args=(2, b"too"))
        one.start()
        one.join()
        os._exit(0)
    probe.add(pid)
    os.write(writing, b"x")
    os.waitpid(pid, 0)
    equal(probe.tail(), b"known too")
    probe.remove(os.getpid())
    os.write(2, b"no more")
    equal(probe.tail(), b"known too")
    """)


def test_threads_at_once() -> None:
    check("""
    def talk(name):
        for number in range(3000): os.write(2, b"%s %04d\\n" % (name, number))
    threads = [threading.Thread(target=talk, args=(name,)) for name in (b"a", b"b", b"c", b"d")]
    for one in threads: one.start()
    for one in threads: one.join()
    lines = probe.tail().split(b"\\n")
    equal(len(lines), 12001)
    for name in (b"a", b"b", b"c", b"d"):
        equal([line for line in lines if line.startswith(name)], [b"%s %04d" % (name, number) for number in range(3000)])
    """)


def test_it_ends_with_the_last_descriptor() -> None:
    check("""
    os.write(2, b"heard")
    os.close(probe.link)
    os.write(2, b"not heard")
    equal(probe.tail(), b"heard")
    """)


def test_two_at_once_hear_their_own() -> None:
    check("""
    second = Probe.open()
    os.write(2, b"one ")
    second.add(os.getpid())
    os.write(2, b"two")
    equal((probe.tail(), second.tail()), (b"one two", b"two"))
    """)


def test_a_kernel_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> int:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(probe, "_load", refuse)
    gc.collect()  # what earlier tests left open is closed now, not while it is counted
    before = len(os.listdir("/proc/self/fd"))
    log = Log("probe").opened()
    assert (log.mode, log.probe, log.tail()[0]) == ("off", None, None)
    assert log.why is not None and "Operation not permitted" in log.why and "--log tap" in log.why
    assert len(os.listdir("/proc/self/fd")) == before
