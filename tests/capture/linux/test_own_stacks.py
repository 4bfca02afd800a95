"""The stacks of one's own threads, beside the lowest address that each has written."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

import pytest
from harness import build

from necropsy.capture.linux.inspect.own_stacks import OwnStacks
from necropsy.model import StackUse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux")
PAGE = 4096
SOURCE = r"""
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
long deep(long octets) { /* how far below the stack's upper end it wrote */
  volatile char *room = alloca(octets);
  for (long i = octets - 1; i >= 0; i -= 512) room[i] = 1;
  room[0] = 1;
  pthread_attr_t own; void *low; size_t size;
  pthread_getattr_np(pthread_self(), &own); pthread_attr_getstack(&own, &low, &size); pthread_attr_destroy(&own);
  return (char *)low + size - (char *)room;
}
static pthread_barrier_t begun, go, over, leave;
static long wrote;
static void *work(void *octets) {
  pthread_barrier_wait(&begun); pthread_barrier_wait(&go);
  wrote = deep((long)octets);
  pthread_barrier_wait(&over); pthread_barrier_wait(&leave);
  return 0;
}
void start(long octets) {
  pthread_t one;
  pthread_barrier_init(&begun, 0, 2); pthread_barrier_init(&go, 0, 2);
  pthread_barrier_init(&over, 0, 2); pthread_barrier_init(&leave, 0, 2);
  pthread_create(&one, 0, work, (void *)octets); pthread_detach(one);
  pthread_barrier_wait(&begun);
}
long finish(void) { pthread_barrier_wait(&go); pthread_barrier_wait(&over); return wrote; }
void end(void) { pthread_barrier_wait(&leave); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = build(tmp_path_factory.mktemp("own"), SOURCE, "-shared", "-fPIC", "-O1", "-pthread", name="own.so")
    loaded = ctypes.CDLL(str(path))
    loaded.deep.restype = loaded.finish.restype = ctypes.c_long
    loaded.deep.argtypes = loaded.start.argtypes = [ctypes.c_long]
    return loaded


def of(stacks: OwnStacks, tid: int) -> StackUse:
    (found,) = [one for one in stacks.uses() if one.tid == tid]
    return found


def in_a_thread(work: Callable[[], int], stacks: OwnStacks) -> tuple[int, StackUse]:
    """What ``work`` returns in a thread that was there before, and the thread's stack afterwards."""
    asked, done, leave = (threading.Event() for _ in range(3))
    wrote: list[int] = []

    def run() -> None:
        asked.wait()
        wrote.append(work())
        done.set()
        leave.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        stacks.begin()
        asked.set()
        done.wait()
        assert thread.native_id is not None
        return wrote[0], of(stacks, thread.native_id)
    finally:
        asked.set()
        leave.set()
        thread.join()


def test_the_mark_of_a_python_thread_is_right_to_a_page(library: ctypes.CDLL) -> None:
    wrote, use = in_a_thread(lambda: int(library.deep(1_500_000)), OwnStacks())
    assert use.peak is not None
    assert use.peak - PAGE <= wrote <= use.peak
    assert use.inherited is not None
    assert use.inherited < 200_000


def test_a_thread_that_got_no_deeper_has_no_peak_of_its_own(library: ctypes.CDLL) -> None:
    wrote, use = in_a_thread(lambda: 0, OwnStacks())
    assert (wrote, use.peak) == (0, None)
    assert use.inherited is not None


def test_a_native_thread_is_found_by_its_stack_pointer(library: ctypes.CDLL) -> None:
    stacks = OwnStacks()
    library.start(900_000)
    try:
        for _ in range(1000):  # it is found once it waits
            stacks.begin()
            before = {one.tid for one in stacks.uses()}
            if not stacks.gaps:
                break
            time.sleep(0.005)
        wrote = library.finish()
        deepest = max((one for one in stacks.uses() if one.name != "main" and one.peak), key=lambda one: one.peak or 0)
        assert deepest.tid in before
        assert deepest.peak is not None
        assert deepest.peak - PAGE <= wrote <= deepest.peak
    finally:
        library.end()


def test_threads_that_ended_are_forgotten_and_their_numbers_are_not_confused(library: ctypes.CDLL) -> None:
    stacks = OwnStacks()
    for _ in range(3):
        wrote, use = in_a_thread(lambda: int(library.deep(700_000)), stacks)
        assert use.peak is not None
        assert use.peak - PAGE <= wrote <= use.peak


def test_the_main_thread_grows(library: ctypes.CDLL) -> None:
    stacks = OwnStacks()
    stacks.begin()
    known = of(stacks, stacks.pid)
    assert (known.name, known.exact) == ("main", True)
    assert known.inherited is not None
    if threading.current_thread() is threading.main_thread():
        library.deep(known.inherited + 500_000)
        peak = of(stacks, stacks.pid).peak
        assert peak is not None
        assert peak >= known.inherited + 500_000
