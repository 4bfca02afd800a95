"""Page faults by thread, of real programs that touch memory."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build

from necropsy.capture.linux.supervise.page_faults import PageFaults

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static char *memory; static size_t size;
static void *work(void *name) {
  if (name) prctl(PR_SET_NAME, (char *)name);
  printf("%d\n", (int)syscall(SYS_gettid)); fflush(stdout);
  for (size_t at = size; at; at -= 4096) memory[at - 1] = 1;
  return 0;
}
int main(int argc, char **argv) {
  pthread_t one; char line[100]; unsigned long mega; char name[16];
  prctl(PR_SET_NAME, "the-main-one");
  while (fgets(line, sizeof line, stdin) && sscanf(line, "%lu %15s", &mega, name) == 2) {
    size = mega << 20;
    memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, size, MADV_NOHUGEPAGE);
    printf("%lu\n", (unsigned long)memory); fflush(stdout);
    pthread_create(&one, 0, work, name[0] == '-' ? 0 : name); pthread_join(one, 0);
    printf("done\n"); fflush(stdout);
  }
}
"""
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="not tried on other processors")


class Toucher:
    """The program, and what is seen of it."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.faults = PageFaults(self.process.pid)

    def touch(self, megabytes: int, name: str = "-") -> tuple[int, int, int]:
        """A thread touches so much from above; its number, and the range."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{megabytes} {name}\n")
        self.process.stdin.flush()
        low, tid, done = (self.process.stdout.readline() for _ in range(3))
        assert done == "done\n"
        return int(tid), int(low), int(low) + (megabytes << 20)


@pytest.fixture
def toucher(tmp_path: Path) -> Iterator[Toucher]:
    toucher = Toucher(str(build(tmp_path, PROGRAM, "-O1", name="toucher")))
    yield toucher
    toucher.process.kill()
    toucher.process.communicate()
    toucher.faults.close()


def test_what_a_thread_has_touched_is_known_after_its_end(toucher: Toucher) -> None:
    tid, low, high = toucher.touch(1)
    assert toucher.faults.read()
    assert toucher.faults.watch(tid, low, high)
    assert toucher.faults.lowest(tid) == low + 4095
    assert tid in toucher.faults.moved()
    assert not toucher.faults.moved()
    toucher.faults.forget(tid)
    assert toucher.faults.lowest(tid) is None


def test_only_the_range_counts(toucher: Toucher) -> None:
    tid, low, high = toucher.touch(1)
    assert toucher.faults.read()
    assert toucher.faults.watch(tid, low + (1 << 19), high)
    assert toucher.faults.lowest(tid) == low + (1 << 19) + 4095


def test_more_faults_than_the_rings_hold_are_missed_and_that_is_known(toucher: Toucher) -> None:
    toucher.faults.read()
    tid, low, high = toucher.touch(2048)
    assert not toucher.faults.read()
    assert not toucher.faults.watch(tid, low, high)
    for _ in range(20):  # with one of them, on whichever processor, the kernel says how many were lost
        tid, low, high = toucher.touch(1)
        assert toucher.faults.read()
    assert toucher.faults.watch(tid, low, high)


def test_a_thread_has_the_name_that_it_gave_itself_or_that_of_its_creator(toucher: Toucher) -> None:
    toucher.faults.read()
    named, _, _ = toucher.touch(1, "worker-7")
    toucher.faults.read()
    assert toucher.faults.name(named) == "worker-7"
    unnamed, _, _ = toucher.touch(1)
    toucher.faults.read()
    creator = toucher.faults.name(unnamed)
    assert creator in {toucher.process.pid, "the-main-one"}


def test_a_process_that_is_gone_has_none(toucher: Toucher) -> None:
    toucher.process.kill()
    toucher.process.communicate()
    with pytest.raises(OSError, match="No such process"):
        PageFaults(toucher.process.pid)
