"""The same death seen by different eyes has one signature; deaths of different causes have different ones.

One source, built with and without debug information and stripped of all but what the linker needs; each death seen in
the living process, in the core that necropsy keeps and in the kernel's.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.diagnose import diagnose
from necropsy.model import Crash, Report
from necropsy.rules import crash_rules

SOURCE = """
#include <alloca.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define REAL __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))
#define INTO static inline __attribute__((always_inline))
volatile int sink;
typedef struct node { struct node *left; int weight[32]; } node;
INTO int weight_of(node *one) { return one->weight[3]; }
INTO int twice(node *one) { return weight_of(one) + weight_of(one->left); }
REAL int read_null(int n) { return twice((node *)(long)(n * 0)) + n; }
REAL int read_wild(int n) { return weight_of((node *)0x123456789000) + n; }
REAL int write_null(int n) { *(volatile int *)(long)(n * 0) = n; return n; }
REAL int write_text(int n) { *(volatile char *)"a constant" = n; return n; }
REAL int divide(int n) { return sink / (n * 0); }
REAL int give_up(int n) { if (n < 1 << 30) abort(); return n; }
REAL int free_twice(int n) { char *volatile p = malloc(n + 100); free(p); free(p); return *p; }
INTO int padded(int n) { volatile char room[64]; room[n & 63] = n; return room[n & 63]; }
REAL int endless(int n) { return endless(n + 1) + padded(n); }
REAL int pong(int n);
REAL int ping(int n) { return pong(n + 1) + padded(n); }
REAL int pong(int n) { char *p = malloc(40); *p = n; n = ping(n + 1) + *p; free(p); return n; }
REAL int walk(int n) { return n ? walk(n - 1) + padded(n) : read_null(3); }
REAL int walk_on(int n) { return n ? walk_on(n - 1) + padded(n) : write_null(3); }
REAL int fill(int n) { volatile char *room = alloca(n); memset((char *)room, 1, n); return room[n / 2]; }
REAL int many_bytes(int n) { return fill(n * 0 + (64 << 20)) + 1; }
REAL int compared(const void *a, const void *b) { return read_null(*(const int *)a); }
REAL int sorted(int n) { int values[9] = {3, 1, 2}; qsort(values, 9, sizeof *values, (void *)compared); return n; }
REAL void *work(void *n) { return (void *)(long)read_null((long)n); }
REAL int on_a_thread(int n) { pthread_t t; pthread_create(&t, 0, work, (void *)(long)n); pthread_join(t, 0); return n; }
#define CASE(name) if (!strcmp(argv[1], #name)) return name(atoi(argv[2]))
int main(int argc, char **argv) {
  CASE(read_null); CASE(read_wild); CASE(write_null); CASE(write_text); CASE(divide); CASE(give_up); CASE(free_twice);
  CASE(endless); CASE(ping); CASE(walk); CASE(walk_on); CASE(many_bytes); CASE(sorted); CASE(on_a_thread);
  return 99;
}
"""
# The part of a function that is put elsewhere because it is seldom run has a symbol that does not survive.
CODE = ("-O2", "-fno-reorder-blocks-and-partition")
BUILDS = {"debug": (*CODE, "-g"), "plain": CODE, "stripped": (*CODE, "-s", "-rdynamic")}
VERBS = tuple(re.findall(r"CASE\((\w+)\);", SOURCE))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same name in folders of their own: a path must not count."""
    return {name: build(tmp_path_factory.mktemp(name), SOURCE, *flags) for name, flags in BUILDS.items()}


def judged(crash: Crash) -> Report:
    return diagnose(crash, crash_rules())


def living(program: Path, verb: str, number: int, folder: Path | None = None) -> Report:
    """What ``necropsy run`` sees; with ``folder`` the core that it keeps is there."""
    packed = io.BytesIO()
    with dying([program, verb, str(number)]) as death:
        crash = crash_builder.capture(dataclasses.replace(death, core=packed) if folder is not None else death)
    if folder is not None:
        (folder / "kept.core").write_bytes(gzip.decompress(packed.getvalue()))
    return judged(crash)


def kernels(program: Path, verb: str, number: int, folder: Path) -> Report | None:
    if not re.fullmatch(r"core\n?", Path("/proc/sys/kernel/core_pattern").read_text()):
        return None  # they go elsewhere; what is left to compare is compared

    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    subprocess.run(
        [program, verb, str(number)], cwd=folder, preexec_fn=allow, check=False, capture_output=True, timeout=60
    )
    return next(
        (judged(open_core.read(one)) for one in folder.iterdir() if re.fullmatch(r"core(\.\d+)?", one.name)), None
    )


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_death_has_one_signature(programs: dict[str, Path], verb: str, tmp_path: Path) -> None:
    seen: dict[str, str | None] = {}
    for name, program in programs.items():
        seen[name] = living(program, verb, 7, tmp_path if name == "debug" else None).signature
    seen["debug, again"] = living(programs["debug"], verb, 7).signature
    seen["the core that is kept"] = judged(open_core.read(tmp_path / "kept.core")).signature
    system = kernels(programs["debug"], verb, 7, tmp_path)
    if system is not None:
        seen["the kernel's core"] = system.signature
    assert len(set(seen.values())) == 1, seen


@pytest.mark.parametrize("verb", ["walk", "endless", "ping"])
def test_how_deep_it_was_does_not_count(programs: dict[str, Path], verb: str) -> None:
    """A walk that ends at its leaf, or where another stack is full at another level, in another one of the functions."""
    seen = {number: living(programs["debug"], verb, number).signature for number in (2, 3, 40, 3000)}
    assert len(set(seen.values())) == 1, seen


def test_different_causes_have_different_signatures(programs: dict[str, Path]) -> None:
    seen = {verb: living(programs["plain"], verb, 7).signature for verb in VERBS}
    assert len(set(seen.values())) == len(VERBS), seen


def test_the_whole_way_by_the_command_line(programs: dict[str, Path], tmp_path: Path) -> None:
    """Run, kept, opened as it was kept, and its core opened anew."""

    def necropsy(*words: str | Path) -> str:
        command = [sys.executable, "-m", "necropsy", *words]
        env = {**os.environ, "NECROPSY_OUTPUT": str(tmp_path / "kept"), "NECROPSY_KEEP": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        ).stdout

    def signatures(document: str) -> list[str]:
        return [report["signature"] for report in json.loads(document)["reports"]]

    necropsy("run", "--json", "seen.json", "--", programs["debug"], "sorted", "7")
    (seen,) = signatures((tmp_path / "seen.json").read_text())
    assert seen.startswith("null-dereference|read_null|")
    (kept,) = (tmp_path / "kept").rglob("*.necropsy")
    assert signatures(necropsy("open", kept, "--format", "json")) == [seen]
    necropsy("show", "--core", tmp_path / "small.core")
    assert signatures(necropsy("open", tmp_path / "small.core", "--format", "json")) == [seen]
