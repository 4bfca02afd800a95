"""valgrind's memcheck, where it is installed: it sees the first bad access to the heap, not the death that follows.

Every access of the program is looked at, which takes 20 to 50 times as long (valgrind's manual, "Memcheck"; Nethercote
and Seward, "How to Shadow Every Byte of Memory", VEE 2007: 22 times on SPEC CPU2000) and about twice the memory.
Python's own allocator hides its blocks from it, so Python takes each block from malloc (Misc/README.valgrind).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.confirm.campaign import Lab, Trial
from necropsy.confirm.checkers import LOG
from necropsy.confirm.conclusions import ExperimentResult, proved_instead
from necropsy.confirm.rebuild import proof_of
from necropsy.confirm.stack_sizes import RULES as OF_STACKS
from necropsy.model import Change, Evidence, Experiment, Fix

HEAP = frozenset({"heap-corruption", "double-free", "heap-buffer-overflow", "use-after-free"})
RULES = HEAP | {"invalid-read", "invalid-write", "bad-jump", "stack-overflow-recursion", "damaged-object"}
"""A damaged heap, and its symptoms on use; it may also hold the counter of an endless recursion."""

QUICKEST, SLOWER = 20, 50
"""Expected slowdown factors, minimum and maximum."""
MOST_S = 180.0
"""Without a budget, it is skipped if it may take longer than this."""
_SPARE = 2
"""Factor on the prediction after which it is stopped."""
_MOST_SLOWED = 8.0
START_S = 10.0
"""Seconds to start a small program."""
_LARGER = 2
_OWN_BYTES = 300 << 20
"""Bytes for valgrind itself: translated code, and freed blocks it keeps."""
_TRIES = 4
_OPTIONS = (
    "--tool=memcheck",
    "--vgdb=no",
    # What was never set is left out: CPython reads such bytes on purpose, and none of them damages anything.
    "--undef-value-errors=no",
    "--leak-check=no",
    "--trace-children=yes",
    "--child-silent-after-fork=yes",
    "--num-callers=40",
    "--fullpath-after=",
)
_SUPPRESSIONS = (Path("/usr/lib/valgrind/python3.supp"), Path("/usr/share/doc/python3-devel/valgrind-python.supp"))
NAME = "valgrind"
_WHERE = "the run under valgrind"
_AROUND = frozenset({"where the access was", "who allocated it", "who freed it"})
"""Claims of the sanitizer rules about the block, besides the culprit."""
_LIVES = frozenset({"double-free", "use-after-free"})
_BEFORE = "valgrind reported that before any other error"
_APART = "under valgrind, which keeps bytes free between the blocks of the heap, it lives"


@dataclass(frozen=True)
class Memcheck:
    """One run under valgrind. ``titles``: of the rules that it may prove instead."""

    rule: str
    shares: frozenset[str] = frozenset()
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it changes, in words."""
        longer = f"{QUICKEST} to {SLOWER} times as long"
        return f"valgrind looks at each access to the heap, which takes {longer} (PYTHONMALLOC=malloc)"

    @property
    def most(self) -> int:
        """Runs of a program that dies every time."""
        return 1

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run it once, or a few times where it does not die every time, until valgrind sees a bad access."""
        if self.rule in OF_STACKS and any(lab.tried[name] == "survives" for name in lab.tried if _is_stack(name)):
            return ExperimentResult(())  # a larger stack was enough: nothing is wrong but its size
        why = _why_not(lab, self.rule)
        if why is not None:
            return ExperimentResult((self._row(0, 0, why),))
        limit, left = _SPARE * _slowed(lab) * _predicted(lab), lab.left_s
        change = _change(limit if left is None else min(limit, left))
        runs = crashed = 0
        for _ in range(1 if lab.is_known and lab.enough <= _TRIES else _TRIES):
            trial = lab.run(NAME, change)
            if trial is None:
                break
            runs, crashed = runs + 1, crashed + (trial.outcome in {"same", "another"})
            if trial.outcome == "cannot-run" or not trial.measures.get("checked"):
                why = trial.why or "valgrind did not start it"
                return ExperimentResult((self._row(runs, crashed, f"could not be run: {why}"),))
            if trial.rule is not None:
                return self._seen(trial, runs, crashed)
            if trial.outcome == "hangs":
                return ExperimentResult((self._row(runs, crashed, f"it did not end in {change.seconds:.0f} s"),))
        if not runs:
            return ExperimentResult((self._row(0, 0, "not run: the budget was spent"),))
        return ExperimentResult((self._row(runs, crashed, "no bad access to the heap was seen", means="nothing"),))

    def _seen(self, trial: Trial, runs: int, crashed: int) -> ExperimentResult:
        rule = trial.rule or ""
        if rule == "damaged-object":  # its death again, and not what led to it
            said = "no bad access to the heap was seen before it died"
            return ExperimentResult((self._row(runs, crashed, said, means="nothing"),))
        said = rule + (f", {trial.where}" if trial.where else "")
        row = self._row(runs, crashed, f"the first bad access: {said}", conclusive=True)
        proof = proof_of(self.rule, rule)
        if proof is False and trial.outcome != "survives":
            proof = None  # it dies even where that access does no harm, between the blocks
        evidence = (
            Evidence(claim="the first bad access that valgrind saw", seen=said, where=_WHERE),
            *_around(trial),
        )
        if proof is None:
            return ExperimentResult((row,), evidence=evidence)
        title, advice = self.titles.get(rule, rule), _advice(trial)
        if proof and (self.rule in HEAP or rule not in HEAP):
            return ExperimentResult(
                (row,), {self.rule: True}, advice, trial.culprit, evidence, _summary(self.rule, trial)
            )
        claim = _BEFORE if proof else _APART
        found = proved_instead(rule, title, claim, row, trial.culprit, fixes=advice)
        proofs = {self.rule: proof} | dict.fromkeys(self.shares | {rule}, True)
        return ExperimentResult((row,), proofs, evidence=evidence, instead=found, is_cause=proof)

    def _row(
        self, runs: int, crashed: int, outcome: str, *, means: str | None = None, conclusive: bool | None = None
    ) -> Experiment:
        return Experiment(
            name=NAME,
            change="valgrind looks at each access to the heap",
            predicts="it sees a bad access to the heap",
            runs=runs,
            crashed=crashed,
            outcome=outcome,
            rule=self.rule,
            means=means,
            conclusive=conclusive,
        )


def _predicted(lab: Lab, slower: float = SLOWER) -> float:
    """Predicted seconds if the processor's work is ``slower``; waiting takes no longer than before."""
    wall = lab.plain_s or 0.0
    busy = min(wall, lab.plain_cpu_s) if lab.plain_cpu_s is not None else wall
    return START_S + (wall - busy) + slower * busy


