"""A thread that was moved to a signal's stack or a coroutine's: the bounds of that one are told, and whether it was full."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Stack, Thread

ROOM = 64 << 10

# Each stack has a guard of a MiB below, and a page above that cannot be written, so that no neighbour joins its mapping.
PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
enum { ROOM = 64 << 10, GUARD = 1 << 20 };
static volatile int sink;
static char *made(void) {
  char *low = mmap(0, GUARD + ROOM + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(low + GUARD, ROOM, PROT_READ | PROT_WRITE);
  return low + GUARD;
}
__attribute__((noinline)) int visit(int n) { volatile char pad[300]; pad[0] = n; return visit(n + 1) + pad[0]; }
static void deep(int signo) { sink = visit(signo); }
static void fault(int signo) { sink = *(volatile int *)0x40; }
static void work(void) { sink = visit(0); }
static void *start(void *unused) { work(); return unused; }
int main(int argc, char **argv) {
  char *stack = made();
  if (!strcmp(argv[1], "thread")) {
    pthread_attr_t small; pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, ROOM); pthread_attr_setguardsize(&small, GUARD);
    pthread_t thread;
    pthread_create(&thread, &small, start, 0);
    return pthread_join(thread, 0);
  }
  if (!strcmp(argv[1], "coroutine")) {
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack; there.uc_stack.ss_size = ROOM; there.uc_link = &here;
    makecontext(&there, work, 0);
    return swapcontext(&here, &there);
  }
  stack_t given = { .ss_sp = stack + 8192, .ss_size = ROOM - 8192 };
  if (!strcmp(argv[1], "deep")) given = (stack_t){ .ss_sp = stack, .ss_size = ROOM };
  sigaltstack(&given, 0);
  struct sigaction action; memset(&action, 0, sizeof action);
  action.sa_handler = strcmp(argv[1], "fault") ? deep : fault; action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, 0);
  return raise(SIGUSR1);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("moved"), PROGRAM, "-g", "-O0")


def crashed(program: Path, how: str) -> tuple[Thread, Stack]:
    with dying([os.fspath(program), how]) as death:
        crash = crash_builder.capture(death)
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.stack is not None
    return thread, thread.stack


@pytest.mark.parametrize(("how", "outermost"), [("deep", "main"), ("coroutine", "work")])
def test_a_full_one_is_told_with_its_own_size(program: Path, how: str, outermost: str) -> None:
    thread, stack = crashed(program, how)
    assert (stack.is_alternate, stack.guard_hit, stack.size) == (True, True, ROOM)
    assert thread.folds[0].functions == ("visit",)
    assert outermost in [frame.function for frame in thread.frames or ()]


@pytest.mark.parametrize("how", ["deep", "fault", "coroutine"])
def test_the_way_from_one_stack_to_another_is_no_frame_of_that_size(program: Path, how: str) -> None:
    thread, _ = crashed(program, how)
    frames = (*(thread.frames or ()), *thread.largest)
    assert max(frame.stack_bytes or 0 for frame in frames) < ROOM


def test_the_kernel_notes_where_a_signals_stack_begins(program: Path) -> None:
    _, stack = crashed(program, "fault")
    assert (stack.is_alternate, stack.guard_hit, stack.size) == (True, False, ROOM - 8192)
    assert stack.used is not None
    assert 0 < stack.used < ROOM - 8192


@pytest.mark.parametrize("how", ["deep", "coroutine", "thread"])
def test_the_small_core_of_a_full_one_holds_its_frames(program: Path, how: str, tmp_path: Path) -> None:
    """Where a stack is full, the stack pointer lies in the guard below it."""
    packed = io.BytesIO()
    with dying([os.fspath(program), how]) as death:
        alive = crash_builder.capture(dataclasses.replace(death, core=packed))
    small = tmp_path / "small.core"
    small.write_bytes(gzip.decompress(packed.getvalue()))
    dead = open_core.read(small)
    assert alive.crashed_thread is not None
    assert dead.crashed_thread is not None
    assert dead.crashed_thread.folds == alive.crashed_thread.folds
    assert dead.crashed_thread.frames_total == alive.crashed_thread.frames_total
    assert dead.crashed_thread.stack == alive.crashed_thread.stack
