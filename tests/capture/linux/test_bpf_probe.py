"""The log probe hears what was written to fd 2 by those that it was told of, to the byte, and nobody hears it."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from necropsy.capture.linux.stderr import bpf_probe, probe_program
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import c_library

pytestmark = pytest.mark.skipif(not bpf_probe.is_allowed(), reason="needs CAP_BPF and CAP_PERFMON, on x86-64")

BEGIN = """
import ctypes, mmap, os, signal, socket, sys, tempfile, threading, time, traceback
from necropsy.capture.linux.stderr import bpf; from necropsy.capture.linux.supervise import c_library
from necropsy.capture.linux.stderr.bpf_probe import MOST, SIZE, TOLERATED, BpfProbe
sys.excepthook = lambda *told: print("".join(traceback.format_exception(*told)))
stderr = tempfile.TemporaryFile()
os.dup2(stderr.fileno(), 2)
name = f"test{os.getpid()}"  # a program that no other run on this machine shares
def programs():
    found = [one.link for one in bpf.attached() if one.name == name]
    for link in found: os.close(link)
    return len(found)
def until(condition):
    deadline = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
def elsewhere(serve):
    "Another process with a probe; what it does between two words of ours, and its pid."
    here, there = socket.socketpair()
    pid = os.fork()
    if not pid:
        here.close()
        serve(there)
        os._exit(0)
    there.close()
    return here, pid
def equal(one, other):
    assert one == other, (str(one)[:200], str(other)[:200])
"""
OPENED = """
probe = BpfProbe.open(name)
probe.add(os.getpid())
"""


def check(code: str, begin: str = BEGIN + OPENED) -> None:
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code) + "\nprint('end')"],
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


def test_a_process_whose_first_thread_has_ended() -> None:
    check("""
    child = os.fork()
    if not child:
        def talk():
            until(lambda: open(f"/proc/self/task/{os.getpid()}/stat").read().rpartition(") ")[2][0] == "Z")
            os.write(2, b"words of the second")
            os._exit(0)
        probe.add(os.getpid())
        threading.Thread(target=talk).start()
        ctypes.CDLL(None).syscall(60, 0)  # exit: of this thread alone
    os.waitpid(child, 0)
    equal(probe.tail(), b"words of the second")
    """)


def test_it_ends_with_the_last_descriptor() -> None:
    check("""
    os.write(2, b"heard")
    equal(programs(), 1)
    os.close(probe.link)
    until(lambda: not programs())
    os.write(2, b"not heard")
    equal(probe.tail(), b"heard")
    """)


def test_two_at_once_hear_their_own() -> None:
    """As where one run is started inside another."""
    check("""
    second = BpfProbe.open(name)
    os.write(2, b"one ")
    second.add(os.getpid())
    second.add(os.getpid())
    probe.add(os.getpid())
    os.writev(2, [b"tw", b"o"])
    equal((probe.tail(), second.tail()), (b"one two", b"two"))
    probe.remove(os.getpid())
    os.write(2, b" three")
    equal((probe.tail(), second.tail()), (b"one two", b"two three"))
    second.remove(os.getpid())
    os.write(2, b" four")
    equal((probe.tail(), second.tail()), (b"one two", b"two three"))
    """)


def test_many_share_one_program() -> None:
    check("""
    others = [BpfProbe.open(name) for _ in range(40)]
    equal(programs(), 1)
    equal(len({one.run for one in (probe, *others)}), 41)
    others[-1].add(os.getpid())
    os.write(2, b"heard")
    equal([one.tail() for one in (probe, *others)], [b"heard"] + [b""] * 39 + [b"heard"])
    probe.close()
    for one in others[:-1]: one.close()
    os.write(2, b" again")
    equal(others[-1].tail(), b"heard again")
    others[-1].close()
    until(lambda: not programs())
    """)


def test_those_that_begin_at_once_share_one_program() -> None:
    check(
        """
    def serve(link):
        link.recv(1)
        probe = BpfProbe.open(name)
        link.send(b"x")
        link.recv(1)
    others = [elsewhere(serve) for _ in range(8)]
    for link, _ in others: link.send(b"x")
    for link, _ in others: link.recv(1)
    probe = BpfProbe.open(name)
    probe.add(os.getpid())
    os.write(2, b"heard")
    equal(probe.tail(), b"heard")
    assert programs() <= 2, "one that found none may have met one that was about to go"
    for _, pid in others:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    until(lambda: programs() == 1)
    """,
        BEGIN,
    )


def test_the_one_that_loaded_it_is_killed() -> None:
    check(
        """
    def serve(link):
        first = BpfProbe.open(name)
        first.add(os.getppid())
        link.send(b"x")
        link.recv(1)
    link, pid = elsewhere(serve)
    link.recv(1)
    second = BpfProbe.open(name)
    equal((programs(), len(bpf.keys(second._rings, 4))), (1, 2))
    os.write(2, b"to the first")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.write(2, b"to nobody")
    second.add(os.getpid())
    os.write(2, b"to the second")
    equal((second.tail(), second.missed), (b"to the second", 0))
    second.close()
    until(lambda: not programs())
    """,
        BEGIN,
    )


def test_what_killed_runs_leave_behind_is_removed() -> None:
    check("""
    for left in range(TOLERATED):
        equal(len(bpf.keys(probe._rings, 4)), 1 + left)
        pid = os.fork()
        if not pid:
            BpfProbe.open(name)
            os._exit(1)
        os.waitpid(pid, 0)
    last = BpfProbe.open(name)
    equal(set(bpf.keys(probe._rings, 4)), {one.run.to_bytes(4, "little") for one in (probe, last)})
    last.add(os.getpid())
    os.write(2, b"heard")
    equal((probe.tail(), last.tail()), (b"heard", b"heard"))
    """)


def test_a_process_that_has_ended_is_forgotten() -> None:
    check("""
    member = os.fork()
    if not member:
        signal.pause()
    probe.add(member)
    key = os.pidfd_open(member).to_bytes(4, "little")
    bpf.lookup(probe.members, key, 8)
    os.kill(member, signal.SIGKILL)
    os.waitpid(member, 0)
    try: bpf.lookup(probe.members, key, 8)
    except FileNotFoundError: pass
    else: raise AssertionError
    probe.add(member)
    probe.remove(member)
    os.write(2, b"still heard")
    equal(probe.tail(), b"still heard")
    """)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a namespace of its own")
def test_in_another_namespace_of_processes() -> None:
    """Where a process has another number than the kernel's own."""
    check("""
    assert ctypes.CDLL(None).unshare(0x20000000) == 0  # CLONE_NEWPID
    def serve(link):
        assert os.getpid() == 1
        inside = BpfProbe.open(name)
        child = os.fork()
        if not child:
            link.recv(1)
            os.write(2, b"inside")
            os._exit(0)
        inside.add(child)
        equal(programs(), 1)
        link.send(b"x")
        os.waitpid(child, 0)
        link.send(inside.tail())
    link, pid = elsewhere(serve)
    link.recv(1)
    os.write(2, b"outside")
    link.send(b"x")
    equal(link.recv(100), b"inside")
    equal(probe.tail(), b"outside")
    """)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a capability to give away")