def _slowed(lab: Lab) -> float:
    """How much longer than its work a run takes on a busy machine, as far as known."""
    if not lab.plain_s or not lab.plain_cpu_s:
        return 1.0
    return min(_MOST_SLOWED, max(1.0, lab.plain_s / lab.plain_cpu_s))


def _why_not(lab: Lab, rule: str) -> str | None:
    if shutil.which("valgrind") is None:
        return "could not be run: valgrind is not installed here"
    seconds, left = _predicted(lab), lab.left_s
    if rule in OF_STACKS and seconds > MOST_S:
        return f"not run: it may take {seconds:.0f} s, and little speaks for a damaged heap"
    if left is None and seconds > MOST_S:
        return f"not run: it may take {seconds:.0f} s, which needs a --budget"
    # What is left may be enough, and is all that it gets.
    least = _predicted(lab, QUICKEST)
    if left is not None and (seconds > left if rule in OF_STACKS else least > left):
        return f"not run: it may take {seconds:.0f} s, and {left:.0f} s of the budget are left"
    octets, free = _LARGER * int(lab.plain.get("rss", 0)) + _OWN_BYTES, _available()
    if free is not None and octets > free:
        return f"not run: it may take {octets >> 20:,} MiB of memory, and {free >> 20:,} MiB are free"
    return None


def _available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _change(seconds: float) -> Change:
    known = [f"--suppressions={path}" for path in _SUPPRESSIONS if path.is_file()]
    return Change(
        wrapper=("valgrind", *_OPTIONS, *known, f"--log-file={LOG}.%p"),
        environment={"PYTHONMALLOC": "malloc"},
        checker="valgrind",
        seconds=seconds,
    )


def _around(trial: Trial) -> tuple[Evidence, ...]:
    """The place in the block, who allocated it, and who freed it."""
    found = trial.seen.evidence if trial.seen is not None else ()
    return tuple(msgspec.structs.replace(one, where=_WHERE) for one in found if one.claim in _AROUND)


def _summary(rule: str, trial: Trial) -> str | None:
    """More than the C library's complaint said; None if it said the same."""
    if trial.seen is None or trial.seen.rule == rule:
        return None
    if trial.seen.rule != trial.rule:
        return (
            "What was freed is not the beginning of a block that is in use: valgrind reported that before any other"
            " error."
        )
    return f"{trial.seen.summary} The C library noticed it later."


def _advice(trial: Trial) -> tuple[Fix, ...]:
    culprit, seen = trial.culprit, trial.seen
    if seen is not None and seen.rule != trial.rule:
        text = "Free exactly the pointer that was allocated, by the matching function: free, delete or delete[]."
        return (Fix(text=text),)
    if seen is not None and seen.rule in _LIVES and _by_itself(trial):
        text = (
            "The line that used it also freed it, in another thread or in an earlier pass of its loop. "
            "If several threads run it, take one lock around it (std::mutex), or give each thread its own."
        )
        return (Fix(text=text),)
    if seen is not None and seen.rule in _LIVES:
        if not any("ffi_call" in fix.text for fix in seen.fixes[:1]):
            return seen.fixes[:1]  # it names who has freed it
        text = (
            "A function that Python called through ctypes has freed it. Its last call was free, so it is not on the"
            " stack: build it with -O0 to see its name. Free it once, and after its last use."
        )
        return (Fix(text=text),)
    name = f"`{culprit.function}`" if culprit is not None and culprit.function else "the function that it names"
    place = f" ({Path(culprit.source).name}:{culprit.line})" if culprit is not None and culprit.source else ""
    text = f"In {name}{place}, compare each index and length with the size of the block, and how long the block lives."
    return (Fix(text=text),)


def _by_itself(trial: Trial) -> bool:
    """The line with the bad access also freed the block."""
    culprit = trial.culprit
    if culprit is None or culprit.source is None or culprit.line is None:
        return False
    place = f"{Path(culprit.source).name}:{culprit.line}"
    return any(one.claim == "who freed it" and one.seen.endswith(place) for one in _around(trial))


def _is_stack(name: str) -> bool:
    return name.startswith("stack-")
