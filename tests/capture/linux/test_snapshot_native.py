"""Real processes die, and what is read of them is compared with what their sources say."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import drgn_unwinding
import pytest
from harness import build, dying, reap

import needs
from necropsy.capture.linux.inspect import crash_builder, memory_map, modules, registers
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.unwind import unwinder
from necropsy.model import Crash, Frame, Thread

RECURSION = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
typedef struct { int depth; } job;
__attribute__((noinline)) int ping(int n);
__attribute__((noinline)) int pong(int n) { volatile char room[100]; room[0] = n; return ping(n - 1) + room[0]; }
__attribute__((noinline)) int ping(int n) {
  volatile char room[40]; room[0] = n;
  if (n == 0) *(volatile int *)0x18 = 1;
  return pong(n) + room[0];
}
__attribute__((noinline)) int direct(int n) {
  volatile char room[200]; room[0] = n;
  if (n == 0) *(volatile int *)0x18 = 1;
  return direct(n - 1) + room[0];
}
static void *work(void *arg) { direct(((job *)arg)->depth); return 0; }
int main(int argc, char **argv) {
  int depth = atoi(argv[2]);
  if (!strcmp(argv[1], "direct")) return direct(depth);
  if (!strcmp(argv[1], "mutual")) return ping(depth);
  pthread_attr_t attr; pthread_attr_init(&attr); pthread_attr_setstacksize(&attr, 256 << 10);
  job j = { depth }; pthread_t t;
  pthread_create(&t, &attr, work, &j); pthread_join(t, 0);
}
"""

CRASHES = """
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void call(void *at) { ((void (*)(void))at)(); __asm__ volatile(""); }
__attribute__((noinline)) int large(void) { volatile char room[40 << 20]; room[100] = 1; return room[100]; }
__attribute__((noinline)) int medium(void) { volatile char room[3 << 20]; room[100] = 1; return room[100]; }
__attribute__((noinline)) int divide(int by) { return 100 / by; }
__attribute__((noinline)) long read_at(uintptr_t at) { return *(volatile long *)at; }
__attribute__((noinline)) void write_at(uintptr_t at) { *(volatile long *)at = 7; }
static volatile int ready;
static void *wait_forever(void *arg) { __sync_fetch_and_add(&ready, 1); for (;;) pause(); return arg; }
static void *medium_thread(void *arg) { medium(); return arg; }
static void *wild_thread(void *arg) { read_at((uintptr_t)arg); return 0; }
int main(int argc, char **argv) {
  const char *what = argv[1];
  if (!strcmp(what, "null-call")) call(0);
  if (!strcmp(what, "garbage-call")) call((void *)0x123456789000);
  if (!strcmp(what, "data-call")) call(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (!strcmp(what, "large")) return large();
  if (!strcmp(what, "divide")) return divide(argc - 2);
  if (!strcmp(what, "read")) return read_at(0x40);
  if (!strcmp(what, "read-high")) return read_at(0xdeadbeefdeadbeef);
  if (!strcmp(what, "write-code")) write_at((uintptr_t)&divide);
  if (!strcmp(what, "illegal")) __builtin_trap();
  if (!strcmp(what, "trap")) __asm__ volatile("int3");
  if (!strcmp(what, "self")) kill(getpid(), SIGTERM);
  if (!strcmp(what, "medium-thread") || !strcmp(what, "wild-thread")) {
    pthread_attr_t attr; pthread_attr_init(&attr); pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_t t;
    if (!strcmp(what, "medium-thread")) pthread_create(&t, &attr, medium_thread, 0);
    else pthread_create(&t, &attr, wild_thread, (void *)0x1000);
    pthread_join(t, 0);
  }
  if (!strcmp(what, "many")) {
    pthread_t t[50];
    for (int i = 0; i < 50; i++) pthread_create(&t[i], 0, wait_forever, 0);
    while (ready < 50) usleep(1000);
    return read_at(0);
  }
}
"""

