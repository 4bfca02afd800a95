"""``#include`` lines that a repair needs."""

from __future__ import annotations

import re

from necropsy.audit.cxx_repairs.edits import Edit
from necropsy.audit.cxx_repairs.site import Site

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include\b[^\r\n]*", re.MULTILINE)
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b", re.MULTILINE)
_GUARD = re.compile(rb"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[^\n]*\n[ \t]*#[ \t]*define[ \t]+\1\b[^\n]*\n", re.MULTILINE)
_ONCE = re.compile(rb"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*\n", re.MULTILINE)
_LEADING = re.compile(rb"(?:[ \t]*//[^\n]*\n|[ \t]*/\*.*?\*/[ \t]*\r?\n|[ \t]*\r?\n)*", re.DOTALL)


def included(site: Site, *names: str) -> tuple[Edit, ...]:
    """Insertions for those headers that neither the file nor one that it includes names."""
    missing = []
    for name in names:
        quoted = re.escape(name.encode())
        seen = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]" + quoted + rb"[>\"]", re.MULTILINE)
        if not any(seen.search(one.original) for one in site.look.unit.files):
            missing.append(name)
    at, is_behind = _where(site.file.original)
    edits = []
    for name in missing:
        line = f'#include "{name}"' if name.startswith("tensorflow/") else f"#include <{name}>"
        text = f"{line}{site.eol}"
        edits.append(Edit(site.file.path, at, at, (text + site.eol if is_behind else text).encode()))
    return tuple(edits)


def _where(data: bytes) -> tuple[int, bool]:
    """Before the first unconditional ``#include``; without one, at the top, followed by a blank line."""
    guard = _GUARD.search(data)
    conditions = [one for one in _CONDITION.finditer(data) if guard is None or one.start() != guard.start()]
    for one in _INCLUDE.finditer(data):
        depth = sum(-1 if each[1] == b"endif" else 1 for each in conditions if each.start() < one.start())
        if depth <= 0:
            return one.start(), False
    top = guard or _ONCE.search(data)
    if top is not None:
        return top.end(), True
    leading = _LEADING.match(data)
    return (leading.end() if leading is not None else 0), True
