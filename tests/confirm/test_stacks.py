"""What an experiment says of a stack, against the instructions of the function and against runs at sizes near it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, script, verdict
from necropsy.model import Diagnosis

MIB = 1 << 20
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("objdump")), reason="this builds what crashes"),
]

SOURCE = r"""
#include <pthread.h>
#include <string.h>
volatile int sink;
__attribute__((noinline, optimize("O0"))) int plain(int n) { return n == 0 ? 0 : plain(n - 1) + 1; }
__attribute__((noinline, optimize("O1"))) int padded(int n) {
  volatile char pad[1000];
  pad[n % 1000] = (char)n;
  return n == 0 ? 0 : padded(n - 1) + pad[n % 1000];
}
__attribute__((noinline, optimize("O2", "no-optimize-sibling-calls"))) long saved(long n, long a, long b, long c) {
  if (n == 0) return sink;
  long d = saved(n - 1, b, c, a);
  return d + saved(0, a, b, c) + a * b + c + n;
}
int saves(int n) { return (int)saved(n, 1, 2, 3); }
__attribute__((optimize("O0"))) int local(int n) {
  char a[24 << 20];
  memset(a, 1, sizeof a);
  return a[n];
}
static void *body(void *n) { sink = padded((int)(long)n); return 0; }
int own_thread(int n) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 << 10);
  pthread_create(&thread, &attributes, body, (void *)(long)n);
  return pthread_join(thread, 0);
}
"""
CALL = "import ctypes, sys\ngetattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n"
ON_A_THREAD = (
    "import ctypes, sys, threading\n"
    "if sys.argv[4:]: threading.stack_size(int(sys.argv[4]))\n"
    "call = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])\n"
    "thread = threading.Thread(target=call, args=(int(sys.argv[3]),))\n"
    "thread.start(); thread.join()\n"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stacks")
    source, made = place / "frames.c", place / "frames.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-w", "-pthread", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


def frame_of(library: Path, function: str) -> int:
    """Bytes of stack that one call takes, by the instructions at its start: pushes, `sub rsp`, the return address."""
    words = ["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", str(library)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    taken = 8
    for line in text.splitlines():
        if match := re.search(r"\tsub +\$(0x[0-9a-f]+),%rsp", line):
            taken += int(match[1], 0)
        elif re.search(r"\tpush ", line):
            taken += 8
        elif re.search(r"\tcall ", line):
            break
    assert taken > 8, text
    return taken


@pytest.mark.parametrize(
    ("call", "function", "number"),
    [("plain", "plain", 900_000), ("padded", "padded", 40_000), ("saves", "saved", 500_000)],
)
def test_bytes_per_frame_are_those_of_the_instructions(
    library: Path, tmp_path: Path, call: str, function: str, number: int
) -> None:
    command = (sys.executable, script(tmp_path, CALL), library, call, "{N}")
    document, text = confirmed(tmp_path, *command, options=("--scale", f"N=1..{number}"))
    found = verdict(document)
    assert (found.rule, found.status) == ("stack-overflow-recursion", "confirmed")
    assert "Experiments" in text
    assert "confirmed by experiment" in text
    taken = frame_of(library, function)
    # The size that is called needed against the bytes of that many levels.
    assert found.fixes[0].verified
    command_of_fix = found.fixes[0].command or ""
    assert command_of_fix.startswith("ulimit -s ")
    assert number * taken < int(command_of_fix.split()[-1]) << 10 < number * taken * 1.4
    told = [match for one in found.experiments for match in re.findall(r"levels of ([\d,]+) bytes", one.means or "")]
    assert told
    for octets in told:
        assert abs(int(octets.replace(",", "")) / taken - 1) <= 0.02
    # Found in another way: the number from which on 8 MiB are not enough.
    (scaled,) = [one for one in found.experiments if one.name == "scale-N"]
    threshold = int(re.findall(r"[\d,]*\d", scaled.outcome)[-1].replace(",", ""))
    assert abs(8 * MIB / threshold / taken - 1) <= 0.02
    share = float((scaled.means or "").split("%")[0].split()[-1])
    assert 98 <= share <= 102, "bytes per frame x depth = stack"


def needed_of(found: Diagnosis) -> float:
    (text,) = [fix.text for fix in found.fixes if fix.verified]
    match = re.search(r"It needs ([\d.,]+) MiB", text)
    assert match is not None, text
    return float(match[1].replace(",", "")) * MIB


def is_the_least_that_does(needed: float, command: list[str]) -> bool:
    """On the main thread, the least size lies between 0.95 and 1.05 of what is called needed."""

    def lives(share: float) -> bool:
        limit = ["/bin/sh", "-c", 'ulimit -S -s $0 && exec "$@"', str(int(needed * share) >> 10)]
        done = subprocess.run([*limit, *command], check=False, timeout=600)
        assert done.returncode in {0, -signal.SIGSEGV}
        return done.returncode == 0

    return [lives(share) for share in (0.9, 0.95, 1.05, 1.1)] == [False, False, True, True]


def test_the_size_called_needed_is_the_least_that_does_on_the_main_thread(library: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script(tmp_path, CALL)), str(library), "plain", "600000"]
    document, _ = confirmed(tmp_path, *command)
    assert is_the_least_that_does(needed_of(verdict(document)), command)


def test_the_size_called_needed_is_the_least_that_does_on_a_thread(library: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script(tmp_path, ON_A_THREAD)), str(library), "plain", "600000"]
    document, _ = confirmed(tmp_path, *command, str(2 * MIB))
    needed = needed_of(verdict(document))

    def lives(share: float) -> bool:
        done = subprocess.run([*command, str(int(needed * share) >> 12 << 12)], check=False, timeout=600)
        assert done.returncode in {0, -signal.SIGSEGV}
        return done.returncode == 0

    assert [lives(share) for share in (0.9, 0.95, 1.05, 1.1)] == [False, False, True, True]


def test_a_large_frame_gets_as_much_stack_as_it_takes(library: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script(tmp_path, CALL)), str(library), "local", "5"]
    document, text = confirmed(tmp_path, *command)
    found = verdict(document)
    assert (found.rule, found.status) == ("stack-overflow-large-frame", "confirmed")
    assert is_the_least_that_does(needed_of(found), command)
    first = found.experiments[1]
    assert (first.runs, first.crashed, first.conclusive) == (2, 0, True), "the first size that is tried is enough"
    wanted = r"a stack of ([\d.]+) MiB, with room for the one frame of `local` that takes ([\d,]+) bytes"
    match = re.search(wanted, first.change)
    assert match is not None, first.change
    taken = int(match[2].replace(",", ""))
    assert abs(taken - frame_of(library, "local")) <= 16
    assert taken < float(match[1]) * MIB < taken * 1.06
    assert "Experiments" in text


def test_a_thread_of_native_code_is_told_where_its_size_is_named(library: Path, tmp_path: Path) -> None:
    """Python's threading.stack_size does not reach it."""
    document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, CALL), library, "own_thread", 1200)
    found = verdict(document)
    assert (found.rule, found.status) == ("stack-overflow-recursion", "confirmed")
    (fix,) = [fix for fix in found.fixes if fix.verified]
    assert fix.command == "pthread_attr_setstacksize(&attributes, 2 << 20)"
    assert not any("threading.stack_size" in (one.command or "") for one in found.fixes)
    (rival,) = document.reports[0].alternatives
    assert (rival.rule, rival.status) == ("stack-overflow-small-stack", "refuted")
    assert any("`padded` goes as deep as its data require" in one.seen for one in (*found.evidence, *rival.evidence))
    names = [one.name for one in found.experiments]
    assert len(names) == len(set(names)), "no size is run twice"