HANDLED = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static char alternate[65536];
static void on_fault(int signo) { signal(signo, SIG_DFL); raise(signo); }
static void on_fault_abort(int signo) { abort(); }
__attribute__((noinline)) int forever(int n) { volatile char room[64]; room[0] = n; return forever(n + 1) + room[0]; }
int main(int argc, char **argv) {
  stack_t s = { alternate, 0, sizeof alternate }; sigaltstack(&s, 0);
  struct sigaction a; memset(&a, 0, sizeof a);
  a.sa_handler = strcmp(argv[1], "abort") ? on_fault : on_fault_abort; a.sa_flags = strcmp(argv[1], "bare") ? SA_ONSTACK : 0;
  sigaction(SIGSEGV, &a, 0);
  if (!strcmp(argv[1], "overflow") || !strcmp(argv[1], "bare")) return forever(0);
  if (!strcmp(argv[1], "recovered")) { signal(SIGSEGV, SIG_IGN); raise(SIGSEGV); signal(SIGSEGV, SIG_DFL); abort(); }
  *(volatile int *)0x60 = 1;
}
"""


@pytest.fixture(scope="module")
def recursion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recursion"), RECURSION, "-g", "-O0")


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("crashes"), CRASHES, "-g", "-O0")


@pytest.fixture(scope="module")
def handled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("handled"), HANDLED, "-g", "-O0")


def captured(*command: str | Path, stack: int | None = None) -> Crash:
    with dying([os.fspath(part) for part in command], stack=stack) as death:
        crash = crash_builder.capture(death)
    # These are no Python processes, and nobody read what they wrote.
    assert [gap.part for gap in crash.gaps if gap.part != "messages"] == []  # nobody read what they wrote
    return crash


def crashed(crash: Crash) -> Thread:
    thread = crash.crashed_thread
    assert thread is not None
    return thread


def top(crash: Crash, index: int = 0) -> Frame:
    frames = crashed(crash).frames
    assert frames is not None
    return frames[index]


# ---------------------------------------------------------------- to the bottom, exactly


@pytest.mark.parametrize("depth", [0, 3, 1018, 1019, 1020, 1021, 1022, 1023, 1024, 2047, 5000])
def test_every_frame_of_a_known_recursion_is_there_once(recursion: Path, depth: int) -> None:
    thread = crashed(captured(recursion, "direct", str(depth)))
    # direct called depth + 1 times, main, and what libc and the program's entry put below it: always the same.
    below = crashed(captured(recursion, "direct", "0")).frames_total
    assert below is not None
    assert thread.frames_total == depth + below
    assert thread.complete is True
    assert thread.frames is not None
    assert thread.frames[-1].function == "_start"
    assert [frame.function for frame in thread.frames].count("main") == 1


@pytest.mark.parametrize("kind", ["direct", "thread"])
def test_a_recursion_folds_with_its_bytes_per_frame(recursion: Path, kind: str) -> None:
    thread = crashed(captured(recursion, kind, "700"))
    (fold,) = thread.folds
    assert (fold.period, fold.times, fold.functions) == (1, 701, ("direct",))
    assert thread.frames is not None
    assert fold.bytes_per_period == thread.frames[5].stack_bytes
    assert thread.frames[5].source is not None
    assert thread.frames[5].source.endswith("crasher.c")


def test_a_mutual_recursion_is_one_of_period_two(recursion: Path) -> None:
    thread = crashed(captured(recursion, "mutual", "3000"))
    (fold,) = thread.folds
    assert (fold.period, fold.times, set(fold.functions)) == (2, 3000, {"ping", "pong"})
    assert thread.frames is not None
    assert fold.bytes_per_period == sum(frame.stack_bytes or 0 for frame in thread.frames[4:6])


# ---------------------------------------------------------------- exhausted stacks


def test_a_deep_recursion_exhausts_the_main_stack(recursion: Path) -> None:
    crash = captured(recursion, "direct", "100000000", stack=1 << 20)
    stack = crashed(crash).stack
    assert stack is not None
    assert (stack.guard_hit, stack.is_main, stack.size) == (True, True, 1 << 20)
    assert stack.used is not None
    assert abs(stack.used - (1 << 20)) < 16384
    assert crash.fault is not None
    assert crash.fault.access == "write"


def test_a_thread_with_a_small_stack_exhausts_that(recursion: Path) -> None:
    crash = captured(recursion, "thread", "100000000")
    stack = crashed(crash).stack
    assert stack is not None
    assert (stack.guard_hit, stack.is_main, stack.guard) == (True, False, 4096)
    assert stack.size is not None
    assert abs(stack.size - (256 << 10)) <= 4096
    assert crash.pid != crashed(crash).tid


def test_a_large_frame_jumps_over_the_guard(crashes: Path) -> None:
    crash = captured(crashes, "large")
    thread = crashed(crash)
    assert thread.stack is not None
    assert thread.stack.guard_hit is True
    assert thread.stack.is_main is True
    assert thread.stack.pointer is not None
    assert thread.stack.low is not None
    assert thread.stack.pointer < thread.stack.low
    assert thread.largest[0].function == "large"
    assert thread.largest[0].stack_bytes is not None
    assert thread.largest[0].stack_bytes >= (40 << 20) - 4096


def test_a_large_frame_in_a_thread_is_told_by_its_control_block(crashes: Path) -> None:
    # 3 MiB in a stack of 1 MiB: the pointer lies where another mapping may be.
    thread = crashed(captured(crashes, "medium-thread"))
    assert thread.stack is not None
    assert thread.stack.guard_hit is True
    assert thread.stack.is_main is False
    assert thread.stack.size is not None
    assert abs(thread.stack.size - (1 << 20)) <= 4096


@pytest.mark.parametrize("what", ["read", "wild-thread", "write-code", "null-call"])
def test_a_wild_access_is_no_overflow(crashes: Path, what: str) -> None:
    stack = crashed(captured(crashes, what)).stack
    assert stack is not None
    assert stack.guard_hit is False


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("what", "signal_name", "code", "address", "access"),
    [
        ("read", "SIGSEGV", "SEGV_MAPERR", 0x40, "read"),
        ("null-call", "SIGSEGV", "SEGV_MAPERR", 0, "exec"),
        ("garbage-call", "SIGSEGV", "SEGV_MAPERR", 0x123456789000, "exec"),
        ("read-high", "SIGSEGV", "SI_KERNEL", None, "read"),
    ],
)
def test_the_fault_as_the_kernel_says_it(  # noqa: PLR0917 - one column each
    crashes: Path, what: str, signal_name: str, code: str, address: int | None, access: str
) -> None:
    fault = captured(crashes, what).fault
    assert fault is not None
    assert (fault.signal, fault.code, fault.address) == (signal_name, code, address)
    if what != "read-high":
        assert fault.access == access
        assert fault.mapping is None


def test_a_write_to_code_names_the_mapping(crashes: Path) -> None:
    fault = captured(crashes, "write-code").fault
    assert fault is not None
    assert (fault.code, fault.access) == ("SEGV_ACCERR", "write")
    assert fault.mapping is not None
    assert fault.mapping.permissions == "r-xp"
    assert fault.mapping.path == str(crashes)


def test_a_non_canonical_address_is_found_in_the_operands(crashes: Path) -> None:
    instruction = captured(crashes, "read-high").instruction
    assert instruction is not None
    assert [operand.address for operand in instruction.operands] == [0xDEADBEEFDEADBEEF]


def test_a_division_shows_its_divisor(crashes: Path) -> None:
    crash = captured(crashes, "divide")
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code) == ("SIGFPE", "FPE_INTDIV")
    assert crash.instruction is not None
    assert crash.instruction.mnemonic == "idiv"
    assert top(crash).function == "divide"


@pytest.mark.parametrize(("what", "mnemonic", "number"), [("illegal", "ud2", "SIGILL"), ("trap", None, "SIGTRAP")])
def test_deliberate_traps(crashes: Path, what: str, mnemonic: str | None, number: str) -> None:
    crash = captured(crashes, what)
    assert crash.fault is not None
    assert crash.fault.signal == number
    assert crash.instruction is not None
    if mnemonic:
        assert crash.instruction.mnemonic == mnemonic


def test_a_signal_sent_by_itself_says_so(crashes: Path) -> None:
    fault = captured(crashes, "self").fault
    assert fault is not None
    assert (fault.signal, fault.sent_by_itself, fault.address) == ("SIGTERM", True, None)


# ---------------------------------------------------------------- jumps to nowhere


@pytest.mark.parametrize("what", ["null-call", "garbage-call", "data-call"])
def test_after_a_jump_to_nowhere_the_caller_is_found(crashes: Path, what: str) -> None:
    crash = captured(crashes, what)
    frames = crashed(crash).frames
    assert frames is not None
    assert frames[0].function is None
    assert frames[0].found_by == "registers"
    assert (frames[1].function, frames[1].found_by) == ("call", "scan")
    assert (frames[2].function, frames[2].found_by) == ("main", "cfi")
    assert frames[-1].function == "_start"
    assert crash.instruction is not None
    if what != "data-call":
        assert crash.instruction.text is None


# ---------------------------------------------------------------- threads, modules


def test_fifty_threads_are_all_read(crashes: Path) -> None:
    crash = captured(crashes, "many")
    assert crash.threads is not None
    assert len(crash.threads) == 51
    waiting = [thread for thread in crash.threads if not thread.crashed]
    for thread in waiting:
        assert thread.frames is not None
        assert "wait_forever" in [frame.function for frame in thread.frames]
        assert thread.complete is True
        assert thread.stack is not None
        assert thread.stack.guard == 4096
    assert len({thread.stack.low for thread in waiting if thread.stack}) == 50


def test_modules_have_their_build_ids(crashes: Path) -> None:
    modules = captured(crashes, "read").modules
    assert modules is not None
    libc = next(module for module in modules if module.path.endswith("libc.so.6"))
    assert libc.build_id is not None
    assert len(libc.build_id) == 40


def test_a_library_deleted_while_it_ran_is_still_read(tmp_path: Path) -> None:
    binary = build(tmp_path, CRASHES, "-g", "-O0", name="doomed")
    with dying([str(binary), "read"]) as death:
        binary.unlink()
        crash = crash_builder.capture(death)
    assert top(crash).function == "read_at"


# ---------------------------------------------------------------- handlers


def test_a_signal_raised_again_by_a_handler_keeps_its_address(handled: Path) -> None:
    crash = captured(handled, "null")
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.address, crash.fault.handled_first) == ("SIGSEGV", 0x60, True)
    assert top(crash).function == "main"


def test_a_handler_that_aborts_leaves_the_fault_that_it_handled(handled: Path) -> None:
    crash = captured(handled, "abort")
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.address, crash.fault.handled_first) == ("SIGSEGV", 0x60, True)


def test_an_abort_of_its_own_is_no_handled_fault(handled: Path) -> None:
    fault = captured(handled, "recovered").fault
    assert fault is not None
    assert (fault.signal, fault.handled_first) == ("SIGABRT", False)


@pytest.mark.parametrize("how", ["overflow", "bare"])
def test_an_overflow_behind_a_handler_is_still_an_overflow(handled: Path, how: str) -> None:
    # "bare": the handler has no stack of its own, so the kernel cannot even start it.
    crash = captured(handled, how, stack=1 << 20)
    stack = crashed(crash).stack
    assert stack is not None
    assert stack.guard_hit is True
    assert crashed(crash).folds[0].functions == ("forever",)


def test_what_is_not_there_is_a_gap_and_nothing_is_raised(crashes: Path) -> None:
    with dying([str(crashes), "read"]) as death:
        os.kill(death.pid, signal.SIGKILL)
        reap(death.pid)
        crash = crash_builder.capture(death)
    assert crash.pid is not None
    assert crash.gaps


# ---------------------------------------------------------------- our tables and drgn


@needs.package("drgn")
@pytest.mark.parametrize("what", ["large", "medium-thread", "wild-thread", "many"])
@pytest.mark.parametrize("options", [("-O0",), ("-O2",), ("-O2", "-mavx", "-mstackrealign", "-fomit-frame-pointer")])
def test_the_tables_lead_where_drgn_goes(tmp_path: Path, what: str, options: tuple[str, ...]) -> None:
    program = build(tmp_path, CRASHES, "-g", *options)
    with dying([str(program), what]) as death, ProcessMemory(death.pid) as memory:
        maps = memory_map.read(death.pid)
        files = modules.find(death.pid, maps, memory)
        now = registers.read(death.tid)
        ours = unwinder.Unwinder(maps, memory, files).unwind(now, None, time.monotonic() + 30)
        theirs = drgn_unwinding.callers(files, memory, now)
    pcs = [place.pc for place in ours.places.first(len(theirs))]
    assert pcs == theirs
    assert len(pcs) > 2
    assert ours.complete


# ---------------------------------------------------------------- without drgn


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-fomit-frame-pointer")])
def test_without_drgn_unwind_tables_lead_through_a_recursion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    program = build(tmp_path, RECURSION, *options)
    with_it = crashed(captured(program, "direct", "700"))
    monkeypatch.setitem(sys.modules, "drgn", None)
    with dying([str(program), "direct", "700"]) as death:
        thread = crashed(crash_builder.capture(death))
    assert thread.frames is not None
    assert with_it.frames is not None
    assert {frame.found_by for frame in thread.frames[1:]} == {"cfi"}
    assert thread.complete is True
    assert thread.frames_total == with_it.frames_total
    assert [one.stack_bytes for one in thread.frames] == [one.stack_bytes for one in with_it.frames]


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-fomit-frame-pointer")])
def test_without_drgn_and_tables_a_known_recursion_is_found_by_other_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    program = build(tmp_path, RECURSION, *options, "-fno-asynchronous-unwind-tables")
    with_it = crashed(captured(program, "direct", "700")).frames_total
    monkeypatch.setitem(sys.modules, "drgn", None)
    with dying([str(program), "direct", "700"]) as death:
        crash = crash_builder.capture(death)
    gap = crash.gap("frames")
    assert gap is not None
    assert "drgn is not installed" in gap.why
    thread = crashed(crash)
    assert thread.frames is not None
    assert thread.frames[0].found_by == "registers"
    assert {frame.found_by for frame in thread.frames[1:] if frame.function == "direct"} & {"frame-pointer", "scan"}
    assert thread.folds[0].functions == ("direct",)
    assert with_it is not None
    assert thread.frames_total is not None
    # What earlier calls left in arrays that nobody filled looks like a caller: a few more at the innermost end.
    assert -1 <= thread.frames_total - with_it <= 40


def test_a_process_without_python_has_no_python_stack_and_that_is_no_gap(crashes: Path) -> None:
    crash = captured(crashes, "read")
    assert crash.gap("python") is None
    assert crashed(crash).python == ()
