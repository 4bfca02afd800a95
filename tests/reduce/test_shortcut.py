"""The first guess of ``necropsy reduce``: the calls on the stack alone."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Mapping

from necropsy.reduce.observed_values import SEEN, Observe
from necropsy.reduce.program import Program
from necropsy.reduce.python_source import compiles
from necropsy.reduce.shortcut import Stack, calls_on_the_stack

SCRIPT = """\
import ctypes
import logging
from rows import read

log = logging.getLogger("a")
LIBRARY = ctypes.CDLL("native.so")
LIBRARY.gather.argtypes = [ctypes.c_void_p]
LIBRARY.other.argtypes = [ctypes.c_long]


class Table:
    def __init__(self, size):
        self.size = size
        self.seen = []

    def install(self):
        LIBRARY.install(self.size)

    def look(self, indices):
        self.seen.append(len(indices))
        return LIBRARY.gather(bytes(indices))


def main():
    table = Table(5)
    table.install()
    log.info("reading")
    for row in read("rows.csv"):
        if row:
            table.look(row)
    return table


if __name__ == "__main__":
    main()
"""
ROWS = "def read(path):\n    with open(path) as file:\n        return [line.encode() for line in file]\n"
BARE = """\
import ctypes

LIBRARY = ctypes.CDLL("native.so")
LIBRARY.gather.argtypes = [ctypes.c_void_p]


class Table:
    def __init__(self, size):
        pass

    def look(self, indices):
        return LIBRARY.gather(b'9')


def main():
    table = Table(5)
    table.look(b'9')


main()
"""


def line_of(text: str) -> int:
    return 1 + SCRIPT[: SCRIPT.index(text)].count("\n")


class Plain(ast.NodeTransformer):
    """Takes the notes out of an instrumented program."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[1] if isinstance(node.func, ast.Name) and node.func.id == SEEN else node


def observing(literals: Mapping[str, str]) -> Observe:
    """``literals``: the values of expressions by their text, in the order of the computation."""

    def observe(instrumented: Program) -> dict[int, str]:
        numbers = {}
        for data in instrumented.files.values():
            for node in ast.walk(ast.parse(data)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == SEEN:
                    number = ast.literal_eval(node.args[0])
                    numbers[ast.unparse(Plain().visit(copy.deepcopy(node.args[1])))] = number
        return {numbers[expression]: literal for expression, literal in literals.items()}

    return observe


def candidates(script: str, stack: Stack, literals: Mapping[str, str], *, is_cheap: bool = True) -> list[Program]:
    """All that is tried."""
    program = Program({"a.py": script.encode(), "rows.py": ROWS.encode()}, "a.py")
    steps = calls_on_the_stack(observing(literals), lambda: stack, is_cheap=is_cheap)(program)
    found: list[Program] = []
    with contextlib.suppress(StopIteration):
        found.append(next(steps))
        while True:
            found.append(steps.send(False))
    return found


STACK = [("a.py", line_of("return LIBRARY")), ("a.py", line_of("table.look")), ("a.py", line_of("    main()"))]


def test_the_first_candidate_has_the_calls_and_what_they_need_by_name() -> None:
    found = candidates(SCRIPT, STACK, {"row": "b'9'", "bytes(indices)": "b'9'"})
    bare, with_calls, with_blocks = (one.files["a.py"].decode() for one in found)
    assert bare == BARE
    assert "table.install()" in with_calls
    assert "self.size = size" in with_calls
    assert "for row" not in with_calls
    assert "for row" in with_blocks
    assert all(compiles(data) for one in found for data in one.files.values())


def test_where_one_run_does_not_decide_only_one_is_tried() -> None:
    assert len(candidates(SCRIPT, STACK, {"row": "b'9'"}, is_cheap=False)) == 1


def test_what_the_call_returned_before_is_not_put_in_its_place() -> None:
    script = "def f(x):\n    return len(str(x))\n\n\nf(1)\n"
    # `str(x)` was computed once more than `len(str(x))`: that was not finished.
    found = candidates(script, [("a.py", 2), ("a.py", 5)], {"len(str(x))": "1", "str(x)": "'new'"})
    assert found[0].files["a.py"] == b"def f(x):\n    return len('new')\n\n\nf(1)\n"


def test_a_thread_has_to_be_started_by_something_else() -> None:
    assert not candidates(SCRIPT, STACK[:2], {})
