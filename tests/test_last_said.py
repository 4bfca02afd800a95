"""What a process said last where its stderr is not read: its exception, its runtime's message."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy.capture.linux.inspect import memory_map
from necropsy.capture.linux.inspect.interpreter import InterpreterState
from necropsy.capture.linux.stderr.exception_watch import ExceptionWatch
from necropsy.capture.linux.stderr.last_messages import as_crash, ends_of
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.traced_processes import Traced, exit_of
from necropsy.capture.process import exit_message_memory, rust_panic
from necropsy.capture.process.memory import Memory
from necropsy.capture.run_options import Said
from necropsy.model import Address, Frame, Stack

PROGRAM = """
import sys

class Missing(Exception):
    pass

def load(name):
    try:
        return {}[name]
    except KeyError as error:
        raise Missing("no shard", 17) from error

def shown(kind, value, trace):
    sys.last_value = value
    sys.stdout.write("shown\\n")
    sys.stdout.flush()
    sys.stdin.read()

sys.excepthook = shown
load("weights")
"""


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose exception nobody caught, which waits while it is shown."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield process
    process.kill()
    process.communicate()


def ready(process: subprocess.Popen[bytes]) -> None:
    """Until the exception is shown."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"shown\n"


def kind_of(process: Traced) -> str | None:
    """What is known of what it said last."""
    return process.said.kind if process.said is not None else None


def test_an_exception_that_nobody_caught_is_read_with_its_places_and_its_cause(
    failing: subprocess.Popen[bytes],
) -> None:
    ready(failing)
    found = InterpreterState.find(failing.pid)
    assert found is not None
    said = found.said(None)
    found.close()
    assert said is not None
    assert said.kind == "uncaught"
    first, last = said.text.split("\n\nThe above exception was the direct cause of the following exception:\n\n")
    assert first.endswith("KeyError: 'weights'")
    assert last.endswith("Missing: ('no shard', 17)")
    assert 'program.py", line 11, in load' in last
    crash = as_crash(failing.pid, said)
    assert [message.fields["exception"] for message in crash.messages or ()] == ["Missing"]
    assert crash.last_words is not None
    assert crash.last_words.text == "Missing: ('no shard', 17)"


def test_the_bell_rings_when_python_opens_its_program_to_show_a_traceback(
    failing: subprocess.Popen[bytes],
) -> None:
    ready(failing)
    traced = Traced(failing.pid, executable=os.path.realpath(sys.executable))
    words = Path(f"/proc/{failing.pid}/cmdline").read_bytes().decode().split("\0")
    traced.become_another(traced.executable, tuple(words[:-1]))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    bell = ExceptionWatch.of(Log("off", is_wanted=True))
    try:
        bell.follow(traced)
        bell.look([traced])
        assert kind_of(traced) is None  # it has not rung
        ptrace.seize(failing.pid, 0)
        Path(words[1]).read_bytes()
        assert select.select([bell.handle], [], [], 30)[0]
        bell.look([traced])
    finally:
        os.close(bell.handle)
        signal.sigtimedwait({signal.SIGUSR1}, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    assert kind_of(traced) == "uncaught"


def test_no_bell_is_hung_where_the_log_is_read() -> None:
    bell = ExceptionWatch.of(Log("probe"))
    assert bell.handle < 0
    assert bell.wait_s is None
    bell.look([])


# ---------------------------------------------------------------- messages of runtimes


class Bytes(Memory):
    """Memory made of a few blocks."""

    def __init__(self, blocks: dict[int, bytes]) -> None:
        self.blocks = blocks

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        for low, data in self.blocks.items():
            if low <= address < low + len(data):
                return data[address - low : address - low + size]
        return b""


MESSAGES = {
    "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 17": 17,
    "*** MPI_ERR_RANK: invalid rank": 6,
    "fatal error: all goroutines are asleep - deadlock!": 2,
    "Terminating due to java.lang.OutOfMemoryError: Java heap space": 3,
    "thread 'main' panicked at src/main.rs:3:5:\nno licence": 101,
}


@pytest.mark.parametrize(("text", "code"), MESSAGES.items())
def test_a_runtimes_message_is_found_in_memory(text: str, code: int) -> None:
    memory = Bytes({0x1000: b"\0" * 500 + text.encode() + b"\n\0" + b"x" * 500})
    assert exit_message_memory.words(memory, [(0x1000, 0x1000 + 4096)], code) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("MPI_ABORT was invoked on rank %d in communicator %s\nwith errorcode %d", 17),
        ("fatal error: all goroutines are asleep - deadlock!", 1),
        ("fatal error: all goroutines are asleep", 2),
        ("thread '%s' panicked at %s", 101),
    ],
)
def test_a_constant_or_another_runtimes_words_are_no_message(text: str, code: int) -> None:
    memory = Bytes({0x1000: b"\0" * 500 + text.encode() + b"\0" + b"x" * 500})
    assert exit_message_memory.words(memory, [(0x1000, 0x1000 + 4096)], code) is None


def test_a_watchdogs_line_counts_only_where_another_thread_ended_the_process() -> None:
    memory = Bytes({0x1000: b"\0" * 500 + b"Timeout (0:00:01)!\n\0" + b"x" * 500})
    spans = [(0x1000, 0x1000 + 4096)]
    assert (
        exit_message_memory.words(memory, spans, 1, known=exit_message_memory.FORMS_OF_THREADS) == "Timeout (0:00:01)!"
    )
    assert exit_message_memory.words(memory, spans, 2, known=exit_message_memory.FORMS_OF_THREADS) is None
    assert exit_message_memory.words(memory, spans, 1) is None


