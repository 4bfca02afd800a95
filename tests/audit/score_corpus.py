"""How much of what the annotated ops expect `necropsy check` finds: a line for each rule.

    python tests/audit/score_corpus.py [--corpus FOLDER] [--missed] [--json FILE] [--others[=TOOL,...]] [RULE...]

``false`` counts errors and warnings on lines without a mark, on the bad ops and on the correct ones; notes count only
where they are expected. A finding meets a mark if its primary location starts on the line of the mark or in the same
statement. ``--others`` runs gcc, clang-tidy and cppcheck instead, as far as they are installed, and counts the bad ops
in which each warns on a marked line; it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus_marks import CORPUS, NOTES, WARNINGS, AnnotatedOp, Mark, ops


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    rule: str
    severity: str

    def covers(self, mark: Mark) -> bool:
        return self.rule == mark.rule and self.path == mark.path and mark.statement[0] <= self.line <= mark.statement[1]


@dataclass
class Score:
    """Of one rule, or of all together."""

    expected: int = 0
    missed: list[Mark] = field(default_factory=list)
    false: list[Finding] = field(default_factory=list)

    @property
    def found(self) -> int:
        return self.expected - len(self.missed)

    @property
    def recall(self) -> float:
        return self.found / self.expected if self.expected else 1.0

    @property
    def precision(self) -> float:
        reported = self.found + len(self.false)
        return self.found / reported if reported else 1.0


def findings(paths: Iterable[Path]) -> list[Finding]:
    """What `necropsy check` reports on the paths."""
    command = [sys.executable, "-m", "necropsy", "check", "--format", "json", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"necropsy check said nothing (exit code {done.returncode}): {done.stderr[-500:]}")
    return list(_findings(json.loads(done.stdout)))


def _findings(document: dict[str, Any]) -> Iterator[Finding]:
    for each in document.get("findings", ()):
        for where in (each.get("locations") or ())[:1]:
            yield Finding(
                Path(where["path"]).resolve(),
                where.get("line") or 0,
                each["rule"],
                each.get("severity", ""),
            )


def score(annotated: Iterable[AnnotatedOp], reported: Iterable[Finding]) -> dict[str, Score]:
    """By rule: the marks that no finding meets, and the findings that meet no mark.

    A finding on one of the other lines of a fault stands in for a mark of the same rule in the same op.
    """
    scores = {rule: Score() for rule in sorted(WARNINGS | NOTES)}
    unique = sorted(set(reported), key=lambda finding: (str(finding.path), finding.line))
    right: set[Finding] = set()
    for op in annotated:
        spare = [finding for finding in unique if any(finding.covers(mark) for mark in op.alternatives)]
        right.update(spare)
        for mark in op.marks:
            one = scores.setdefault(mark.rule, Score())
            one.expected += 1
            met = [finding for finding in unique if finding.covers(mark)]
            right.update(met)
            instead = [finding for finding in spare if finding.rule == mark.rule]
            if not met and instead:
                spare.remove(instead[0])
            elif not met:
                one.missed.append(mark)
    for finding in unique:
        if finding.severity != "note" and finding not in right:
            scores.setdefault(finding.rule, Score()).false.append(finding)
    return scores


def together(scores: Iterable[Score]) -> Score:
    whole = Score()
    for one in scores:
        whole.expected += one.expected
        whole.missed += one.missed
        whole.false += one.false
    return whole


def table(scores: dict[str, Score]) -> str:
    rows = [("rule", "expected", "found", "missed", "false", "recall", "precision")]
    for name, one in [*scores.items(), ("all", together(scores.values()))]:
        rows.append(
            (
                name,
                str(one.expected),
                str(one.found),
                str(len(one.missed)),
                str(len(one.false)),
                f"{one.recall:.0%}",
                f"{one.precision:.0%}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


_TOOLS = {
    "gcc": [
        "g++",
        "-Wall",
        "-Wextra",
        "-Wno-deprecated",
        "-Wno-deprecated-declarations",
        "-Wvla",
        "-Wframe-larger-than=1000000",
        "-O2",
        "-c",
        "-o",
        "/dev/null",
    ],
    "clang-tidy": ["clang-tidy", "--quiet", "--checks=clang-analyzer-*,bugprone-*,misc-no-recursion"],
    "cppcheck": [
        *("cppcheck", "--enable=warning,portability", "--inconclusive", "--quiet"),
        "--template={file}:{line}: {message}",
    ],
}


def others(annotated: Iterable[AnnotatedOp], tools: Iterable[str]) -> Iterator[str]:
    """For each tool, the bad ops in which it warns on a marked line, and how many those are."""
    bad = [op for op in annotated if any(not mark.note for mark in op.marks)]
    flags = subprocess.run(
        [sys.executable, "-c", "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for tool in tools:
        if shutil.which(_TOOLS[tool][0]) is None:
            yield f"{tool}: not installed"
            continue
        found = 0
        for number, op in enumerate(bad, 1):
            if _names_a_mark(tool, op, flags):
                found += 1
                yield f"  {tool}: {op.path.name} ({found} of {number} so far)"
        yield f"{tool}: names a marked line in {found} of {len(bad)} bad ops"


def _names_a_mark(tool: str, op: AnnotatedOp, flags: list[str]) -> bool:
    behind = {
        "gcc": _system(flags),
        "clang-tidy": ["--", "-Wno-deprecated-declarations", *_system(flags)],
        "cppcheck": [],
    }[tool]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["nice", *_TOOLS[tool], str(op.path), *behind], capture_output=True, text=True, check=False, cwd=folder
        )
    named = _lines(done.stdout + done.stderr)
    return any((mark.path.name, mark.line) in named for mark in op.marks if not mark.note)


def _system(flags: list[str]) -> list[str]:
    """TensorFlow's headers as system headers, whose warnings are not ours."""
    return [part for flag in flags for part in (["-isystem", flag[2:]] if flag.startswith("-I") else [flag])]


def _lines(text: str) -> set[tuple[str, int]]:
    named = set()
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[1].isdigit() and "note:" not in line:
            named.add((Path(parts[0]).name, int(parts[1])))
    return named


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="the folder with bad/ and good/")
    parser.add_argument("--missed", action="store_true", help="list the missed marks and the false findings")
    parser.add_argument("--json", type=Path, metavar="FILE", help="score this document of `necropsy check` instead")
    parser.add_argument("--others", nargs="?", const=",".join(_TOOLS), metavar="TOOL,...", help="run other analysers")
    parser.add_argument("rules", nargs="*", metavar="RULE")
    arguments = parser.parse_args()
    corpus = arguments.corpus.resolve()
    annotated = ops(corpus)
    if arguments.others:
        for line in others(annotated, arguments.others.split(",")):
            print(line, flush=True)
        return 0
    reported = list(_findings(json.loads(arguments.json.read_text()))) if arguments.json else findings([corpus])
    scores = score(annotated, reported)
    if arguments.rules:
        scores = {rule: one for rule, one in scores.items() if rule in arguments.rules}
    print(table(scores))
    if arguments.missed:
        for rule, one in scores.items():
            for mark in one.missed:
                print(f"missed  {rule}  {mark.path.relative_to(corpus)}:{mark.line}")
            for finding in one.false:
                print(f"false   {rule}  {finding.path.relative_to(corpus)}:{finding.line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
