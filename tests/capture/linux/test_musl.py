"""Programs that are linked with musl, as in Alpine's images, die under supervision."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from supervised import LIMIT_S, NECROPSY

import needs

pytestmark = needs.command("musl-gcc")

SOURCE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define KEEP __attribute__((noinline))
volatile int sink;
volatile long zero;
KEEP int read_null(int *p) { return p[4] + 1; }
KEEP int dig(int n) { volatile char room[64]; room[0] = n; return dig(n + 1) + room[0]; }
KEEP void *in_thread(void *n) { return (void *)(long)dig((int)(long)n); }
KEEP void corrupt(void) {
  volatile char *p = malloc(40), *q = malloc(40);
  for (int i = 0; i < 100; i++) p[i] = 0x41;
  free((void *)q);
  free((void *)p);
}
KEEP void free_twice(void) { char *p = malloc(40), *q = malloc(40); free(p); sink = q == p; free(p); }
KEEP void give_up(void) { abort(); }
KEEP void clear(char *p, long n) { memset(p, 0, n); sink = 1; }
KEEP void clear_rows(long n) { clear((char *)zero + 8, n); sink = 2; }
KEEP void overrun(int n) { char room[16]; memset(room, 'A', n); sink = room[n - 1]; }
int main(int argc, char **argv) {
  const char *how = argv[1];
  if (!strcmp(how, "null")) return read_null((int *)zero);
  if (!strcmp(how, "abort")) give_up();
  if (!strcmp(how, "thread")) { pthread_t t; pthread_create(&t, 0, in_thread, 0); pthread_join(t, 0); }
  if (!strcmp(how, "corrupt")) corrupt();
  if (!strcmp(how, "free-twice")) free_twice();
  if (!strcmp(how, "clear")) clear_rows(argc * 100);
  if (!strcmp(how, "smash")) overrun(64);
  if (!strcmp(how, "halt")) __asm__ volatile("hlt");
  return 0;
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("musl")
    source = folder / "dies.c"
    source.write_text(SOURCE)
    command = ["musl-gcc", "-g", "-O1", "-fno-optimize-sibling-calls", "-fstack-protector-strong", "-w"]
    for name, flags in (("dynamic", []), ("static", ["-static"]), ("framed", ["-fno-omit-frame-pointer"])):
        subprocess.run([*command, *flags, "-o", folder / name, source], check=True)
    return folder


def told(program: Path, how: str, store: Path) -> tuple[int, str]:
    """How it ended under necropsy, and the report."""
    env = {**os.environ, "XDG_STATE_HOME": str(store)}
    command = [*NECROPSY, "--full", str(program), how]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, re.sub(r"\s+", " ", done.stderr)


@pytest.mark.parametrize("kind", ["dynamic", "static", "framed"])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("null", ("null-dereference, certain", "`read_null` read through a null pointer", "register rdi")),
        ("abort", ("`give_up` ended the program by abort()",)),
        ("thread", ("stack-overflow-recursion, certain", "`dig` called itself", "uses musl", "128 KiB unless")),
        ("smash", ("stack-smash,", "`overrun` wrote past the end of one of its local arrays")),
        ("corrupt", ("heap-corruption,", "musl's malloc found its bookkeeping destroyed", "`hlt` in")),
    ],
)
def test_a_program_of_musl_is_read_as_one_of_glibc(
    programs: Path, tmp_path: Path, kind: str, how: str, says: tuple[str, ...]
) -> None:
    status, report = told(programs / kind, how, tmp_path)
    assert status == (-signal.SIGABRT if how == "abort" else -signal.SIGSEGV)
    for one in says:
        assert one in report


@pytest.mark.parametrize("kind", ["dynamic", "framed"])
def test_the_caller_of_a_function_of_musl_that_keeps_no_frame_pointer(
    programs: Path, tmp_path: Path, kind: str
) -> None:
    _, report = told(programs / kind, "clear", tmp_path)
    assert "`clear` wrote through a null pointer" in report


def test_a_block_that_was_freed_twice_is_among_what_may_have_been(programs: Path, tmp_path: Path) -> None:
    _, report = told(programs / "static", "free-twice", tmp_path)
    assert "heap-corruption, certain" in report
    assert "or a block was freed twice" in report


def test_a_halt_of_the_program_itself_is_none_of_malloc(programs: Path, tmp_path: Path) -> None:
    _, report = told(programs / "static", "halt", tmp_path)
    assert "illegal-instruction" in report
    assert "heap-corruption" not in report
