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
        places = [place for path, source in sources.items() for place in _places(path, source)]
        known = _known(sources, _noted(program, sources, places, observe))
        if not known:
            return program
        return (yield from search(program, known, from_the_end, lambda chosen: _with(program, sources, chosen)))

    return steps


def with_all_values(program: Program, observe: Observe, stack: Callable[[], Collection[tuple[str, int]]]) -> Program:
    """The program with literals wherever a value is known, but not for the calls of the ``stack``.

    ``stack``: the paths and lines of the run that ``observe`` made.
    """
    sources = parsed(program)
    places = [place for path, source in sources.items() for place in _places(path, source)]
    noted = _noted(program, sources, places, observe)
    order = {place: at for at, place in enumerate(noted)}
    lines = stack()

    def may_be_called(place: Place) -> bool:
        # What a call that has not returned gave before is not what it would have given now.
        path, start, end = place
        text = sources[path].text
        first, last = text.count(b"\n", 0, start) + 1, text.count(b"\n", 0, end) + 1
        if b"(" not in text[start:end] or not any(on == path and first <= at <= last for on, at in lines):
            return False
        if any(_is_within(one, place) for one in noted):
            return False  # its parts tell
        return all(order.get(one, -1) > order[place] for one in places if _is_within(place, one))

    known = [(place, text) for place, text in _known(sources, noted) if not may_be_called(place)]
    return _with(program, sources, known)


def _noted(
    program: Program, sources: Mapping[str, Source], places: Sequence[Place], observe: Observe
) -> dict[Place, str]:
    """The literals of the last values, in the order in which these were computed."""
    literals = observe(instrumented(program, sources, places)) or {}
    return {places[number]: text for number, text in literals.items()}


def _known(sources: Mapping[str, Source], noted: Mapping[Place, str]) -> list[tuple[Place, str]]:
    """What can be replaced by a literal, from the beginning of each file on."""
    order = {place: at for at, place in enumerate(noted)}
    # The parts of an expression were computed again, and it was not: it died in there.
    unfinished = {
        place for place in noted if any(_is_within(one, place) and order[one] > order[place] for one in noted)
    }
    files = list(sources)
    known = [(place, text) for place, text in noted.items() if place not in unfinished]
    known = [(place, text) for place, text in known if sources[place[0]].text[place[1] : place[2]].decode() != text]
    return sorted(known, key=lambda one: (files.index(one[0][0]), one[0][1], -one[0][2]))


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
