"""Whatever the stack, its reading takes little memory, and what is read of it is right to the last frame."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import build

from control_group import inside, limited, needed

MIB = 1 << 20
MOST = 64 * MIB
"""What is allowed above the idle supervisor. The cases here are smaller than the largest, and take far less."""

DEEP = """
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define REAL __attribute__((noinline))
volatile int sink; volatile int *volatile nowhere;
static uint64_t seed = 88172645463325252ULL;
static inline int dice(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed >> 33 & 3; }
REAL int same(long n) { volatile char room[40]; room[0] = n; if (!n) *nowhere = 1; return same(n - 1) + room[0]; }
REAL int pong(long n);
REAL int ping(long n) { volatile char room[40]; room[0] = n; if (!n) *nowhere = 1; return pong(n - 1) + room[0]; }
REAL int pong(long n) { volatile char room[100]; room[0] = n; return ping(n) + room[0]; }
REAL int collect(long n);
REAL int now_and_then(long n) {
  volatile char room[24]; room[0] = n; if (!n) *nowhere = 1;
  return (n % 5000 ? now_and_then(n - 1) : collect(n - 1)) + room[0];
}
REAL int collect(long n) { volatile char room[300]; room[0] = n; return now_and_then(n) + room[0]; }
REAL int f0(long n); REAL int f1(long n); REAL int f2(long n); REAL int f3(long n);
static inline int go(long n) {
  if (!n) *nowhere = 1;
  switch (dice()) { case 0: return f0(n - 1); case 1: return f1(n - 1); case 2: return f2(n - 1); }
  return f3(n - 1);
}
REAL int f0(long n) { volatile char room[8]; room[0] = n; return go(n) + room[0]; }
REAL int f1(long n) { volatile char room[24]; room[0] = n; return go(n) + room[0]; }
REAL int f2(long n) { volatile char room[8]; room[0] = n; return go(n) * 3 + room[0]; }
REAL int f3(long n) { volatile char room[40]; room[0] = n; return go(n) + 5 + room[0]; }
static const char *what; static long depth;
static void *work(void *arg) {
  if (!strcmp(what, "same")) sink = same(depth);
  if (!strcmp(what, "mutual")) sink = ping(depth);
  if (!strcmp(what, "broken")) sink = now_and_then(depth);
  if (!strcmp(what, "dice")) sink = f0(depth);
  return arg;
}
int main(int argc, char **argv) {
  what = argv[1]; depth = atol(argv[2]); size_t size = strtoull(argv[3], 0, 0);
  char *stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return 3;
  mprotect(stack, 4096, PROT_NONE);
  pthread_attr_t attr; pthread_attr_init(&attr); pthread_attr_setstack(&attr, stack, size);
  pthread_t t; if (pthread_create(&t, &attr, work, 0)) return 4;
  pthread_join(t, 0);
}
"""

WIDE = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile int ready; volatile int *volatile nowhere;
static void *idle(void *arg) { __sync_fetch_and_add(&ready, 1); for (;;) pause(); return arg; }
static void *die(void *arg) { volatile char room[100]; room[0] = 1; return (void *)(long)(*nowhere + room[0]); }
int main(int argc, char **argv) {
  long count = atol(argv[2]); pthread_attr_t attr; pthread_t t; pthread_attr_init(&attr);
  if (!strcmp(argv[1], "threads")) {
    pthread_attr_setstacksize(&attr, 65536);
    for (int i = 0; i < count; i++) if (pthread_create(&t, &attr, idle, 0)) return 3;
    while (ready < count) usleep(1000);
  }
  if (!strcmp(argv[1], "mappings")) {
    char *p = mmap(0, count * 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (long i = 0; i < count; i++) mprotect(p + i * 8192, 4096, PROT_READ);
  }
  if (!strcmp(argv[1], "sparse")) {
    size_t size = (size_t)count << 40;
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 5;
    for (int i = 1; i < 100; i++) p[size / 100 * i] = i;
    pthread_attr_setstack(&attr, p, size);
    if (pthread_create(&t, &attr, die, 0)) return 4;
    pthread_join(t, 0);
  }
  return *nowhere;
}
"""

