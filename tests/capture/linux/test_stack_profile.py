"""The stack peaks of `necropsy profile`, beside what each thread says itself of the deepest frame that it had."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import build
from supervised import C_LOOP, LOOPS

PAGE = 4096
SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static __thread char *lowest;
static char *high(void) {
  pthread_attr_t own; void *low; size_t size;
  if (getpid() == (pid_t)syscall(SYS_gettid)) { /* arguments and environment above its first frame count */
    char line[512]; FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) if (strstr(line, "[stack]")) return (char *)strtoul(strchr(line, '-') + 1, 0, 16);
  }
  pthread_getattr_np(pthread_self(), &own); pthread_attr_getstack(&own, &low, &size);
  return (char *)low + size;
}
static void told(const char *name) { if (lowest) printf("%s %ld\n", name, (long)(high() - lowest)); fflush(stdout); }
__attribute__((noinline)) static int recursion(int n) {
  volatile char room[300]; room[0] = n;
  if ((char *)room < lowest || !lowest) lowest = (char *)room;
  return n ? recursion(n - 1) + room[0] : 0;
}
__attribute__((noinline)) static void vla(int n) { volatile char room[n]; room[0] = 1; lowest = (char *)room; }
__attribute__((noinline)) static void large(void) { volatile char room[700000]; room[0] = 1; lowest = (char *)room; }
__attribute__((noinline)) static void once(int n) {
  volatile char *room = __builtin_alloca(n); for (int i = 0; i < n; i += 1024) room[i] = 1; lowest = (char *)room;
}
static void run(const char *name) {
  prctl(PR_SET_NAME, name);
  if (!strcmp(name, "recursion")) recursion(2000);
  if (!strcmp(name, "vla")) vla(300000);
  if (!strcmp(name, "large-frame")) large();
  if (!strcmp(name, "alloca")) once(500000);
  if (!strcmp(name, "own-size")) recursion(400);
  if (!strcmp(name, "own-memory")) once(100000);
  if (!strcmp(name, "cancelled")) recursion(1500);
  told(name);
}
static void *work(void *name) {
  run(name);
  if (!strcmp(name, "stays")) { recursion(900); told(name); pause(); }
  if (!strcmp(name, "cancelled")) pthread_exit(0);
  return 0;
}
static pthread_t start(const char *name, pthread_attr_t *how) {
  pthread_t one; pthread_create(&one, how, work, (void *)name); return one;
}
int main(int argc, char **argv) {
  static const char *names[] = {"recursion", "vla", "large-frame", "alloca", "cancelled"};
  for (int i = 0; i < 5; i++) pthread_join(start(names[i], 0), 0);
  pthread_attr_t how; pthread_attr_init(&how); pthread_attr_setstacksize(&how, 256 * 1024);
  pthread_join(start("own-size", &how), 0);
  void *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_setstack(&how, memory, 1 << 20);
  pthread_join(start("own-memory", &how), 0);
  start("stays", 0);
  recursion(argc > 1 ? 1000000 : 7000); usleep(30000);
  printf("main %ld\n", (long)(high() - lowest)); fflush(stdout);
  return 7;
}
"""


