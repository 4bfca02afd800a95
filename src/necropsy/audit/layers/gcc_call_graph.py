"""g++'s ``-fcallgraph-info=su,da`` file -> the functions with their frames, and the deepest path below one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property

from necropsy.audit.depth import CallDepths
from necropsy.formats.call_graph import FunctionCalls

_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "([^"]*)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_PLACE = re.compile(r"(.+):(\d+):\d+")
_BYTES = re.compile(r"(\d+) bytes \((.+)\)")
_INDIRECT = "__indirect_call"
_MOST = 100_000


@dataclass(frozen=True)
class GccFunction:
    """One function of the object file: a template has one for each of its instances."""

    name: str
    """``FooOp::Compute``, without namespaces and template arguments; ``lambda``."""
    path: str
    line: int
    """Of its name, in ``path``."""
    bytes: int
    is_dynamic: bool
    """It takes more stack, known only at run time."""


@dataclass(frozen=True)
class GccPath:
    """The deepest path of calls below a function."""

    bytes: int
    steps: tuple[GccFunction, ...]
    indirect: int
    """Calls below the function with unknown targets."""


class GccCallGraph:
    """The functions of one object file; those without a frame belong to other files."""

    def __init__(self, text: str, directory: str) -> None:
        self.functions: list[GccFunction] = []
        self._numbers: dict[str, int] = {}
        for title, label in _NODE.findall(text):
            parts = label.split("\\n")
            place = _PLACE.fullmatch(parts[1]) if len(parts) > 1 else None
            size = _BYTES.match(parts[2]) if len(parts) > 2 else None
            if place is not None and size is not None:
                path = os.path.realpath(os.path.join(directory, place[1]))  # noqa: PTH118 - the label may be anything
                self._numbers[title] = len(self.functions)
                self.functions.append(
                    GccFunction(short(parts[0]), path, int(place[2]), int(size[1]), "dynamic" in size[2])
                )
        self._called: dict[int, dict[int, None]] = {}
        self._indirect: dict[int, int] = {}
        for source, target in _EDGE.findall(text):
            at = self._numbers.get(source)
            to = self._number(target)
            if at is not None and to is not None:
                self._called.setdefault(at, {})[to] = None
            elif at is not None and target == _INDIRECT:
                self._indirect[at] = self._indirect.get(at, 0) + 1

    def _number(self, title: str) -> int | None:
        """Destructors D1 and D2 are one if only one has code."""
        found = self._numbers.get(title)
        if found is None and re.search(r"D[12]E", title):
            found = self._numbers.get(re.sub(r"D([12])E", lambda one: f"D{3 - int(one[1])}E", title))
        return found

    def named(self, name: str, path: str, line: int) -> list[int]:
        """The instances of the function ``name`` in whose body, or at whose head, ``line`` of ``path`` is."""
        own = name.rpartition("::")[2].replace("operator()", "operator")
        real = os.path.realpath(path)
        found = [
            number
            for number, one in enumerate(self.functions)
            if one.line <= line and one.path == real and one.name.rpartition("::")[2] == own
        ]
        nearest = max((self.functions[number].line for number in found), default=0)
        return [number for number in found if self.functions[number].line == nearest]

    def deepest(self, root: int) -> GccPath:
        """The deepest path from a function on; of a circle of calls, one turn counts."""
        depths = self._depths
        bytes_, steps = depths.deepest(root)
        indirect = sum(self._indirect.get(one, 0) for one in depths.below(root))
        return GccPath(bytes_, tuple(self.functions[one] for one in steps), indirect)

    def turn(self, numbers: list[int]) -> int | None:
        """Bytes that one turn of the shortest recursion through one of these functions takes."""
        circles = [one for one in self._depths.circles() if set(one).intersection(numbers)]
        return min((self._depths.turn(one) for one in circles), default=None)

    @cached_property
    def _depths(self) -> CallDepths:
        depths = CallDepths(
            frame=lambda one: self.functions[one].bytes,
            calls=lambda one: FunctionCalls(called=tuple(self._called.get(one, ()))),
            most=_MOST,
        )
        depths.reach(range(len(self.functions)))
        return depths


def short(label: str) -> str:
    """``virtual void ns::FooOp<T>::Compute(Context*) [with T = int]`` is ``FooOp::Compute``."""
    if "<lambda" in label:
        return "lambda"
    text = label.partition(" [with ")[0].replace("operator()", "operator").replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    words = text.partition("(")[0].split()
    return "::".join(words[-1].split("::")[-2:]) if words else label