SIBLING = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char *held = malloc(200 << 20); memset(held, 1, 200 << 20);
  pid_t child = fork();
  if (!child) { free(held); execv(argv[1], argv + 1); _exit(9); }
  int status; waitpid(child, &status, 0);
  long sum = 0; for (long i = 0; i < 200 << 20; i += 4096) sum += held[i];
  printf("%s, %ld pages are there\\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended", sum);
}
"""


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("deep"), DEEP, "-O2", "-fno-optimize-sibling-calls")


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("framed"), DEEP, "-O0", "-fno-omit-frame-pointer")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wide"), WIDE, "-O2")


def reading(*command: object, **options: object) -> dict[str, Any]:
    script = Path(__file__).with_name("measured_reading.py")
    words = [sys.executable, str(script), json.dumps(options), *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    assert not done.returncode, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


# ---------------------------------------------------------------- depth


def test_a_stack_of_a_gigabyte_is_read_to_its_end_in_little_memory(deep: Path) -> None:
    said = reading(deep, "same", 4_000_000, 1 << 30)
    assert said["complete"]
    assert said["total"] == 4_000_000 + 4  # same(0), work, start_thread, clone
    assert said["folds"] == [[1, 4_000_001, 64.0, ["same"]]]
    assert said["kept"] == 512
    assert said["peak"] < MOST
    assert said["read"] < 1.1 * 64 * 4_000_000, "hardly anything is read twice"


@pytest.mark.parametrize("what", ["same", "mutual", "broken", "dice"])
@pytest.mark.parametrize("kind", ["deep", "framed"])
def test_what_is_read_at_once_is_what_is_read_frame_by_frame(
    what: str, kind: str, request: pytest.FixtureRequest
) -> None:
    program = request.getfixturevalue(kind)
    said = reading(program, what, 60_000, 64 * MIB, twice=True)
    assert said["same"]
    assert said["complete"]
    assert said["total"] > 60_000


def test_a_recursion_with_short_breaks_is_one(deep: Path) -> None:
    said = reading(deep, "broken", 1_000_000, 128 * MIB)
    assert said["complete"]
    assert said["total"] == 1_000_000 + 4 + 200  # collect stands on it for each 5,000 of the others
    (fold,) = said["folds"]
    assert fold[3] == ["now_and_then"]
    assert fold[1] == 1_000_000, "the outermost one stands alone, before the first break"


def test_a_million_frames_without_a_period(deep: Path) -> None:
    said = reading(deep, "dice", 1_000_000, 256 * MIB)
    assert said["complete"]
    assert said["total"] == 1_000_000 + 4
    assert said["peak"] < MOST
    assert said["kept"] == 512


@pytest.mark.parametrize("kind", ["deep", "framed"])
def test_where_time_is_up_both_ends_are_told(kind: str, request: pytest.FixtureRequest) -> None:
    program = request.getfixturevalue(kind)
    said = reading(program, "dice", 2_000_000, 512 * MIB, budget_s=60, s_per_mib=0.5)
    each = 2 if kind == "framed" else 1  # without optimization `go` has a frame too
    assert not said["complete"]
    assert said["total"] < 2_000_000 * each
    assert said["functions"][1] == "work", "the outermost frames are reported"
    assert said["estimate"] == pytest.approx(2_000_000 * each, rel=0.1)
    assert said["folds"]
    assert any("then the time for reading it was used up; it has about" in gap for gap in said["gaps"])


# ---------------------------------------------------------------- width


def test_threads_that_stand_alike_take_little(wide: Path) -> None:
    said = reading(wide, "threads", 1500)
    assert said["threads"] == 1501
    assert said["peak"] < MOST / 4
    assert not [one for one in said["gaps"] if "frames" in one]


def test_mappings_by_the_ten_thousand(wide: Path, tmp_path: Path) -> None:
    said = reading(wide, "mappings", 20_000, core=str(tmp_path / "core"))
    assert said["complete"]
    assert said["first"] == "main"
    assert said["peak"] < MOST / 2


@pytest.mark.parametrize("full_memory", [False, True])
def test_a_stack_of_ten_terabytes_holds_what_was_touched(wide: Path, tmp_path: Path, full_memory: bool) -> None:
    core = tmp_path / "core"
    said = reading(wide, "sparse", 10, core=str(core), full_memory=full_memory)
    assert said["first"] == "die"
    assert said["complete"]
    assert said["peak"] < MOST / 2
    assert said["read"] < 16 * MIB
    assert core.stat().st_size < MIB


# ---------------------------------------------------------------- beside others


@pytest.fixture
def group() -> Iterator[Path]:
    with limited(500_000_000) as group:
        yield group


@needed()
def test_a_sibling_in_the_same_control_group_survives(deep: Path, group: Path, tmp_path: Path) -> None:
    sibling, report = build(tmp_path, SIBLING, "-O2", name="sibling"), tmp_path / "report.json"
    command = [sibling, deep, "same", "2500000", str(1 << 30)]
    run = [sys.executable, "-m", "necropsy", "run", "--json", report, "--quiet", "--", *command]
    words = [*inside(group), *map(str, run)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.stdout == "Segmentation fault, 51200 pages are there\n"
    assert done.returncode == 0
    (told,) = json.loads(report.read_text())["reports"]
    thread = next(one for one in told["crash"]["threads"] if one["crashed"])
    assert (thread["frames_total"], thread["complete"]) == (2_500_004, True)
    assert len(thread["frames"]) == 512
    assert report.stat().st_size < 2 * MIB, "the document does not grow with the depth"
