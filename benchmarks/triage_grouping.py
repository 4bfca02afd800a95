"""How well `necropsy triage` finds the bugs of its corpus, beside other ways of grouping.

    python benchmarks/triage_grouping.py [--out benchmarks/RESULTS.md]
        [--page docs/explanation/grouping.md] [--corpus FILE] [--scale 100000]

The corpus is kept in tests/triage/corpus, with the script that makes it. Socorro's signatures take `pip install siggen`.
CASR's clustering is written again here after its source: similarity of two stacks that falls with depth and distance,
complete linkage, threshold 0.3. ``--scale``: also time the grouping of so many made-up deaths.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
import time
import zlib
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from pathlib import Path

import results

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from necropsy.triage.deaths import Fingerprint, FramePlace
from necropsy.triage.documents import Call
from necropsy.triage.grouping import group
from triage_corpus import NATIVE, PLACE, Case, Score, corpus, grouped, score

FOREIGN = frozenset({"system", "interpreter"})


def stack(case: Case) -> tuple[Call, ...]:
    thread = case.document.reports[0].crash.crashed_thread
    return (thread.frames if thread is not None else None) or ()


def name(call: Call) -> str:
    return call.function or f"{call.module}+{call.module_offset}"


def by_signature(cases: Sequence[Case]) -> list[Hashable]:
    return [case.document.reports[0].signature for case in cases]


def by_rule_and_function(cases: Sequence[Case]) -> list[Hashable]:
    return [(case.document.reports[0].signature or "").rpartition("|")[0] for case in cases]


def by_top(count: int, *, own: bool = False) -> Callable[[Sequence[Case]], list[Hashable]]:
    """The innermost functions, of the whole stack or of the program's own part."""

    def method(cases: Sequence[Case]) -> list[Hashable]:
        return [
            tuple(name(call) for call in stack(case) if not own or call.owner not in FOREIGN)[:count] for case in cases
        ]

    return method


def by_key(cases: Sequence[Case]) -> list[Hashable]:
    return [case.fingerprint.key for case in cases]


def by_siggen(cases: Sequence[Case]) -> list[Hashable]:
    from siggen.generator import SignatureGenerator

    generator = SignatureGenerator()
    found: list[Hashable] = []
    for case in cases:
        frames = [
            {
                "frame": place,
                "function": call.function,
                "module": call.module,
                "file": call.source,
                "line": call.line,
                "module_offset": call.module_offset,
                "offset": call.address,
            }
            for place, call in enumerate(stack(case))
        ]
        crash = {"os": "Linux", "crashing_thread": 0, "threads": [{"frames": frames}]}
        found.append(generator.generate(crash).signature)
    return found


_TOP, _DISTANCE, _THRESHOLD = 0.04, 0.13, 0.3


@cache
def casr_similarity(a: tuple[str, ...], b: tuple[str, ...]) -> float:
    """1 for equal stacks: matches count less the deeper they are and the more they are shifted."""
    if not a or not b:
        return float(not a and not b)
    table = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, first in enumerate(a, 1):
        for j, second in enumerate(b, 1):
            match = math.exp(-_TOP * min(i - 1, j - 1) - _DISTANCE * abs(i - j)) if first == second else 0.0
            table[i][j] = max(table[i - 1][j], table[i][j - 1], table[i - 1][j - 1] + match)
    return table[-1][-1] / sum(math.exp(-_TOP * i) for i in range(min(len(a), len(b))))


def by_casr(cases: Sequence[Case]) -> list[Hashable]:
    """Complete linkage: two clusters are one where all their stacks are near each other."""
    stacks = [tuple(name(call) for call in stack(case)[:16]) for case in cases]
    distinct = sorted(set(stacks))
    far = {
        (i, j): 1 - casr_similarity(distinct[i], distinct[j])
        for i in range(len(distinct))
        for j in range(i + 1, len(distinct))
    }
    members = {i: [i] for i in range(len(distinct))}
    while far:
        (a, b), distance = min(far.items(), key=lambda item: (item[1], item[0]))
        if distance > _THRESHOLD:
            break
        members[a] += members.pop(b)
        for other in members:
            if other != a:
                pair, gone = (min(a, other), max(a, other)), (min(b, other), max(b, other))
                far[pair] = max(far[pair], far.pop(gone))
        del far[a, b]
    of_stack = {distinct[i]: cluster for cluster, them in members.items() for i in them}
    return [of_stack[one] for one in stacks]


