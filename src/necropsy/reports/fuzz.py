"""The result of ``necropsy fuzz`` as text: a paragraph for each finding, and the command that runs the tests."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Document, FuzzFinding, Fuzzing, FuzzNeed, FuzzPrecondition, FuzzTarget
from necropsy.reports.terminal import BOLD, RED, Pen, clean, without_commands, wrap

_LONGEST_CALL = 300
_MOST_TARGETS = 40
_NEEDS: dict[FuzzNeed, str] = {
    "guard": "guarded buffers (`necropsy run --guard`)",
    "stack-size": "a small stack (--stack-size)",
    "memory-limit": "a limit on its memory (`ulimit -d`), which makes a large allocation fail",
    "second-run": "a second call",
    "threads": "several threads",
    "graph": "a graph (`tf.function`)",
    "sanitizer": "a build of its source with AddressSanitizer (--source)",
}


def render(document: Document, *, color: bool = False, width: int = 80) -> str:
    """The findings, then what was called and what was not."""
    fuzzing = document.fuzz
    if fuzzing is None:
        return ""
    pen = Pen(color=color)
    first, *rest = wrap(headline(document, fuzzing), width, first="necropsy: ", rest="  ")
    lines = [pen(first, BOLD), *rest]
    for number, one in enumerate(fuzzing.findings, 1):
        lines += ["", *_finding(one, number, pen, width)]
    lines.append("")
    for target in fuzzing.targets[:_MOST_TARGETS]:
        lines += wrap(told(target), width, first="", rest="  ")
    if len(fuzzing.targets) > _MOST_TARGETS:
        lines.append(f"... and {len(fuzzing.targets) - _MOST_TARGETS:,} more")
    for skipped in document.not_tried:
        lines += wrap(clean(f"{skipped.rule} was not called: {skipped.reason}."), width, first="", rest="  ")
    for gap in document.gaps:
        lines += wrap(clean(f"{gap.part}: {gap.why}"), width, first="  * ", rest="    ")
    tests = [one.test for one in fuzzing.findings if one.test is not None]
    if tests:
        lines += ["", "A test that dies ends pytest, so run each by itself:"]
        lines += [f"  python -m pytest -p no:cacheprovider {clean(shlex.quote(test))}" for test in tests]
    return without_commands("\n".join(lines) + "\n")


def headline(document: Document, fuzzing: Fuzzing) -> str:
    """``my_op.so: 2 findings in 12,345 calls of 1 op (60 s, seed 0).``"""
    found = len(fuzzing.findings)
    ops = len(fuzzing.targets)
    cut = "" if document.complete else " It was ended early."
    return (
        f"{clean(document.subject.path or '')}: {found or 'no'} finding{'' if found == 1 else 's'} in "
        f"{fuzzing.executions:,} calls of {ops} op{'' if ops == 1 else 's'} ({fuzzing.seconds:.0f} s, seed "
        f"{fuzzing.seed}).{cut}"
    )


def told(target: FuzzTarget) -> str:
    """What became of the calls of one op."""
    parts = [f"{target.accepted:,} accepted", f"{target.refused:,} refused"]
    parts += [f"{target.deaths:,} died"] if target.deaths else []
    parts += [f"{target.slow:,} too slow"] if target.slow else []
    parts += [f"{target.hungry:,} out of memory"] if target.hungry else []
    parts += [f"{target.recorded:,} recorded to begin with"] if target.recorded else []
    parts += [f"{target.sanitized:,} made of the build with AddressSanitizer"] if target.sanitized else []
    return f"{clean(target.name)}: {target.executions:,} calls in {target.seconds:.0f} s: {', '.join(parts)}."


def _happened(one: FuzzFinding) -> str:
    if one.rule == "hang":
        return "did not end"
    return "died" if one.report is not None else "showed"


def _finding(one: FuzzFinding, number: int, pen: Pen, width: int) -> Iterator[str]:
    place = one.culprit
    where = f", in `{place.function}`" if place is not None and place.function else ""
    line = f" ({place.source}:{place.line})" if place is not None and place.source and place.line else ""
    head = f"{number}. {one.call.target}: {one.summary}"
    if where and place is not None and (place.function or "") not in one.summary:
        head = head.rstrip(".") + where + line + "."
    first, *rest = wrap(clean(head), width, first="", rest="   ")
    yield pen(first, BOLD, RED) if one.severity == "error" else first
    yield from rest
    yield from wrap(
        f"{one.rule}, {one.confidence}. First at call {one.first.execution:,} after {one.first.seconds:.1f} s, "
        f"{one.times:,} time{'' if one.times == 1 else 's'} in all; made again, it {_happened(one)} in "
        f"{one.reproduced.crashed} of {one.reproduced.runs} runs.",
        width,
        first="   ",
        rest="   ",
    )
    call = clean(one.call.python)
    yield f"     {call if len(call) <= _LONGEST_CALL else call[: _LONGEST_CALL - 3] + '...'}"
    if one.needs:
        yield from wrap(f"Needs {' and '.join(_NEEDS[need] for need in one.needs)}.", width, first="   ", rest="   ")
    for call in map(clean, one.call.beside):
        shown = call if len(call) <= _LONGEST_CALL else call[: _LONGEST_CALL - 3] + "..."
        yield f"   Other threads call meanwhile: {shown}"
    if one.call.repeated > 1:
        yield f"   It dies when the call is repeated, up to {one.call.repeated} times."
    for fix in one.fixes[:1]:
        yield from wrap(clean(fix.text), width, first="   Fix: ", rest="   ")
    if one.precondition is not None:
        yield from _precondition(one.precondition, one.rule, width)
    if one.test is not None:
        yield f"   Test: {clean(one.test)}"


def _precondition(one: FuzzPrecondition, rule: str, width: int) -> Iterator[str]:
    by_stack = " The limit depends on the size of the stack." if rule.startswith("stack-overflow") else ""
    yield from wrap(
        f"Precondition: {clean(one.condition)}. It held in {one.survived:,} accepted call"
        f"{'' if one.survived == 1 else 's'}, and did not in {one.died:,} that died.{by_stack}",
        width,
        first="   ",
        rest="   ",
    )
    if one.check is not None:
        yield from (f"     {clean(line)}" for line in one.check.splitlines())