def profile(
    folder: Path, command: Sequence[str], *options: str, before: Sequence[str] = (), slow: bool = False, **popen: Any
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The finished run, and its document. ``slow``: by ``SLOW``."""
    file = folder / "profile.json"
    file.unlink(missing_ok=True)
    necropsy = ["-c", SLOW] if slow else ["-m", "necropsy"]
    words = [*before, sys.executable, *necropsy, "profile", *options, "--json", str(file), "--", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **popen)
    return done, json.loads(file.read_bytes())


def stacks(process: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in process["stacks"]}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("stacks")
    folder.chmod(0o755)
    return str(build(folder, SOURCE, "-O1", "-fno-optimize-sibling-calls", name="depths"))


@pytest.mark.parametrize("loop", LOOPS)
def test_each_peak_is_within_a_page_of_the_deepest_frame(tmp_path: Path, program: str, loop: str) -> None:
    done, document = profile(tmp_path, [program], env={**os.environ, "NECROPSY_LOOP": loop})
    assert done.returncode == 7
    truth = {name: int(depth) for name, depth in (line.split() for line in done.stdout.splitlines())}
    assert document["kind"] == "profile"
    (process,) = document["processes"]
    seen = stacks(process)
    assert seen.keys() == truth.keys()
    for name, depth in truth.items():
        use = seen[name]
        assert 0 <= use["peak"] - depth <= PAGE, (name, use, depth)
        assert use["exact"]
        assert use["ended"] is (name not in {"main", "stays"})
    assert {name: use["set_by"] for name, use in seen.items()} == {
        **dict.fromkeys(truth, "ulimit -s"),
        "own-size": "attribute",
        "own-memory": "pthread_attr_setstack",
    }
    for name in ("recursion", "own-size", "main"):
        row = seen[name]["functions"][0]
        assert (row["function"], row["module"], row["partial"]) == ("recursion", "depths", False)
        assert row["bytes"] >= 0.95 * seen[name]["peak"]
        assert row["times"] == pytest.approx({"recursion": 2000, "own-size": 400, "main": 7000}[name], rel=0.02)
    # Its frame was one of a function that had returned, on a stack where another thread's recursion has left its traces.
    assert "recursion" not in {row["function"] for row in seen["large-frame"]["functions"] or ()}
    assert [one["where"] for one in seen["main"]["would_not_fit"]] == ["Windows, python.exe"]
    assert not document["gaps"] or loop == "python"


NO_BREAKPOINTS = ("sh", "-c", 'trap "" TRAP; exec "$@"', "sh")
"""SIGTRAP that is ignored is inherited, and leaves nothing to stop a thread with."""


@C_LOOP
def test_without_breakpoints_page_faults_tell_the_peaks_of_threads_that_ended(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, [*NO_BREAKPOINTS, program])
    assert done.returncode == 7
    truth = {name: int(depth) for name, depth in (line.split() for line in done.stdout.splitlines())}
    seen = stacks(document["processes"][0])
    assert seen.keys() == truth.keys()
    for name, depth in truth.items():
        assert seen[name]["exact"], name
        assert 0 <= seen[name]["peak"] - depth <= PAGE, (name, seen[name], depth)
    assert any(gap["why"].startswith("what filled the stack of ") for gap in document["gaps"])


def test_without_both_the_last_look_counts_and_the_report_says_so(tmp_path: Path, program: str) -> None:
    """The loop in Python does not say where the control blocks of threads were that have ended."""
    env = {**os.environ, "NECROPSY_LOOP": "python"}
    done, document = profile(tmp_path, [*NO_BREAKPOINTS, program], env=env)
    assert done.returncode == 7
    seen = stacks(document["processes"][0])
    assert seen["main"]["exact"]
    assert seen["stays"]["exact"]
    assert any("ended" in gap["why"] and gap["part"] == "stack" for gap in document["gaps"])
    assert "not observed" in done.stderr


LATER = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) static int recursion(int n) {
  volatile char room[1000]; room[0] = n; return n ? recursion(n - 1) + room[0] : (int)(long)room;
}
static void *deep(void *depth) { prctl(PR_SET_NAME, "deep"); recursion((int)(long)depth); return 0; }
static void *shallow(void *nothing) { prctl(PR_SET_NAME, "shallow"); return nothing; }
int main(void) {
  pthread_t one;
  while (clock() < 1100000) {} /* after the first second of CPU time, a thread that ends is not stopped any more */
  usleep(300000);
  for (int i = 0; i < 200; i++) { pthread_create(&one, 0, shallow, 0); pthread_join(one, 0); usleep(2000); }
  for (long i = 0; i < 30; i++) {
    pthread_create(&one, 0, deep, (void *)(100 + 20 * i)); pthread_join(one, 0); usleep(50000);
  }
  return 0;
}
"""


def test_threads_that_are_not_stopped_at_their_ends_have_exact_peaks(tmp_path: Path) -> None:
    """And once one of them was deep, it is seen what fills the stacks of the next ones."""
    program = str(build(tmp_path, LATER, "-O1", "-fno-optimize-sibling-calls", name="later"))
    done, document = profile(tmp_path, [program])
    assert not done.returncode
    (process,) = document["processes"]
    shallow, deep = ([one for one in process["stacks"] if one["name"] == name] for name in ("shallow", "deep"))
    assert len(shallow) == 200
    assert all(one["exact"] and one["ended"] and one["peak"] < 40_000 for one in shallow)
    peaks = sorted(one["peak"] for one in deep)
    assert all(one["exact"] for one in deep)
    assert {after - before for before, after in pairwise(peaks)} <= {20_480, 24_576, 28_672}
    deepest = max(deep, key=lambda one: int(one["peak"]))
    assert deepest["functions"][0]["function"] == "recursion"
    assert not any("began and ended" in gap["why"] or "last look" in gap["why"] for gap in document["gaps"])


def test_a_death_is_reported_and_its_stack_is_full(tmp_path: Path, program: str) -> None:
    done, document = profile(tmp_path, [program, "deep"])
    assert done.returncode < 0 or done.returncode == 139
    assert document["reports"][0]["verdict"]["rule"] == "stack-overflow-recursion"
    main = stacks(document["processes"][0])["main"]
    assert main["peak"] == pytest.approx(main["size"], abs=2 * PAGE)
    assert "100" in done.stderr


LEAVES = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static atomic_int is_over;
__attribute__((noinline)) static void *work(void *unused) {
  volatile char room[300000]; room[0] = 1; atomic_store(&is_over, 1);
  return unused;
}
static long now(void) { struct timespec at; clock_gettime(CLOCK_MONOTONIC, &at); return at.tv_sec * 1000000000L + at.tv_nsec; }
static void leave(long us) {
  pthread_t one; pthread_create(&one, 0, work, 0);
  while (!atomic_load(&is_over)) {}
  for (long until = now() + 1000L * us; now() < until;) {}
  _exit(0);
}
int main(int argc, char **argv) {
  if (argc == 2) leave(atol(argv[1]));
  for (int i = 2; i < argc; i++) {
    if (!fork()) {
      if (!strcmp(argv[1], "fork")) leave(atol(argv[i]));
      execl(argv[0], argv[0], argv[i], NULL);
    }
    wait(0);
  }
}
"""
"""Its children end so many microseconds after their thread is done: some while that thread is stopped at its end."""


SLOW = """
import runpy, time
from necropsy.capture.linux.supervise.stack_profile import StackProfile
noticed = StackProfile.noticed
def slowly(*given):
    time.sleep(0.003)
    return noticed(*given)
StackProfile.noticed = slowly
runpy.run_module("necropsy", run_name="__main__", alter_sys=True)
"""
"""``necropsy`` that takes 3 ms where a thread is stopped at its end."""


@pytest.mark.parametrize("by", ["fork", "exec"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_thread_that_is_killed_while_it_ends_is_measured(tmp_path: Path, loop: str, by: str) -> None:
    program = str(build(tmp_path, LEAVES, "-O1", name="leaves"))
    waits = [str(us) for us in range(0, 3000, 50)]
    done, document = profile(tmp_path, [program, by, *waits], slow=True, env={**os.environ, "NECROPSY_LOOP": loop})
    assert done.returncode == 0, done.stderr
    _, *children = document["processes"]
    assert len(children) == len(waits)
    peaks = [[use["peak"] for use in one["stacks"] if use["name"] != "main"] for one in children]
    missed = [peak for peak in peaks if len(peak) != 1 or not 300_000 <= peak[0] <= 310_000]
    # Killed in the microseconds between the last look at it and the call that continues it, it still leaves unseen.
    assert len(missed) <= 4, missed


RECLAIMS = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
static atomic_int is_deep;
__attribute__((noinline)) static void reach(long bytes) {
  volatile char room[bytes]; for (long i = 0; i < bytes; i += 1024) room[i] = 1;
}
static void *stays(void *bytes) { reach((long)bytes); atomic_store(&is_deep, 1); pause(); return 0; }
static void *ends(void *bytes) { reach((long)bytes); return 0; }
int main(void) {
  static const long depths[] = {100000, 2000000};
  pthread_t one; pthread_create(&one, 0, stays, (void *)1000000);
  while (!atomic_load(&is_deep)) {}
  for (int i = 0; i < 2; i++) {
    if (!fork()) { pthread_create(&one, 0, ends, (void *)depths[i]); pthread_join(one, 0); _exit(0); }
    wait(0);
  }
  _exit(0);
}
"""
"""glibc gives a fork's first new thread the stack of its parent's thread."""


def test_a_thread_of_a_fork_that_gets_a_used_stack_has_only_its_own_depth(tmp_path: Path) -> None:
    program = str(build(tmp_path, RECLAIMS, "-O1", name="reclaims"))
    done, document = profile(tmp_path, [program])
    assert done.returncode == 0, done.stderr
    parent, *forks = document["processes"]
    (peak,) = (use["peak"] for use in parent["stacks"] if use["name"] != "main")
    assert 1_000_000 <= peak <= 1_010_000
    (shallow,), (deep,) = ([use for use in one["stacks"] if use["name"] != "main"] for one in forks)
    assert (shallow["peak"], shallow["inherited"]) == (None, peak)
    assert 2_000_000 <= deep["peak"] <= 2_010_000


FORKS = """
import os, sys, threading
sys.setrecursionlimit(10**6)
def nested(n):
    return 0 if n == 0 else max([n], key=lambda _: nested(n - 1)) and 1
nested(2500)
threading.stack_size(1 << 20)
def work(): nested(200)
one = threading.Thread(target=work); one.start(); one.join()
for depth in (0, 5000):
    pid = os.fork()
    if pid == 0:
        nested(depth)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_what_a_fork_has_inherited_is_no_peak_of_its_own(tmp_path: Path) -> None:
    done, document = profile(tmp_path, [sys.executable, "-c", FORKS], "--interval", "0.02")
    assert done.returncode == 0, done.stderr
    own, *forks = document["processes"]
    assert own["stacks"][0]["name"] == "main"
    threads = [one for one in own["stacks"] if one["name"] != "main"]
    assert [one["set_by"] for one in threads] == ["threading.stack_size"]
    assert threads[0]["size"] == pytest.approx(1 << 20, abs=2 * PAGE)
    shallow, deep = sorted((one["stacks"][0] for one in forks), key=lambda one: one["peak"] or 0)
    assert shallow["inherited"] == own["stacks"][0]["peak"]
    assert shallow["peak"] is None
    assert deep["peak"] > 1.5 * own["stacks"][0]["peak"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root has rights to give up")
def test_an_ordinary_user_gets_the_same(tmp_path: Path, program: str) -> None:
    before = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "sh", "-c", '"$@"', "sh"]
    done, document = profile(tmp_path, [program], before=before)
    seen = stacks(document["processes"][0])
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    assert seen["main"]["exact"]
    if paranoid <= 2:
        truth = dict(line.split() for line in done.stdout.splitlines())
        assert abs(seen["recursion"]["peak"] - int(truth["recursion"])) <= PAGE
        assert all(one["exact"] for one in seen.values())


NESTED = """
import json, re, sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(8 << 20)
def work():
    json.loads("[" * 20_000 + "]" * 20_000)
    for number in range(200):
        re.compile(f"(a|b){number}[c-f]+")
one = threading.Thread(target=work, name="parser"); one.start(); one.join()
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of CPython limit this recursion")
def test_what_a_deep_call_has_left_is_found_under_shallow_ones(tmp_path: Path) -> None:
    done, document = profile(tmp_path, [sys.executable, "-c", NESTED])
    assert done.returncode == 0, done.stderr
    (thread,) = (one for one in document["processes"][0]["stacks"] if one["name"] != "main")
    assert thread["peak"] > 1 << 20
    assert sum(row["bytes"] for row in thread["functions"]) > 0.9 * thread["peak"]
    assert 19_000 < thread["functions"][0]["times"] < 41_000
    assert "What filled the stack" in done.stderr


def test_a_run_that_came_close_is_warned_of(tmp_path: Path, program: str) -> None:
    """With a stack of 2,400 KiB, of which the main thread uses 2,190."""
    done, document = profile(tmp_path, ["sh", "-c", 'ulimit -s 2400; exec "$@"', "sh", program])
    assert done.returncode == 7
    (finding,) = (one for one in document["findings"] if "main" in one["summary"])
    assert (finding["rule"], finding["severity"]) == ("near-stack-overflow", "warning")
    assert finding["culprit"]["function"] == "recursion"
    assert "ulimit -s" in finding["fixes"][0]["command"]
    assert "warning: main used" in done.stderr
    assert "necropsy check --fix --select op-recursion" in finding["fixes"][1]["text"]
