"""Stacks that `necropsy profile` copies while they are in use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from harness import build
from test_stack_profile import profile

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec at; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at); return at.tv_sec + at.tv_nsec / 1e9; }
__attribute__((noinline)) static void busy(double until) { while (now() < until); }
__attribute__((noinline)) static int deep(int n, int waits) {
  volatile char room[200]; room[0] = n;
  if (n) return deep(n - 1, waits) + room[0];
  if (!waits) { busy(now() + 2); return 0; }
  struct epoll_event event; int handle = epoll_create1(0);
  if (epoll_wait(handle, &event, 1, 900) < 0 && errno == EINTR) puts("interrupted");
  return 0;
}
static void *work(void *name) { prctl(PR_SET_NAME, name); deep(4000, *(char *)name == 'w'); return 0; }
int main(void) {
  pthread_t one, other;
  pthread_create(&one, 0, work, "busy"); pthread_create(&other, 0, work, "waits");
  pthread_join(one, 0); pthread_join(other, 0); puts("done");
}
"""
PYTHON = """
import sys, threading, time
sys.setrecursionlimit(10**6)
def level(n):
    if n:
        return len(sorted([n], key=lambda _: level(n - 1)))
    until = time.thread_time() + 2
    while time.thread_time() < until:
        pass
    return 0
threading.stack_size(4 << 20)
one = threading.Thread(target=level, args=(150,), name="sorts"); one.start(); one.join()
"""


def by_name(document: dict[str, Any], field: str) -> dict[str, dict[str, Any]]:
    return {one[field]: one for one in document["processes"][0]["stacks"]}


def test_a_thread_that_is_deep_is_seen_and_one_that_waits_is_left_alone(tmp_path: Path) -> None:
    program = build(tmp_path, SOURCE, "-O1", "-fno-optimize-sibling-calls", name="lives")
    for _ in range(5):
        done, document = profile(tmp_path, [str(program)])
        assert (done.returncode, done.stdout) == (0, "done\n")
        threads = by_name(document, "name")
        row = threads["busy"]["functions"][0]
        assert (row["function"], row["times"], row["how"], row["partial"]) == ("deep", 4001, "seen", False)
        row = threads["waits"]["functions"][0]
        if row["how"] == "recovered":
            break  # on a busy machine a look may come before it waits
    assert (row["function"], row["how"]) == ("deep", "recovered")
    assert "busy" in {one["function"] for one in threads["busy"]["functions"]}


@pytest.mark.skipif(not (3, 8) <= sys.version_info[:2] <= (3, 13), reason="its stacks cannot be read by us")
def test_python_functions_are_rows_with_their_lines(tmp_path: Path) -> None:
    script = tmp_path / "sorts.py"
    script.write_text(PYTHON)
    done, document = profile(tmp_path, [sys.executable, str(script)], "--stack-top", "2")
    assert done.returncode == 0
    rows = by_name(document, "python_name")["sorts"]["functions"]
    (row,) = (one for one in rows if one["file"] == str(script) and "lambda" in one["function"])
    assert (row["line"], row["how"], row["partial"]) == (6, "seen", False)
    assert 100 <= row["times"] <= 150
    assert row["bytes"] == pytest.approx(row["times"] * row["frame_bytes"], abs=row["times"])
    assert "sorts.py:6 level" in done.stderr
