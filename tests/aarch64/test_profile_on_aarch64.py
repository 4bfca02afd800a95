"""`necropsy profile` on AArch64: how deep the stacks of threads got that have ended by the next look."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import supervision

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static void *fill(void *size) {
  char room[(long)size];
  memset(room, 1, sizeof room);
  __asm__ volatile("" : : "r"(room) : "memory");
  return NULL;
}
int main(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 4 << 20);
  for (long number = 1; number <= 20; number++) {
    pthread_t one;
    pthread_create(&one, &attributes, fill, (void *)(number * 100000));
    pthread_join(one, NULL);
  }
  puts("ended well");
  return 0;
}
"""
THREADS = [number * 100_000 for number in range(1, 21)]
_MORE = 24 << 10
"""Bytes of a stack that a thread uses besides, at most: its own structure, its variables, and what starts it."""


WITHOUT_HUGE_STACKS = """
from pathlib import Path
place = Path("/sys/kernel/mm/transparent_hugepage/enabled")
if place.exists():
    place.write_text("madvise")
Path("/proc/sys/kernel/perf_event_paranoid").write_text("2")
"""
"""Kernels before 6.7 give stacks huge pages too, where Debian's default is kept; and Debian lets root alone see page faults."""


@pytest.mark.parametrize("user", [None, "user"])
def test_threads_that_end_at_once(tmp_path: Path, user: str | None) -> None:
    machine = supervision.machine()
    source, program, place = tmp_path / "threads.c", tmp_path / "threads", f"/tmp/profile-{user}.json"
    source.write_text(SOURCE)
    subprocess.run(["aarch64-linux-gnu-gcc", "-O1", "-pthread", source, "-o", program], check=True)
    machine.put({"/opt/threads": program.read_bytes()})
    assert machine.run("/usr/bin/python3", "-c", WITHOUT_HUGE_STACKS).status == 0
    words = ["necropsy", "profile", "--json", place, "--", "/opt/threads"]
    ended = machine.run(*words, user=user, environment=supervision.PATH)
    assert (ended.status, ended.out) == (0, "ended well\n"), ended.err
    document = json.loads(machine.run("/usr/bin/python3", "-c", f"print(open({place!r}).read())").out)
    (process,) = document["processes"]
    peaks = sorted(stack["peak"] for stack in process["stacks"] if stack["name"] != "main")
    page = int(supervision.PAGES.removesuffix("k")) << 10
    assert len(peaks) == len(THREADS), document["gaps"]
    for peak, filled in zip(peaks, THREADS, strict=True):
        assert filled < peak <= filled + _MORE + page