def test_without_sys_admin_there_is_one_at_a_time() -> None:
    check(
        """
    class Header(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
    only = 1 << 38 - 32 | 1 << 39 - 32  # CAP_PERFMON, CAP_BPF
    sets = (ctypes.c_uint32 * 6)(0, 0, 0, only, only, 0)
    assert ctypes.CDLL(None).capset(ctypes.byref(Header(0x20080522, 0)), sets) == 0
    first = BpfProbe.open(name)
    first.add(os.getpid())
    os.write(2, b"heard")
    equal((first.tail(), first.missed), (b"heard", 0))
    try: BpfProbe.open(name)
    except OSError as error: assert "CAP_SYS_ADMIN" in error.strerror
    else: raise AssertionError
    first.close()
    BpfProbe.open(name).close()
    """,
        BEGIN,
    )


@pytest.mark.skipif(c_library.load() is None, reason="needs the C library")
def test_added_from_c() -> None:
    check("""
    probe.remove(os.getpid())
    os.write(2, b"not heard")
    add = c_library.load().probe_add
    second = BpfProbe.open(name)
    for one in (probe, second, probe, second):
        equal(add(one.members, ctypes.c_uint32(one.run), os.getpid()), 0)
    os.write(2, b"heard")
    equal((probe.tail(), second.tail()), (b"heard", b"heard"))
    child = os.fork()
    if not child: os._exit(0)
    os.waitpid(child, 0)
    before = os.listdir("/proc/self/fd")
    equal(add(probe.members, ctypes.c_uint32(probe.run), child), -3)
    equal(add(-1, ctypes.c_uint32(probe.run), os.getpid()), -9)
    equal(os.listdir("/proc/self/fd"), before)
    """)


def test_other_instructions_have_another_name() -> None:
    beginning = hashlib.sha256(probe_program.code(0, 0, 0)).hexdigest()[:7]
    assert f"necropsy{beginning}" == probe_program.NAME


def test_the_ring_is_filled_to_the_byte() -> None:
    check("""
    written = b""
    for size in (SIZE, 10, SIZE - 10, 1, SIZE - 11, 20, SIZE - 10, 7):
        while size:
            data = os.urandom(min(size, MOST - 1))
            os.write(2, data)
            written += data
            size -= len(data)
            equal(probe.tail(), written[-SIZE:])
    equal(probe.missed, 0)
    """)


def test_offsets_from_the_kernels_types(tmp_path: Path) -> None:
    assert bpf_probe.member_offset("list_head", "next") == 0
    assert bpf_probe.member_offset("list_head", "prev") == ctypes.sizeof(ctypes.c_void_p)
    assert bpf_probe.member_offset("task_struct", "group_leader") % ctypes.sizeof(ctypes.c_void_p) == 0
    for structure, member in (("list_head", "group_leader"), ("list_head", "no such member"), ("no such", "next")):
        with pytest.raises(LookupError):
            bpf_probe.member_offset(structure, member)
    begin = bpf_probe.VMLINUX.read_bytes()[: 1 << 16]
    for damaged in (b"", begin[:20], begin, b"\0" * 100):
        (tmp_path / "types").write_bytes(damaged)
        with pytest.raises(LookupError):
            bpf_probe.member_offset("list_head", "prev", tmp_path / "types")


def test_a_kernel_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(bpf_probe, "_join_or_load", refuse)
    gc.collect()  # what earlier tests left open is closed now, not while it is counted
    before = len(os.listdir("/proc/self/fd"))
    log = Log("probe").opened()
    assert (log.mode, log.probe, log.tail()[0]) == ("off", None, None)
    assert log.why is not None and "Operation not permitted" in log.why and "--log tap" in log.why
    assert len(os.listdir("/proc/self/fd")) == before
