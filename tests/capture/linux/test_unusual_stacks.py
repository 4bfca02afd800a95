"""What `necropsy profile` says of stacks that are not the usual ones: coroutines, no limit, heap memory, very many."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build
from test_stack_profile import PAGE, profile, stacks

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
static ucontext_t caller, coroutine;
static double now(void) { struct timespec at; clock_gettime(CLOCK_MONOTONIC, &at); return at.tv_sec + at.tv_nsec / 1e9; }
__attribute__((noinline)) static int recursion(int n) { volatile char room[300]; room[0] = n; return n ? recursion(n - 1) + room[0] : 0; }
static void busy(void) { double until = now() + 1.5; recursion(300); while (now() < until); }
static void sleeping(void) { recursion(300); usleep(1500000); }
static void on_other_memory(void (*what)(void)) {
  getcontext(&coroutine);
  coroutine.uc_stack.ss_size = 256 << 10;
  coroutine.uc_stack.ss_sp = malloc(256 << 10);
  coroutine.uc_link = &caller;
  makecontext(&coroutine, what, 0);
  swapcontext(&caller, &coroutine);
}
static void *deep(void *unused) { prctl(PR_SET_NAME, "deep"); recursion(500); return 0; }
static void *waits(void *gate) { pthread_mutex_lock(gate); pthread_mutex_unlock(gate); return 0; }
int main(int argc, char **argv) {
  pthread_attr_t how; pthread_t one; pthread_attr_init(&how);
  if (!strcmp(argv[1], "busy")) on_other_memory(busy);
  if (!strcmp(argv[1], "sleeping")) on_other_memory(sleeping);
  if (!strcmp(argv[1], "heap")) {
    pthread_attr_setstack(&how, malloc(512 << 10), 512 << 10);
    pthread_create(&one, &how, deep, 0); pthread_join(one, 0);
  }
  if (!strcmp(argv[1], "unlimited")) { pthread_create(&one, &how, deep, 0); pthread_join(one, 0); recursion(1000); }
  if (!strcmp(argv[1], "many")) {
    static pthread_t all[1000]; static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_setstacksize(&how, 64 << 10);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 1000; i++) if (pthread_create(all + i, &how, waits, &gate)) return 9;
    usleep(300000); pthread_mutex_unlock(&gate);
    for (int i = 0; i < 1000; i++) pthread_join(all[i], 0);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("unusual")
    return str(build(folder, SOURCE, "-O1", "-fno-optimize-sibling-calls", name="unusual"))


@pytest.mark.parametrize("what", ["busy", "sleeping"])
def test_a_coroutine_runs_on_memory_that_is_no_stack_of_a_thread(tmp_path: Path, program: str, what: str) -> None:
    done, document = profile(tmp_path, [program, what])
    assert done.returncode == 0
    assert stacks(document["processes"][0])["main"]["peak"] < 64 << 10
    (gap,) = (one for one in document["gaps"] if "coroutine" in one["why"])
    assert "main" in gap["why"]
    assert "not observed: stack: thread main" in done.stderr


def test_without_a_limit_a_stack_has_no_size(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, ["sh", "-c", 'ulimit -s unlimited && exec "$@"', "sh", program, "unlimited"])
    assert done.returncode == 0
    seen = stacks(document["processes"][0])
    assert seen["main"]["size"] is None
    assert seen["main"]["peak"] > 300_000
    assert "no limit" in done.stderr
    assert seen["deep"]["set_by"] == "glibc"
    assert not document["findings"]


def test_a_stack_on_the_heap(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, [program, "heap"])
    assert done.returncode == 0
    deep = stacks(document["processes"][0])["deep"]
    assert deep["set_by"] == "pthread_attr_setstack"
    assert deep["size"] == pytest.approx(512 << 10, abs=PAGE)
    assert 500 * 300 < deep["peak"] < 500 * 400
    assert deep["guard"] == 0


def test_a_thousand_threads(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, [program, "many"])
    assert done.returncode == 0
    seen = document["processes"][0]["stacks"]
    assert len(seen) == 1001
    assert all(one["peak"] for one in seen)
    assert "and 99" in done.stderr or "x1000" in done.stderr


def test_a_process_that_ends_before_the_first_look(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, [program, "heap"], "--interval", "30")
    assert done.returncode == 0
    assert all(one["exact"] for one in document["processes"][0]["stacks"])
    assert "deep" in stacks(document["processes"][0])
