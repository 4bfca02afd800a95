"""What the comments of the annotated ops in ``corpus/`` say.

In the first lines of an op::

    // call: Gather {"params": [1, 2], "indices": [5]} => error
    // dies: SIGSEGV

``call`` names an op and its inputs and attributes as JSON, with what a correct op answers behind ``=>`` (a value,
``error``, or ``any`` for either). Several calls run one after another. An input can also be ``{"zeros": SHAPE}``,
``{"fill": VALUE, "shape": SHAPE}``, ``{"arange": N}`` or ``{"value": VALUE}``, each with a ``dtype``, or
``{"text": "ab", "times": N}``, ``{"list": [INPUT, ...]}`` or ``{"result": N}`` (what the Nth call returned).

How a bad op ends: ``dies: SIGSEGV`` (or ``SIGABRT``, or ``asan`` for what only the sanitizers notice), ``wrong: WHY``,
``hangs: WHY``, or ``advice: WHY`` where nothing goes wrong. ``build: asan``, ``graph: yes`` (within a tf.function),
``threads: 8`` and ``repeats: 100`` say how it is called. A correct op has ``twin: RULE, ...``: the rules whose bad ops
it is the correct form of.

On a line with a fault: ``// expect: RULE, ...``, and ``// expect-note: RULE, ...`` for advice. ``// or: RULE`` marks
another line where the same fault can be reported: a finding there is right too, but none is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
HELD_OUT = Path(__file__).parent / "held_out"  # written without a look at the rules, for an honest figure

WARNINGS = frozenset(
    {
        "op-recursion",
        "op-recursive-destructor",
        "op-large-frame",
        "op-stack-allocation",
        "op-stack-depth",
        "op-buffer-overrun",
        "op-index-unchecked",
        "op-element-unchecked",
        "op-sizes-unrelated",
        "op-attr-unchecked",
        "op-offset-unchecked",
        "op-string-overflow",
        "op-rank-unchecked",
        "op-type-unchecked",
        "op-check-on-input",
        "op-exception",
        "op-division-unchecked",
        "op-null-input",
        "op-size-overflow",
        "op-allocation-unchecked",
        "op-dangling-view",
        "op-shared-write",
        "op-kernel-state",
        "op-requires-in-lambda",
        "op-lock-order",
        "op-status-ignored",
        "op-output-unset",
        "op-done-not-called",
    }
)
NOTES = frozenset({"op-no-shape-function", "op-shape-function-weak", "op-legacy-api", "op-unbounded-loop"})

_MARK = re.compile(r"//\s*(expect|expect-note|or):\s*([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)\s*$")
_FIELD = re.compile(r"// (call|dies|wrong|hangs|advice|build|graph|threads|repeats|twin): (.*)$")
_CALL = re.compile(r"(\w+) (\{.*\})(?: => (.*))?$")
_INCLUDED = re.compile(r'^\s*#\s*include\s+"(?!tensorflow/|unsupported/)([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Mark:
    path: Path
    line: int
    rule: str
    kind: str  # "expect", "expect-note" or "or"
    statement: tuple[int, int]  # the lines of the statement, or of the head of the function, that the mark is in

    @property
    def note(self) -> bool:
        return self.kind == "expect-note"


@dataclass(frozen=True)
class Call:
    op: str
    arguments: dict[str, Any]
    answer: Any  # "any", "error", or a value


@dataclass
class AnnotatedOp:
    path: Path
    headers: tuple[Path, ...] = ()
    calls: list[Call] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    alternatives: list[Mark] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return self.path.parent.name == "bad"

    @property
    def twin_of(self) -> list[str]:
        return [rule.strip() for rule in self.fields.get("twin", "").split(",") if rule.strip()]

    @property
    def ending(self) -> str:
        """``dies``, ``wrong``, ``hangs`` or ``advice``; nothing for a correct op."""
        return next((name for name in ("dies", "wrong", "hangs", "advice") if name in self.fields), "")


def annotated(path: Path) -> AnnotatedOp:
    source = path.read_text(encoding="utf-8")
    headers = tuple(_headers(path, source))
    op = AnnotatedOp(path, headers)
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        found = _FIELD.match(line)
        if found is None:
            continue
        if found[1] == "call":
            op.calls.append(_call(found[2], path))
        else:
            op.fields[found[1]] = found[2].strip()
    for one in (path, *headers):
        for mark in _marks(one):
            (op.alternatives if mark.kind == "or" else op.marks).append(mark)
    return op


def ops(folder: Path = CORPUS) -> list[AnnotatedOp]:
    return [annotated(path) for path in sorted(folder.glob("*/*.cc"))]


def _headers(path: Path, source: str) -> Iterator[Path]:
    for name in _INCLUDED.findall(source):
        header = path.parent / name
        if header.is_file():
            yield header


def _call(text: str, path: Path) -> Call:
    found = _CALL.match(text)
    if found is None:
        raise ValueError(f"{path}: not a call: {text}")
    answer = (found[3] or "any").strip()
    return Call(found[1], json.loads(found[2]), answer if answer in {"any", "error"} else json.loads(answer))


def _marks(path: Path) -> Iterator[Mark]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        found = _MARK.search(line)
        for rule in re.split(r"\s*,\s*", found[2]) if found else ():
            yield Mark(path, number, rule, found[1] if found else "", _statement(lines, number))


def _statement(lines: list[str], number: int) -> tuple[int, int]:
    first = last = number
    while first > 1 and not _ends(lines[first - 2]):
        first -= 1
    while last < len(lines) and not _ends(lines[last - 1]):
        last += 1
    return first, last


def _ends(line: str) -> bool:
    """Does a statement, or the head of one, end with this line?"""
    code = line.split("//", maxsplit=1)[0].strip()
    return not code or code.startswith("#") or code[-1] in ";{}:"
