"""CPython's own tests plain and under necropsy: the same outcomes, and how much longer they take.

    python benchmarks/cpython_tests.py                      all of TESTS, once each way
    python benchmarks/cpython_tests.py test_signal --runs 3
    python benchmarks/cpython_tests.py --python /usr/bin/python3.12

It takes an interpreter with the package ``test`` (on Debian and Ubuntu ``libpython3.11-testsuite``, as the version is).
Each test runs in a process and a folder of its own, plain and under ``necropsy run`` in turn. An outcome is the exit
code and what the test runner counted: run, failed, skipped. A test that differs in one pair is run once more, since
some of them fail now and then without necropsy too. The exit code is 1 if outcomes differ in the second pair as well.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

TESTS = (
    *("test_signal", "test_subprocess", "test_threading", "test_posix", "test_os", "test_pty", "test_eintr"),
    *("test_faulthandler", "test_socketserver", "test_cmd_line"),
    *("test_fork1", "test_wait3", "test_wait4", "test_popen", "test_threadsignals", "test_threadedtempfile"),
    *("test_thread", "test_select", "test_selectors", "test_poll", "test_epoll", "test_asyncore", "test_fcntl"),
    *("test_mmap", "test_resource", "test_atexit", "test_gc", "test_queue", "test_concurrent_futures"),
    *("test_multiprocessing_fork", "test_ioctl", "test_kqueue", "test_posixpath", "test_support", "test_script_helper"),
)
NECROPSY = (sys.executable, "-m", "necropsy", "run", "--quiet", "--")
LIMIT_S = 1200.0
_NUMBERS = re.compile(r"^(?:Total tests: |Ran )(.*?)(?: in [\d.]+s)?$|^(?:OK|FAILED)(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How one test ended, and what it took, in seconds."""

    code: int
    counts: tuple[str, ...]
    wall: float
    cpu: float

    def is_as(self, other: Outcome) -> bool:
        return (self.code, self.counts) == (other.code, other.counts)

    def __str__(self) -> str:
        return f"exit {self.code}, {'; '.join(self.counts) or 'no counts'}"


def run_test(python: str, test: str, under: Sequence[str]) -> Outcome:
    """One test in a new folder; ``-v`` makes the runner of every version print unittest's own counts."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder, "NECROPSY_OUTPUT": os.path.join(folder, "reports")}
        words = [*under, python, "-m", "test", "-u", "network", "-v", test]
        done = subprocess.run(
            words,
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = tuple(
        "".join(filter(None, found)).strip() for found in _NUMBERS.findall(done.stdout) if any(map(str.strip, found))
    )
    return Outcome(done.returncode, counts, wall, cpu)


def exists(python: str, test: str) -> bool:
    found = subprocess.run(
        [python, "-c", f"import importlib.util as u; raise SystemExit(u.find_spec('test.{test}') is None)"],
        check=False,
        capture_output=True,
    )
    return found.returncode == 0


def start_up(python: str) -> float:
    """What necropsy adds to a program that does nothing, in seconds: the median of five pairs."""
    added = []
    for _ in range(5):
        begun = time.monotonic()
        subprocess.run([python, "-c", ""], check=True)
        between = time.monotonic()
        subprocess.run([*NECROPSY, python, "-c", ""], check=True)
        added.append(time.monotonic() - between - (between - begun))
    return sorted(added)[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=TESTS, metavar="TEST")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=1, help="pairs of runs; the times are those of the fastest")
    given = parser.parse_args(arguments)
    if not exists(given.python, "support"):
        raise SystemExit(f"{given.python} has no package `test`; on Debian and Ubuntu: libpython3.X-testsuite")
    differ: list[str] = []
    begins = start_up(given.python)
    print(f"necropsy's own start and end: {begins:.2f} s; ratios are without it")
    total = [0.0, 0.0]
    print(f"{'test':28}{'plain':>8}{'traced':>8}{'ratio':>7}{'cpu':>7}  outcome", flush=True)
    for test in given.tests:
        if not exists(given.python, test):
            print(f"{test:28}{'':30}  not in this Python", flush=True)
            continue
        pairs = [(run_test(given.python, test, ()), run_test(given.python, test, NECROPSY)) for _ in range(given.runs)]
        if not all(ours.is_as(plain) for plain, ours in pairs):
            pairs.append((run_test(given.python, test, ()), run_test(given.python, test, NECROPSY)))
        last = pairs[-1]
        plain, ours = (min(pair[side].wall for pair in pairs) for side in (0, 1))
        cpu = min(pair[1].cpu for pair in pairs) / min(pair[0].cpu for pair in pairs)
        total[0] += plain
        total[1] += ours - begins
        same = last[1].is_as(last[0])
        outcome = str(last[0]) if same else f"DIFFERS: {last[0]} | {last[1]}"
        print(f"{test:28}{plain:8.2f}{ours:8.2f}{(ours - begins) / plain:7.2f}{cpu:7.2f}  {outcome}", flush=True)
        if not same:
            differ.append(test)
    print(f"{'all':28}{total[0]:8.2f}{total[1]:8.2f}{total[1] / max(total[0], 1e-9):7.2f}")
    print(f"outcomes differ: {', '.join(differ) or 'none'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
