"""The log tap keeps what was written to fd 2, once, to the byte: the loop in C and the one in Python alike."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from supervised import C_LOOP, LOOPS

from necropsy.capture.linux.supervise.shared_memory import Ring

BEGIN = """
import ctypes, mmap, os, socket, struct, sys, tempfile
from necropsy.capture.linux.stderr import seccomp_filter, seccomp_tap
from necropsy.capture.linux.supervise.shared_memory import Ring
sys.excepthook = lambda *told: print(*told)
assert (seccomp_tap.c_library.load() is None) == (os.environ.get("NECROPSY_LOOP") == "python")
if os.environ["NECROPSY_LOOP"].endswith("6.11"):
    seccomp_tap.ptrace.kernel_version = lambda: (6, 10)
out = tempfile.TemporaryFile()
os.dup2(out.fileno(), 2)
ring = Ring()
def written():
    return os.pread(2, 1 << 22, 0)
def tapped(say):
    "The listener of a process that does `say` under the filter."
    here, there = socket.socketpair()
    if not os.fork():
        listener = seccomp_filter.install(seccomp_filter.needs_no_new_privs())
        socket.send_fds(there, [b"x"], [listener])
        os.close(listener)
        say()
        os._exit(0)
    return socket.recv_fds(here, 1, 1)[1][0]
def received(*words):
    "Of a process that writes these words: its listener, and the first write, which is in hand."
    def say():
        for word in words: os.write(2, word)
    listener = tapped(say)
    notice = ring.notice(seccomp_filter.NOTICE_SIZE)
    seccomp_filter.receive(listener, notice)
    return listener, notice, seccomp_filter.in_hand(notice)
def equal(one, other):
    assert one == other, (one[:200], other[:200], len(one), len(other))
"""

OLD_LOOPS = [*LOOPS, pytest.param("c, as before Linux 6.11", marks=C_LOOP)]


@pytest.fixture(params=OLD_LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(loop: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code) + "\nprint('end')"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "NECROPSY_LOOP": loop},
    )
    assert done.stdout == "end\n", done


def test_the_last_of_many_lines(loop: str) -> None:
    check(
        loop,
        """
        lines = [b"line %06d\\n" % number for number in range(30000)]
        def say():
            for line in lines: os.write(2, line)
        seccomp_tap.serve(tapped(say), ring)
        equal(written(), b"".join(lines))
        equal(ring.tail(), b"".join(lines)[-ring.size:])
        equal((ring.total, ring.missed), (len(written()), 0))
        """,
    )


def test_of_one_write_the_last_bytes(loop: str) -> None:
    check(
        loop,
        """
        data = os.urandom(5 * seccomp_tap.MOST)
        def say():
            os.write(2, b"")
            os.write(2, b"before ")
            os.write(2, data)
            for size in (1, 7, seccomp_tap.MOST - 1, seccomp_tap.MOST, seccomp_tap.MOST + 1): os.write(2, data[:size])
        seccomp_tap.serve(tapped(say), ring)
        kept = [b"before ", data[-seccomp_tap.MOST:], *(data[:size] for size in (1, 7, seccomp_tap.MOST - 1, seccomp_tap.MOST))]
        equal(ring.tail(), b"".join([*kept, data[1:seccomp_tap.MOST + 1]])[-ring.size:])
        equal(ring.missed, 0)
        """,
    )


def test_pieces(loop: str) -> None:
    check(
        loop,
        """
        def say():
            os.writev(2, [b"one ", b"", b"two ", b"x" * 100_000, b" three"])
            os.writev(2, [b"%d " % number for number in range(100)])
        seccomp_tap.serve(tapped(say), ring)
        first = b"one two " + b"x" * seccomp_tap.MOST + b" three"
        equal(ring.tail(), first + b"".join(b"%d " % number for number in range(64)))
        """,
    )


def test_pieces_that_are_more_than_the_ring(loop: str) -> None:
    check(
        loop,
        """
        pieces = [bytes([65 + number]) * 60_000 for number in range(10)]
        seccomp_tap.serve(tapped(lambda: os.writev(2, pieces)), ring)
        equal(written(), b"".join(pieces))
        equal(ring.tail(), b"".join(pieces)[-ring.size:])
        """,
    )


def test_what_cannot_be_read_is_counted_and_fails_as_it_would(loop: str) -> None:
    check(
        loop,
        """
        libc = ctypes.CDLL(None, use_errno=True)
        def say():
            assert libc.write(2, ctypes.c_void_p(8), ctypes.c_size_t(5)) == -1 and ctypes.get_errno() == 14
            os.write(2, b"after")
        seccomp_tap.serve(tapped(say), ring)
        equal(ring.tail(), b"after")
        equal(ring.missed, 1)
        """,
    )


def test_other_descriptors_and_threads(loop: str) -> None:
    check(
        loop,
        """
        import threading
        def talk(name):
            for number in range(1000):
                os.write(2, b"%s %04d\\n" % (name, number))
                os.write(null, b"elsewhere")
        null = os.open(os.devnull, os.O_WRONLY)
        def say():
            threads = [threading.Thread(target=talk, args=(name,)) for name in (b"a", b"b", b"c")]
            for one in threads: one.start()
            for one in threads: one.join()
        seccomp_tap.serve(tapped(say), ring)
        lines = ring.tail().splitlines()
        equal(len(lines), 3000)
        for name in (b"a", b"b", b"c"):
            equal([one for one in lines if one[:1] == name], [b"%s %04d" % (name, number) for number in range(1000)])
        """,
    )


def test_a_successor_repeats_what_was_begun_in_the_same_place(loop: str) -> None:
    """The predecessor was killed after it had put the bytes into the ring, before it noted that."""
    check(
        loop,
        """
        listener, notice, write = received(b"one ", b"two ", b"three ")
        ring.append_once(write.id, b"one ")
        ring._memory[16:24] = bytes(8)
        equal(ring.tail(), b"one ")
        seccomp_tap.serve(listener, ring)
        equal(ring.tail(), b"one two three ")
        equal(written(), b"one two three ")
        """,
    )


def test_a_successor_lets_go_what_was_kept(loop: str) -> None:
    """The predecessor was killed before it let the write go."""
    check(
        loop,
        """
        listener, notice, write = received(b"one ", b"two ")
        ring.append_once(write.id, b"kept ")
        seccomp_tap.serve(listener, ring)
        equal(ring.tail(), b"kept two ")
        equal(written(), b"one two ")
        """,
    )


def test_a_successor_goes_on_after_what_was_let_go(loop: str) -> None:
    """The predecessor was killed after it let the write go, before it forgot it."""
    check(
        loop,
        """
        listener, notice, write = received(b"one ", b"two ")
        before = notice.raw
        ring.append_once(write.id, b"one ")
        seccomp_filter.proceed(listener, notice, write)
        notice.raw = before
        seccomp_tap.serve(listener, ring)
        equal(ring.tail(), b"one two ")
        equal(written(), b"one two ")
        """,
    )


def test_the_ring_keeps_a_write_once() -> None:
    ring = Ring(10)
    ring.append_once(7, b"abcdefgh")
    ring.append_once(7, b"abcdefgh")
    assert ring.tail() == b"abcdefgh"
    ring.append_once(8, b"ijk")
    assert (ring.tail(), ring.total, ring.last) == (b"bcdefghijk", 11, 8)
