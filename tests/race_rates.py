"""Do programs whose death is a matter of chance die as often under necropsy as without it?

Each program of ``tests/racing`` runs many times plain and under necropsy, in turn, and the rates of each outcome
(the wait status) are compared by Fisher's exact test:

    python tests/race_rates.py                          all of them, 50 times each way
    python tests/race_rates.py --runs 200 two_crash     one of them, 200 times
    python tests/race_rates.py --under 'strace -f -o /dev/null'    another tracer in place of necropsy

Both ways the program begins in a process in which Python has just started. What the processors did in the milliseconds
before decides on which of them a new thread begins, and how soon: without that, the plain rates are others, too.

With ``--batch N`` one start of necropsy serves N runs, which is faster: the programs are then children of the command.
The exit code is 1 if any rate differs beyond chance.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RACING = Path(__file__).with_name("racing")
NECROPSY = (sys.executable, "-m", "necropsy", "run", "--quiet", "--")
LIMIT_S = 300.0

_AGAIN = """
import json, os, sys
out = os.dup(1)
os.set_inheritable(out, False)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
ends = [os.waitpid(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)[1] for _ in range(int(sys.argv[1]))]
os.write(out, json.dumps([os.waitstatus_to_exitcode(one) for one in ends]).encode())
"""
"""Run a program a number of times, one after the other, and print the exit codes."""
_ONCE = "import os, signal, sys; signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


def fisher(one: int, of_one: int, other: int, of_other: int) -> float:
    """The two-sided p-value of Fisher's exact test: ``one`` of ``of_one`` runs against ``other`` of ``of_other``."""
    hits, total = one + other, of_one + of_other
    ways = [
        math.comb(of_one, hit) * math.comb(of_other, hits - hit)
        for hit in range(max(0, hits - of_other), min(hits, of_one) + 1)
    ]
    seen = math.comb(of_one, one) * math.comb(of_other, other)
    return sum(way for way in ways if way <= seen) / math.comb(total, hits)


@dataclass(frozen=True)
class Rates:
    """How often a program ended how. An end is an exit code as ``subprocess`` has it: -11 is SIGSEGV."""

    name: str
    plain: Counter[int]
    traced: Counter[int]

    @property
    def tests(self) -> dict[int, float]:
        """The p-value of each outcome: that it is as frequent both ways."""
        runs, others = self.plain.total(), self.traced.total()
        return {
            end: fisher(self.plain[end], runs, self.traced[end], others) for end in sorted({*self.plain, *self.traced})
        }

    @property
    def p(self) -> float:
        """The smallest p-value, corrected for the number of outcomes (Bonferroni; two outcomes are one comparison)."""
        tests = self.tests
        return min(1.0, min(tests.values()) * max(1, len(tests) - 1))


def programs(names: Sequence[str] = ()) -> list[Path]:
    """The sources in ``tests/racing``, or those of them that are named (without suffix)."""
    found = sorted(path for path in RACING.iterdir() if path.suffix in {".c", ".py"})
    unknown = set(names) - {path.stem for path in found}
    if unknown:
        raise SystemExit(f"no such program in {RACING}: {', '.join(sorted(unknown))}")
    return [path for path in found if not names or path.stem in names]


def built(source: Path, folder: Path) -> list[str]:
    """The words that run a program; C is compiled into ``folder``."""
    if source.suffix == ".py":
        return [sys.executable, str(source)]
    program = folder / source.stem
    subprocess.run(["gcc", "-w", "-O1", "-pthread", "-o", str(program), str(source)], check=True, timeout=120)
    return [str(program)]


def _ends(words: list[str], runs: int, under: Sequence[str], folder: Path) -> Iterator[int]:
    environment = {**os.environ, "NECROPSY_OUTPUT": str(folder / "reports")}
    if runs == 1:
        once = [*under, sys.executable, "-S", "-c", _ONCE, *words]
        done = subprocess.run(once, check=False, capture_output=True, timeout=LIMIT_S, env=environment)
        yield done.returncode
        return
    again = [*under, sys.executable, "-S", "-c", _AGAIN, str(runs), *words]
    done = subprocess.run(again, check=True, capture_output=True, timeout=LIMIT_S, env=environment)
    yield from json.loads(done.stdout)


def measure(source: Path, runs: int, batch: int, folder: Path, under: Sequence[str] = NECROPSY) -> Rates:
    """Run a program ``runs`` times each way, in turn, ``batch`` times for each start of necropsy."""
    words = built(source, folder)
    rates = Rates(source.stem, Counter(), Counter())
    for begun in range(0, runs, batch):
        several = min(batch, runs - begun)
        rates.plain.update(_ends(words, several, (), folder))
        rates.traced.update(_ends(words, several, under, folder))
    return rates


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--level", type=float, default=0.001, help="p-value below which two rates differ")
    parser.add_argument("--under", type=shlex.split, default=NECROPSY, metavar="WORDS")
    given = parser.parse_args(arguments)
    differ = []
    print(f"{'program':24}{'ended':>6}{'plain':>7}{'traced':>7}{'p':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for source in programs(given.names):
            rates = measure(source, given.runs, given.batch, Path(folder), given.under)
            for index, (end, p) in enumerate(rates.tests.items()):
                name = rates.name if index == 0 else ""
                print(f"{name:24}{end:6}{rates.plain[end]:7}{rates.traced[end]:7}{p:11.2g}", flush=True)
            if rates.p < given.level:
                differ.append(rates.name)
    print(f"differ (p < {given.level:g}): {', '.join(differ) or 'none'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
