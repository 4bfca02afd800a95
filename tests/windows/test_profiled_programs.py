"""``necropsy profile`` in a Windows CPython under wine: the peak of each thread, beside what the thread says itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wine

pytestmark = wine.needed

PAGE = 4096
SOURCE = r"""
#include <malloc.h>
#include <process.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>
static __thread char *lowest;
static __attribute__((noinline)) int recursion(int n) {
  volatile char room[300]; room[0] = n;
  if (!lowest || (char *)room < lowest) lowest = (char *)room;
  return n ? recursion(n - 1) + room[0] : 0;
}
static __attribute__((noinline)) void block(int n) {
  volatile char *room = alloca(n); for (int at = n - 1; at >= 0; at -= 512) room[at] = 1;
  room[0] = 1; lowest = (char *)room;
}
static void told(const char *name) {
  printf("%lu %s %ld\n", GetCurrentThreadId(), name, (long)((char *)__readgsqword(8) - lowest)); fflush(stdout);
}
static unsigned __stdcall work(void *name) {
  if (!strcmp(name, "recursion")) recursion(2750); else block(150000);
  told(name);
  if (!strcmp(name, "stays")) Sleep(INFINITE);
  return 0;
}
int main(void) {
  char name[] = "recursion", block_of[] = "alloca", stays[] = "stays";
  HANDLE one = (HANDLE)_beginthreadex(0, 256 << 10, work, name, STACK_SIZE_PARAM_IS_A_RESERVATION, 0);
  WaitForSingleObject(one, INFINITE);
  one = (HANDLE)_beginthreadex(0, 512 << 10, work, block_of, STACK_SIZE_PARAM_IS_A_RESERVATION, 0);
  WaitForSingleObject(one, INFINITE);
  _beginthreadex(0, 1 << 20, work, stays, STACK_SIZE_PARAM_IS_A_RESERVATION, 0);
  Sleep(300);
  recursion(2000); told("main");
  /* wine has given the main thread's stack back when it tells of the end. Looks are at most a second apart. */
  Sleep(2500);
  return 7;
}
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[wine.Completed, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("profile")
    source, file = folder / "depths.c", folder / "profile.json"
    source.write_text(SOURCE)
    program = wine.windows_path(wine.mingw(source, "-O1", "-fno-optimize-sibling-calls"))
    words = ("-m", "necropsy", "profile", "--json", wine.windows_path(file), "--", program)
    done = wine.run(wine.python(), *words, env={"NECROPSY_KEEP": "0"})
    assert done.code32 == 7, done
    return done, json.loads(file.read_text())


def test_each_peak_is_within_a_page_of_the_deepest_frame(profiled: tuple[wine.Completed, dict[str, Any]]) -> None:
    done, document = profiled
    assert document["kind"] == "profile"
    own = document["processes"][-1]
    stacks = {one["tid"]: one for one in own["stacks"]}
    truth = {int(tid): (name, int(depth)) for tid, name, depth in (line.split() for line in done.stdout.splitlines())}
    assert len(truth) == 4, done.stdout
    for tid, (name, depth) in truth.items():
        assert 0 <= stacks[tid]["peak"] - depth <= PAGE, (name, stacks[tid], depth)
        assert stacks[tid]["exact"] or name in {"main", "stays"}
        # What the process has ended itself has its exit code: whether it had ended before is not known then.
        assert bool(stacks[tid]["ended"]) == (name in {"recursion", "alloca"})
        assert stacks[tid]["size"] >= 1 << 20, "wine gives no less"


def test_what_comes_near_its_end_is_found_there_too(profiled: tuple[wine.Completed, dict[str, Any]]) -> None:
    done, document = profiled
    truth = {name: tid for tid, name, _ in (line.split() for line in done.stdout.splitlines())}
    (near,) = (one for one in document["findings"] if one["rule"] == "near-stack-overflow")
    assert near["summary"].startswith(f"thread {truth['recursion']} used")
    assert "not observed: profile: on Windows" in done.stderr
    assert {one["name"] for one in document["processes"][-1]["stacks"]} >= {"main"}


def test_threads_are_counted_over_time(profiled: tuple[wine.Completed, dict[str, Any]]) -> None:
    _, document = profiled
    own = document["processes"][-1]
    assert own["peaks"]["threads"] >= 2
    assert [one["at"] for one in own["memory"]] == sorted(one["at"] for one in own["memory"])
