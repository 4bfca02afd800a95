"""valgrind watches a real program damage its heap, and names the line that did it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, script, verdict
from necropsy.model import Diagnosis, Experiment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="this builds what crashes"),
]
needs_valgrind = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")

OVER = 2016
"""As far as the size of what is behind a block of 2,000 bytes, and no further: behind the last block the heap may end."""
# Each of these dies whatever the heap looks like: free() looks at what is behind a block that is too large for the tcache,
# and a pointer of the tcache with another bit 3 is never aligned, however it is hidden.
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
char *volatile block, *volatile other;
int overrun(int n) {
  block = malloc(2000);
  for (int i = 0; i < n; i++) block[i] = 'x';  /* line 7 */
  free(block);
  return 0;
}
int stale(int n) {
  for (int i = 0; i < 1000; i++) other = malloc(40);
  block = malloc(40);
  free(other);
  free(block);
  *block ^= n;  /* line 16 */
  other = malloc(40);
  other = malloc(40);
  *other = 1;
  return 0;
}
int twice(int n) {
  block = malloc(n);
  free(block);
  free(block);  /* line 25 */
  return 0;
}
int garbage(int n) {
  char *before = malloc(24), *behind = malloc(24);
  for (int i = 0; i < 10000 && behind != before + 32; i++) before = behind, behind = malloc(24);
  *(char **)behind = before;
  for (int i = 0; i < n; i++) before[i] = 0xbf;  /* line 32: the block behind holds a pointer */
  block = behind;
  **(char **)block = 1;
  return 0;
}
#include <time.h>
#include <unistd.h>
int says(int n) {
  write(n, "free(): invalid pointer\n", 24);
  abort();
}
int busy(int n) {
  while (clock() < n * (CLOCKS_PER_SEC / 1000)) {}
  return garbage(40);
}
int main(int argc, char **argv) {
  int n = atoi(argv[2]);
  if (!strcmp(argv[1], "overrun")) return overrun(n);
  if (!strcmp(argv[1], "stale")) return stale(n);
  if (!strcmp(argv[1], "twice")) return twice(n);
  if (!strcmp(argv[1], "garbage")) return garbage(n);
  return strcmp(argv[1], "says") ? busy(n) : says(n);
}
"""
CALL = "import ctypes, sys\ngetattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n"


def built(folder: Path, name: str, *flags: str) -> Path:
    source, made = folder / "heap.c", folder / name
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-w", *flags, "-o", str(made), str(source)], check=True)
    return made


@pytest.fixture
def heap(tmp_path: Path) -> Path:
    """A program of its own: under valgrind Python alone takes three seconds to start."""
    return built(tmp_path, "heap")


def valgrind_of(found: Diagnosis) -> Experiment:
    (row,) = [one for one in found.experiments if one.name == "valgrind"]
    return row


@needs_valgrind
@pytest.mark.parametrize(
    ("call", "kind", "line"),
    [
        (("overrun", OVER), "heap-buffer-overflow", 7),
        (("stale", 8), "use-after-free", 16),
        (("twice", 40), "double-free", 25),
    ],
)
def test_the_first_bad_access_is_named_by_its_line(
    heap: Path, tmp_path: Path, call: tuple[str, int], kind: str, line: int
) -> None:
    """The first of them in a library that Python calls."""
    function, number = call
    command: tuple[object, ...] = (heap, function, number)
    if function == "overrun":
        library = built(tmp_path, "heap.so", "-shared", "-fPIC")
        command = (sys.executable, script(tmp_path, CALL), library, function, number)
    document, text = confirmed(tmp_path, *command)
    found = verdict(document)
    assert found.status == "confirmed"
    row = valgrind_of(found)
    assert row.conclusive
    assert f"{kind}, {function} in heap.c:{line}" in row.outcome
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.line) == (function, line)
    assert (found.culprit.source or "").endswith("heap.c")
    assert any(f"heap.c:{line}" in one.seen for one in found.evidence)
    assert f"heap.c:{line}" in text
    if function == "overrun":
        it_is_not_looked_for_again(tmp_path, command, found)


def it_is_not_looked_for_again(tmp_path: Path, command: tuple[object, ...], first: Diagnosis) -> None:
    again, said = confirmed(tmp_path, *command)
    assert "are known and not made again" in said
    assert "valgrind, run 1" not in said.split("are known and not made again")[0]
    assert verdict(again).culprit == first.culprit
    assert valgrind_of(verdict(again)) == valgrind_of(first)


@needs_valgrind
def test_what_led_to_a_pointer_that_is_garbage_is_the_verdict(heap: Path, tmp_path: Path) -> None:
    document, text = confirmed(tmp_path, heap, "garbage", 40)
    found = verdict(document)
    assert (found.rule, found.status) == ("heap-buffer-overflow", "confirmed")
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.line) == ("garbage", 32)
    assert "heap.c:32" in found.fixes[0].text
    others = {one.rule: one.status for one in document.reports[0].alternatives}
    assert others["invalid-write"] == "confirmed"
    assert set(others.values()) == {"confirmed"}
    assert "Also confirmed, as a sign of the same cause" in text


@needs_valgrind
def test_a_budget_that_cannot_hold_it_is_not_begun(heap: Path, tmp_path: Path) -> None:
    # 10 s, and 20 times the 0.7 s for which it is busy: more than 20 s.
    document, _ = confirmed(tmp_path, heap, "busy", 700, options=("--budget", "20", "--runs", "2"))
    row = valgrind_of(verdict(document))
    assert row.runs == 0
    assert "not run: it may take" in row.outcome
    assert "s of the budget are left" in row.outcome


@needs_valgrind
def test_a_child_that_damages_its_heap_is_seen_too(heap: Path, tmp_path: Path) -> None:
    document, _ = confirmed(tmp_path, "sh", "-c", '"$0" "$@" || exit 1', heap, "garbage", 40)
    (found,) = [one.verdict for one in document.reports if one.verdict is not None and one.verdict.experiments]
    row = valgrind_of(found)
    assert "garbage in heap.c:32" in row.outcome


def test_without_valgrind_it_says_so(heap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    monkeypatch.setenv("PATH", str(only))
    document, _ = confirmed(tmp_path, heap, "garbage", 40, options=("--runs", "1"))
    row = valgrind_of(verdict(document))
    assert (row.runs, row.outcome) == (0, "could not be run: valgrind is not installed here")


def test_a_valgrind_that_does_not_work_is_no_proof(heap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    broken = only / "valgrind"
    broken.write_text("#!/bin/sh\necho 'valgrind: failed to start tool memcheck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{only}:/usr/bin:/bin")
    document, _ = confirmed(tmp_path, heap, "garbage", 40)
    row = valgrind_of(verdict(document))
    assert row.outcome == "could not be run: valgrind did not start it"
    assert not row.conclusive


@needs_valgrind
def test_words_alone_are_no_damaged_heap(heap: Path, tmp_path: Path) -> None:
    """It says what the C library says of a damaged heap, and dies as it would, but nothing is damaged."""
    document, _ = confirmed(tmp_path, heap, "says", 2)
    found = verdict(document)
    assert found.rule == "heap-corruption"
    row = valgrind_of(found)
    assert row.outcome == "no bad access to the heap was seen"
    assert (row.runs, row.crashed, bool(row.conclusive)) == (1, 1, False)
