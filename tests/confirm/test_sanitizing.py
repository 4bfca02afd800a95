"""An op whose threads race is built with ThreadSanitizer, which names the two accesses."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, script
from necropsy.model import Document, Experiment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="this builds ops"),
]

# The threads meet before each access, so that it dies each time; but not in a way that says whose access comes first.
SOURCE = r"""
#include <pthread.h>
#include <sched.h>
static int value, *volatile shared = &value;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int guarded, met;
static volatile int sink;
static void meet(int before) {
  __atomic_fetch_add(&met, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(&met, __ATOMIC_RELAXED) < before + 2) sched_yield();
}
static void *work(void *unused) {
  (void)unused;
  if (shared) {  // line 14
    meet(0);
    shared = 0;  // line 16
    meet(2);
    sink = *shared;  // line 18
  }
  return 0;
}
static void *careful(void *unused) {
  (void)unused;
  for (int i = 0; i < 20000; i++) {
    pthread_mutex_lock(&lock);
    guarded++;
    pthread_mutex_unlock(&lock);
  }
  return 0;
}
static void both(void *(*work)(void *)) {
  pthread_t one, other;
  pthread_create(&one, 0, work, 0);
  pthread_create(&other, 0, work, 0);
  pthread_join(one, 0);
  pthread_join(other, 0);
}
extern "C" int race(int n) {
  both(work);
  return n;
}
static void *crash(void *unused) {
  careful(unused);
  *(volatile int *)0 = 1;
  return 0;
}
extern "C" int no_race(int n) {
  both(crash);
  return n;
}
"""


@pytest.fixture
def op(tmp_path: Path) -> tuple[Path, Path]:
    source, library = tmp_path / "racing.cc", tmp_path / "racing.so"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-g", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)], check=True)
    script(tmp_path, "import ctypes, sys\ngetattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n")
    return source, library


def races_of(document: Document) -> Experiment:
    (row,) = {
        one
        for report in document.reports
        for found in (report.verdict, *report.alternatives)
        if found is not None
        for one in found.experiments
        if one.name == "op with ThreadSanitizer"
    }
    return row


def test_the_two_accesses_of_a_race_are_named(op: tuple[Path, Path], tmp_path: Path) -> None:
    source, library = op
    command = (sys.executable, tmp_path / "script.py", library, "race", 1)
    document, text = confirmed(tmp_path, *command, options=("--op-source", str(source)))
    row = races_of(document)
    assert row.conclusive
    match = re.match(r"a race: work in racing\.cc:(\d+)(?: against work in racing\.cc:(\d+)|, twice)$", row.outcome)
    assert match is not None, row.outcome
    assert {int(line) for line in match.groups() if line} <= {14, 16, 18}
    diagnoses = [document.reports[0].verdict, *document.reports[0].alternatives]
    (race,) = [one for one in diagnoses if one is not None and one.rule == "data-race"]
    assert race.status == "confirmed"
    assert any(one.claim.startswith("ThreadSanitizer saw two threads") for one in race.evidence)
    assert "a race: work in racing.cc" in " ".join(text.split())


def test_threads_that_take_a_lock_do_not_race(op: tuple[Path, Path], tmp_path: Path) -> None:
    source, library = op
    command = (sys.executable, tmp_path / "script.py", library, "no_race", 1)
    document, _ = confirmed(tmp_path, *command, options=("--op-source", str(source)))
    row = races_of(document)
    assert row.outcome == "no race between two accesses of the op was seen"
    assert not row.conclusive
    assert row.runs
    diagnoses = [document.reports[0].verdict, *document.reports[0].alternatives]
    assert not any(one is not None and one.rule == "data-race" for one in diagnoses)


def test_a_compiler_without_the_library_is_told(
    op: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = op
    place = tmp_path / "bin"
    place.mkdir()
    real = shutil.which("g++")
    (place / "g++").write_text(
        f'#!/bin/sh\ncase "$*" in *-print-file-name=libtsan.so*) echo libtsan.so;; *) exec {real} "$@";; esac\n'
    )
    (place / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    command = (sys.executable, tmp_path / "script.py", library, "no_race", 1)
    document, _ = confirmed(tmp_path, *command, options=("--op-source", str(source), "--runs", "30"))
    row = races_of(document)
    assert (row.runs, row.outcome) == (0, "could not be run: the compiler has no library of ThreadSanitizer")