def test_the_value_of_a_go_panic_is_found_from_any_of_its_threads() -> None:
    g0, m0, g1, m1, running, panic, kind, text = (0x10000 + 0x1000 * at for at in range(8))

    def g(m: int, panics: int = 0) -> bytes:
        return struct.pack("<4Q2Q", 0, 0, 0, 0, panics, 0) + struct.pack("<Q", m)

    blocks = {
        g0: g(m0),
        m0: struct.pack("<4Q", g0, 0, m1, 0).ljust(1024, b"\0"),
        g1: g(m1),
        m1: struct.pack("<4Q", g1, 0, running, 0).ljust(1024, b"\0"),
        running: g(m1, panic),
        panic: struct.pack("<4Q", 0, kind, text, 0),
        kind: bytes(23) + b"\x18",
        text: struct.pack("<QQ", text + 16, 7) + b"no diskXXXX",
        0x90000: struct.pack("<Q", g0),
    }
    assert exit_message_memory.go_panic(Bytes(blocks), 0x90008) == "panic: no disk"
    blocks[kind] = bytes(24)
    assert exit_message_memory.go_panic(Bytes(blocks), 0x90008) is None


# ---------------------------------------------------------------- Rust

HEAP, CONSTANTS, STACK = 0x10000, 0x20000, 0x7F0000
MAPPED = memory_map.parse(
    f"{HEAP:x}-{HEAP + 4096:x} rw-p 0 0:0 0 [heap]\n"
    f"{CONSTANTS:x}-{CONSTANTS + 4096:x} r--p 0 0:1 1 /bin/program\n"
    f"{STACK:x}-{STACK + 4096:x} rw-p 0 0:0 0 [stack]\n"
)
PANICS = (
    Frame(index=0, kind="native", function="abort", stack_bytes=16),
    Frame(index=1, kind="native", function="__rustc::rust_begin_unwind", stack_bytes=64),
    Frame(index=2, kind="native", function="program::main", stack_bytes=64),
)


def panic(*values: int) -> str | None:
    """What a panic says on whose stack these values lie."""
    blocks = {
        HEAP: b"the length is 3XXXother words",
        CONSTANTS: b"src/main.rs queue is empty",
        STACK: struct.pack(f"<{len(values)}Q", *values),
    }
    stack = Stack(low=Address(STACK), high=Address(STACK + 4096), pointer=Address(STACK))
    return rust_panic.message(Bytes(blocks), MAPPED, PANICS, stack)


def test_a_panic_of_rust_is_read_from_its_value() -> None:
    assert panic(0, 0, 16, HEAP, 15, CONSTANTS, 11) == "the length is 3"
    assert panic(0, 0, CONSTANTS, 11, CONSTANTS + 12, 14) == "queue is empty"


def test_what_is_no_message_of_a_panic_or_one_of_several_is_left_out() -> None:
    assert panic(0, 0, 3, HEAP, 15) is None  # longer than its own capacity
    assert panic(0, 0, CONSTANTS, 11) is None  # a source file
    assert panic(15, HEAP, 15, 15, HEAP + 18, 11) is None
    assert panic(*range(10), 15, HEAP, 15) is None  # of the function that panicked


def test_the_panic_that_came_to_a_function_which_must_not_be_left_is_told_first() -> None:
    second = "panic in a function that cannot unwind"
    value, methods, text = HEAP + 256, CONSTANTS + 512, b"mean of an empty slice"

    def told(size: int, *held: int, said: str = second, again: bytes = b"") -> str | None:
        exception = b"MOZ\0RUST" + struct.pack("<6Q", CONSTANTS + 64, 0, 0, 0, value, methods)
        blocks = {
            HEAP: (bytes(64) + exception).ljust(128, b"\0") + again,
            value: struct.pack(f"<{len(held)}Q", *held),
            HEAP + 512: text,
            CONSTANTS: bytes(512) + struct.pack("<3Q", 0, size, 8),
        }
        memory = Bytes({**blocks, **({} if len(held) != 2 else {CONSTANTS + 1024: text})})
        return rust_panic.thrown(memory, MAPPED, [(HEAP, HEAP + 256)], said)

    assert told(16, CONSTANTS + 1024, len(text)) == text.decode()
    assert told(24, 30, HEAP + 512, len(text)) == text.decode()
    assert told(24, 3, HEAP + 512, len(text)) is None  # longer than its own capacity
    assert told(8, 3) is None
    assert told(16, CONSTANTS + 1024, len(text), said="no disk") is None


# ---------------------------------------------------------------- who speaks for whom


def process(pid: int, said: Said | None, code: int, ended: float) -> Traced:
    """One that has ended."""
    return Traced(pid, begun=100.0, wall_s=ended, said=said, exit=exit_of(code << 8))


RAISED = Said("uncaught", 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: no disk')


def test_a_command_that_passes_on_how_its_child_ended_has_its_words() -> None:
    ends = ends_of([process(1, None, 1, 5.0), process(2, RAISED, 1, 4.9)])
    assert ends[1].last_words is not None
    assert ends[1].last_words.text == "OSError: no disk"


@pytest.mark.parametrize(("code", "ended"), [(2, 5.0), (1, 50.0)])
def test_a_command_that_ended_otherwise_or_later_has_none(code: int, ended: float) -> None:
    assert 1 not in ends_of([process(1, None, code, ended), process(2, RAISED, 1, 4.9)])
