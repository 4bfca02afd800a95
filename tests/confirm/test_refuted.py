"""Wrong hypotheses, of real programs that die in a way that looks like another: each is refuted, or not confirmed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, script, verdict

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="this builds what crashes"),
]

SOURCE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
volatile int sink;
/* A write past a block's end changes the number that says how deep to go: the stack is filled, but the stack is well. */
struct plan { char name[32]; };
static int descend(long n) { volatile char pad[64]; pad[n & 63] = 1; return n == 0 ? 0 : descend(n - 1) + pad[0]; }
int overwritten_depth(int letters) {
  char *block = malloc(24), *behind = malloc(24);
  for (int i = 0; i < 10000 && behind != block + 32; i++) block = behind, behind = malloc(24);
  long *depth = (long *)behind;
  *depth = 3;
  memset(block, 1, letters);  /* line 16: the block behind holds the depth */
  sink = descend(*depth);
  free(depth);
  free(block);
  return 0;
}

int endless(int n) { return endless(n + 1) + 1; }

/* A pointer on the heap is overwritten with an address just below this thread's stack: a write there is no overflow.
   A thread has a guard page there, beyond which anything may be mapped; the main thread's stack has a gap instead. */
struct item { char text[16]; char *where; };
__attribute__((noinline)) int below_the_stack(int bytes) {
  pthread_attr_t attributes;
  void *low;
  size_t size;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &low, &size);
  struct item *item = malloc(sizeof *item);
  char *bait[3] = {0, 0, (char *)low - 64 - (getpid() == gettid() ? 4096 : 0)};
  memcpy(item->text, bait, bytes);
  item->where[0] = 1;
  return 0;
}

/* A shared pointer is NULL for a moment while another thread changes it: OMP_NUM_THREADS workers do. */
static int *volatile shared;
static int value = 1;
static void *swap(void *unused) {
  for (;;) { shared = 0; shared = &value; }
  return unused;
}
int shared_pointer(int n) {
  const char *text = getenv("OMP_NUM_THREADS");
  int threads = text ? atoi(text) : n;
  pthread_t other;
  shared = &value;
  if (threads < 2) return 0;
  pthread_create(&other, 0, swap, 0);
  for (time_t end = time(0) + 30; time(0) < end;)
    for (long i = 0; i < 10000000; i++) sink = *shared;
  return 0;
}

int main(int argc, char **argv) {
  int n = atoi(argv[2]);
  return strcmp(argv[1], "endless") ? overwritten_depth(n) : endless(n);
}
"""
FLAGS = ("-g", "-O1", "-fno-optimize-sibling-calls", "-w", "-D_GNU_SOURCE", "-pthread")
CALL = "import ctypes, sys\ngetattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n"

ON_A_THREAD = (
    "import ctypes, sys, threading\n"
    "call = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])\n"
    "thread = threading.Thread(target=call, args=(int(sys.argv[3]),))\n"
    "thread.start(); thread.join()\n"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("refuted")
    source, made = place / "looks.c", place / "looks.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The same as a program of its own: under valgrind Python alone takes three seconds to start."""
    source, made = tmp_path / "looks.c", tmp_path / "looks"
    source.write_text(SOURCE)
    subprocess.run(["gcc", *FLAGS, "-o", str(made), str(source)], check=True)
    return made


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_a_recursion_whose_counter_was_overwritten_is_no_recursion_without_an_end(
    program: Path, tmp_path: Path
) -> None:
    document, text = confirmed(tmp_path, program, "overwritten_depth", 40)
    found = verdict(document)
    assert (found.rule, found.status) == ("heap-buffer-overflow", "confirmed")
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.line) == ("overwritten_depth", 16)
    (rival,) = [one for one in document.reports[0].alternatives if one.rule == "stack-overflow-recursion"]
    assert rival.status == "refuted"
    assert not any(fix.verified for fix in rival.fixes)
    assert "looks.c:16" in text


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_a_recursion_without_an_end_stays_one_under_valgrind(program: Path, tmp_path: Path) -> None:
    document, _ = confirmed(tmp_path, program, "endless", 1)
    found = verdict(document)
    assert (found.rule, found.status) == ("stack-overflow-recursion", "confirmed")


@pytest.mark.parametrize("thread", [False, True])
def test_a_write_just_below_a_stack_is_no_full_stack(library: Path, tmp_path: Path, *, thread: bool) -> None:
    source = script(tmp_path, ON_A_THREAD if thread else CALL)
    document, _ = confirmed(tmp_path, sys.executable, source, library, "below_the_stack", 24)
    found = verdict(document)
    assert found.rule in {"invalid-write", "write-to-readonly"}
    assert found.status != "refuted"
    others = {one.rule: one.status for one in document.reports[0].alternatives}
    assert all(others[rule] == "refuted" for rule in others if rule.startswith("stack-overflow"))


def test_a_null_pointer_of_two_threads_is_a_race(library: Path, tmp_path: Path) -> None:
    document, text = confirmed(tmp_path, sys.executable, script(tmp_path, CALL), library, "shared_pointer", 2)
    found = verdict(document)
    assert (found.rule, found.status) == ("data-race", "confirmed")
    assert found.fixes[0].verified
    assert "OMP_NUM_THREADS=1" in (found.fixes[0].command or "")
    (rival,) = document.reports[0].alternatives
    assert (rival.rule, rival.status) == ("null-dereference", "refuted")
    assert "It takes more than one thread for this death" in " ".join(text.split()), "a race itself was not seen"
    assert found.evidence[0].where == "experiment"
