"""A group in one line, for somebody who reads a ticket."""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.model import BugGroup, Culprit
from necropsy.predicates import bare_name

_LONGEST = 200
_SHORT = {
    "null-dereference": "null pointer",
    "invalid-read": "invalid read",
    "invalid-write": "invalid write",
    "write-to-readonly": "write to read-only memory",
    "stack-overflow-recursion": "endless recursion",
    "stack-overflow-large-frame": "stack overflow by a large local variable",
    "stack-overflow-small-stack": "stack overflow",
    "use-after-free": "use after free",
    "check-failed": "check failed",
    "assertion-failed": "assertion failed",
    "uncaught-cpp-exception": "uncaught C++ exception",
    "python-exception": "Python exception",
    "killed-by-signal": "ended from outside",
    "out-of-memory-killed": "killed by the OOM killer",
    "integer-divide-by-zero": "division by zero",
    "stack-smash": "overwritten stack frame",
}
"""Of other rules, the name reads well enough: ``double free``."""


def title(group: BugGroup, *, text: str | None = None, summary: str | None = None) -> str:
    """``null pointer in score_rows, called from train.py:7 score()``.

    ``text``: what was said (a CHECK's condition). ``summary``: the report's own first sentence, for a group of which
    nothing else is known.
    """
    culprit = group.culprit
    if group.rule is None and culprit is None and not group.names:
        return _cut(summary or f"ended by {group.end or 'an unknown cause'}")
    if group.rule is None or group.rule == "exit-status-only":
        what = f"unknown cause ({group.end or 'unknown end'})"
    else:
        what = _SHORT.get(group.rule, group.rule.replace("-", " "))
    if text and text != group.rule:
        what = f"{what}: {text.removeprefix(f'{group.rule} ')}"
    function = culprit.function if culprit is not None else None
    if culprit is not None and culprit.python is not None and culprit.module is None:
        function = None if function == culprit.python.function else function  # of a Python exception
    function = function or next(iter(group.names), None) or (culprit.module if culprit is not None else None)
    where = f" in {bare_name(function)}" if function is not None else ""
    return _cut(what + where + _caller(culprit, with_function=function is not None))


def _caller(culprit: Culprit | None, *, with_function: bool) -> str:
    python = culprit.python if culprit is not None else None
    if python is None or python.file is None:
        return ""
    line = f":{python.line}" if python.line is not None else ""
    name = f" {python.function}()" if python.function and not python.function.startswith("<") else ""
    return f"{', called from' if with_function else ' in'} {file_name(python.file)}{line}{name}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
