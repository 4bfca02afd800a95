"""A pass that replaces expressions by the values that they had in a run that died.

What computed a value is then not needed any more, and the statements for it go in the next stages.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from necropsy.reduce.program import Program, Steps, from_the_end, search
from necropsy.reduce.python_source import Edit, Source
from necropsy.reduce.statements import parsed

SEEN = "__necropsy_seen__"
"""The function that an instrumented program calls: ``SEEN(17, value)`` notes the value and returns it."""

_WITHOUT_VALUE = (ast.Constant, ast.Starred, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await, ast.GeneratorExp)
"""Literals, and what has none. The place of a generator that is the only argument has the parentheses of the call."""

_NO_INDEX = (ast.Slice, ast.Starred)

Place = tuple[str, int, int]
"""An expression: the path of its file, where it begins and where it ends."""
Observe = Callable[[Program], "Mapping[int, str] | None"]
"""Runs an instrumented program. Returns the literals of the values by number; None where it did not die the same."""


def with_observed_values(observe: Observe) -> Callable[[Program], Steps]:
    """A pass that puts literals where values are assigned, passed and returned."""

    def steps(program: Program) -> Steps:
        sources = parsed(program)
        known = _known(program, sources, observe)
        if not known:
            return program
        return (yield from search(program, known, from_the_end, lambda chosen: _with(program, sources, chosen)))

    return steps


def with_all_values(program: Program, observe: Observe, stack: Callable[[], Collection[tuple[str, int]]]) -> Program:
    """The program with literals wherever a value is known, but not for the calls of the ``stack``.

    ``stack``: the paths and lines of the run that ``observe`` made.
    """
    sources = parsed(program)
    known = _known(program, sources, observe)
    lines = stack()

    def is_called(place: Place) -> bool:
        # The call is in it, and what it returned before is not what it would have returned now.
        path, start, end = place
        text = sources[path].text
        first, last = text.count(b"\n", 0, start) + 1, text.count(b"\n", 0, end) + 1
        has_inner = any(one[0] == path and start < one[1] and one[2] < end for one, _ in known)
        return b"(" in text[start:end] and not has_inner and any(on == path and first <= at <= last for on, at in lines)

    return _with(program, sources, [(place, text) for place, text in known if not is_called(place)])


def _known(program: Program, sources: Mapping[str, Source], observe: Observe) -> list[tuple[Place, str]]:
    """The expressions whose values can be written down, with their literals."""
    places = [place for path, source in sources.items() for place in _places(path, source)]
    literals = observe(instrumented(program, sources, places)) or {}
    # The parts of an expression were computed again, and it was not: it died in there.
    order = {places[number]: at for at, number in enumerate(literals)}
    unfinished = {
        place for place, at in order.items() if any(_is_within(one, place) and order[one] > at for one in order)
    }
    known = [(place, literals[number]) for number, place in enumerate(places) if number in literals]
    known = [one for one in known if one[0] not in unfinished]
    return [one for one in known if sources[one[0][0]].text[one[0][1] : one[0][2]].decode() != one[1]]


def _is_within(inner: Place, outer: Place) -> bool:
    return inner[0] == outer[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner != outer


def _with(program: Program, sources: Mapping[str, Source], chosen: Sequence[tuple[Place, str]]) -> Program:
    edits: dict[str, list[Edit]] = {}
    for (path, start, end), literal in chosen:
        name = literal.removeprefix("@")
        edits.setdefault(path, []).append(Edit(start, end, name.encode()))
        if name != literal:
            edits[path] += _undecorated(sources[path], name)
    return program.with_files({path: sources[path].edited(some) for path, some in edits.items()})


def _undecorated(source: Source, name: str) -> Iterator[Edit]:
    """A function or class of the module without its decorators."""
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and node.decorator_list:
            yield Edit(source.start(node), source.offset(node.lineno, node.col_offset))


def instrumented(program: Program, sources: Mapping[str, Source], places: Sequence[Place]) -> Program:
    """The program with a call of ``SEEN`` around each expression."""
    edits: dict[str, list[Edit]] = {}
    for number, (path, start, end) in enumerate(places):
        # Two insertions: expressions lie within each other.
        edits.setdefault(path, []).append(Edit(start, start, f"{SEEN}({number}, (".encode()))
        edits[path].append(Edit(end, end, b"))"))
    return program.with_files({path: _inserted(sources[path], some) for path, some in edits.items()})


def _inserted(source: Source, edits: Sequence[Edit]) -> bytes:
    """Insertions only; of those at one place, what ends comes before what begins."""
    opening = [edit for edit in edits if edit.text != b"))"]
    closing = [edit for edit in edits if edit.text == b"))"]
    joined: dict[int, bytes] = {}
    for edit in closing:
        joined[edit.start] = joined.get(edit.start, b"") + edit.text
    for edit in sorted(opening, key=lambda one: one.start):
        joined[edit.start] = joined.get(edit.start, b"") + edit.text
    return source.edited([Edit(at, at, text) for at, text in joined.items()])


def _places(path: str, source: Source) -> Iterator[Place]:
    """What is assigned to names, passed and returned, apart from literals; from the beginning of the file."""
    found: set[tuple[int, int]] = set()
    skipped = {inner for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in ast.walk(source.tree):
        if node in skipped:
            continue
        for value in _values(node):
            if not isinstance(value, _WITHOUT_VALUE):
                found.add((source.start(value), source.end(value)))
    # Of expressions that begin at the same place, the outer one is opened first.
    yield from ((path, start, end) for start, end in sorted(found, key=lambda one: (one[0], -one[1])))


def _values(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield node.value
    elif isinstance(node, ast.Call):
        yield from node.args
        yield from (one.value for one in node.keywords if one.arg is not None)
        if not isinstance(node.func, ast.Attribute) and not hasattr(builtins, getattr(node.func, "id", "")):
            yield node.func  # from a table of functions, or a parameter
    elif isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.Subscript) and not any(isinstance(one, _NO_INDEX) for one in ast.walk(node.slice)):
        yield node.slice
    elif isinstance(node, ast.Return) and node.value is not None:
        yield node.value
