"""How much two deaths look like one bug, from 0 to 1, and what shows that they are two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from necropsy.triage.messages import contradict
from necropsy.triage.names import agree
from necropsy.triage.nodes import UNKNOWN, Node

ENOUGH = 0.45
"""From this average on, groups are one."""
_UNKNOWN_CALLER = 0.85
_OTHER_CALLER = 0.6
_SHARED_HELPER = 0.1
_INLINED = 0.8
"""Where one side has no debug information, and so does not show what was inlined."""
_SAME_TEXT = 0.55
_NAMELESS = 0.55
_DEPTH = 4
_CALLERS = 12
"""A function that crashes under this many different callers is a helper that gets invalid arguments."""
_LINES = 4
"""Lines so far apart are two places. Of two failed checks every line is another."""


_UNSURE = ({"memory-or-stack", "memory"}, {"memory-or-stack", "stack"})


class Contexts:
    """From where each function was called when it died, over all deaths."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._routes: defaultdict[object, set[object]] = defaultdict(set)
        self._callers: defaultdict[object, set[str]] = defaultdict(set)
        for node in nodes:
            if len(node.chain) > 1:
                top, caller = node.chain[0][0], node.chain[1][0]
                said = (node.end, node.text)
                if node.chain[1][1]:
                    self._callers[said, top].add(caller)
                self._routes[said, top, caller].update({route[:2] for route in node.routes} or node.outer)

    def is_shared(self, node: Node, function: str, first: str, second: str) -> bool:
        """A helper of both callers: each of them leads to this death in more than one way, or many others do so too.

        The bug is then theirs. Where they come from one place each, all ways meet in the function, and it has the bug.
        """
        said = (node.end, node.text)
        if len(self._callers[said, function]) >= _CALLERS:
            return True
        return all(len(self._routes[said, function, caller]) > 1 for caller in (first, second))


def same_end(a: Node, b: Node) -> bool:
    """They can have ended in the same way. A text does not always tell a full stack from another fault."""
    families = {a.family, b.family}
    return a.end == b.end and (len(families) == 1 or families in _UNSURE)


def conflict(a: Node, b: Node) -> bool:
    """Two bugs for certain: another signal, another text, or two places of one function in one build."""
    if not same_end(a, b) or contradict(a.text, b.text):
        return True
    return _two_lines(a, b)


def _two_lines(a: Node, b: Node) -> bool:
    if a.line is None or b.line is None or a.period or b.period or (a.text is not None and a.text == b.text):
        return False
    if not (a.builds & b.builds) or a.chain[:1] != b.chain[:1]:
        return False
    far = 1 if a.family == "abort" else _LINES
    return a.line[0] == b.line[0] and abs(a.line[1] - b.line[1]) >= far


def similarity(a: Node, b: Node, contexts: Contexts) -> float:
    """From 0 to 1. The innermost function counts most; the caller's decides where a helper is shared."""
    if a.period or b.period:
        return _recursion(a, b)
    place = _meeting(a, b)
    if place is None:
        return _without_names(a, b)
    i, j = place
    shift = _INLINED if i != j else 1.0
    if i != j and (a if i < j else b).has_lines and not _one_line(a, b):
        return _SAME_TEXT if a.text is not None and a.text == b.text else 0.0
    first, second = a.chain[i + 1 : i + 2], b.chain[j + 1 : j + 2]
    if not first and not second:
        return shift
    if not first or not second:
        return shift * _UNKNOWN_CALLER
    if first[0][0] == second[0][0] and agree(first[0][1], second[0][1]):
        return shift
    if contexts.is_shared(a, a.chain[i][0], first[0][0], second[0][0]):
        return _SHARED_HELPER
    return shift * _OTHER_CALLER


def _one_line(a: Node, b: Node) -> bool:
    """Debug information has the same line for both, if it names the function or not."""
    return a.line is not None and a.line == b.line


def _meeting(a: Node, b: Node) -> tuple[int, int] | None:
    """Where the two stacks first have the same function; one of the places is the innermost."""
    for i, j in _PLACES:
        if i < len(a.chain) and j < len(b.chain):
            (name, full), (other, other_full) = a.chain[i], b.chain[j]
            if name == other and name != UNKNOWN[0] and agree(full, other_full):
                return i, j
    return None


_PLACES = [(0, 0), *((i, 0) for i in range(1, _DEPTH)), *((0, j) for j in range(1, _DEPTH))]


def _without_names(a: Node, b: Node) -> float:
    """Nameless code below the same caller, with the same message or on the same line of Python."""
    shared = a.python_lines & b.python_lines or (a.text is not None and a.text == b.text)
    if len(a.chain) < 2 or len(b.chain) < 2 or not shared:
        return 0.0
    nameless = not a.chain[0][1] or not b.chain[0][1]
    return _NAMELESS if nameless and a.chain[1] == b.chain[1] and a.chain[1][1] else 0.0


def _recursion(a: Node, b: Node) -> float:
    first = a.period or frozenset(name for name, _ in a.chain[:3])
    second = b.period or frozenset(name for name, _ in b.chain[:3])
    if not first or not second:
        return 0.0
    return len(first & second) / min(len(first), len(second))