METHODS: dict[str, Callable[[Sequence[Case]], Sequence[Hashable]]] = {
    "signature": by_signature,
    "its rule and function": by_rule_and_function,
    "top frame": by_top(1),
    "top three frames": by_top(3),
    "top frame of the program's own": by_top(1, own=True),
    "Socorro's siggen": by_siggen,
    "CASR's clustering": by_casr,
    "key alone": by_key,
    "**`necropsy triage`**": grouped,
}


def table(cases: Sequence[Case]) -> list[str]:
    """A row for each method."""
    native = [case for case in cases if case.kind in NATIVE]
    held = [case for case in cases if case.part == "held out"]
    held_native = [case for case in held if case.kind in NATIVE]
    lines = [
        f"| method | native ({len(native)}): groups, P, R | all ({len(cases)}): groups, P, R | held out, native ({len(held_native)}) | held out, all ({len(held)}) |",
        "|---|---|---|---|---|",
    ]
    for title, method in METHODS.items():
        try:
            shown = [row(score(some, method(some))) if some else "" for some in (native, cases, held_native, held)]
        except ImportError as error:
            print(f"{title} is left out: {error}", file=sys.stderr)
            continue
        lines.append(f"| {title} | {' | '.join(shown)} |")
        print(lines[-1], file=sys.stderr)
    return lines


def row(one: Score) -> str:
    return f"{one.groups}, {one.precision:.3f}, {one.recall:.3f}"


def made_up(count: int, bugs: int = 300) -> list[Fingerprint]:
    """Deaths of a fleet: each bug from up to six callers, in up to four builds."""
    chance = random.Random(7)
    found = []
    for _ in range(count):
        bug, caller, build = chance.randrange(bugs), chance.randrange(6), chance.randrange(4)
        names = (f"function{bug}", f"caller{bug}_{caller}", f"entry{caller}")
        frames = tuple(
            FramePlace(
                names=(one,),
                qualified=(f"library::{one}",),
                module="lib.so",
                build_id=f"b{build}",
                offset=hex(zlib.crc32(f"{one} {build}".encode())),
            )
            for one in names
        )
        key = f"{bug}-{caller}-{build}"
        found.append(
            Fingerprint(
                key=key,
                family="memory",
                end="SIGSEGV",
                frames=frames,
                python=(f"train.py:{caller}",),
                python_line=f"train.py:{caller}",
                native=True,
            )
        )
    return found


def timed(count: int) -> str:
    deaths = made_up(count)
    start = time.process_time()
    distinct = {one.key: one for one in deaths}
    found = group(distinct, {}, [])
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{count:,} deaths with {len(distinct):,} different fingerprints: {len(found.groups)} groups in {took:.1f} s of CPU; peak of the process {peak:.0f} MB."


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--corpus", type=Path, default=PLACE)
    parser.add_argument("--scale", type=int, default=100_000)
    options = parser.parse_args()
    cases = corpus(options.corpus)
    lines = [
        f"{len(cases)} deaths of {len({case.bug for case in cases})} bugs.",
        "",
        *table(cases),
        "",
        timed(options.scale),
    ]
    print("\n".join(lines))
    if options.out is not None:
        results.put(
            options.out, "\n".join(["# Grouping of deaths", "", "`python benchmarks/triage_grouping.py`.", "", *lines])
        )
    if options.page is not None:
        results.put_between(options.page, "grouping", "\n".join(lines))


if __name__ == "__main__":
    main()
