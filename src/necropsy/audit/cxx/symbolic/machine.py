"""The state of one run through a kernel: what each variable holds, and what is known; what all parts of it share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Class, Function, Kernel
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.symbolic.conditions import assumed, joined, split
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.judging import Judge
from necropsy.audit.cxx.symbolic.objects import (
    CONTEXT,
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Object,
    Pointer,
    Sequence,
    Shape,
    Tensor,
    Value,
)
from necropsy.audit.cxx.symbolic.polynomials import ZERO, Atoms, Poly
from necropsy.audit.cxx.types import Type, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_NODES = 60_000
MOST_SECONDS = 2.0
_WIDE = frozenset(
    [
        "int64_t",
        "int64",
        "uint64_t",
        "uint64",
        "size_t",
        "ptrdiff_t",
        "ssize_t",
        "long",
        "Index",
        "DenseIndex",
        "Eigen::Index",
        "Eigen::DenseIndex",
        "intptr_t",
    ]
)
_NARROW = frozenset(
    [
        "int",
        "int32_t",
        "int32",
        "uint32_t",
        "uint32",
        "unsigned",
        "short",
        "int16_t",
        "int16",
        "uint16_t",
        "uint16",
        "int8_t",
        "int8",
        "uint8_t",
        "uint8",
        "char",
    ]
)
_FLOATS = frozenset(["float", "double", "half", "Eigen::half", "bfloat16", "complex64", "complex128", "std::complex"])
_SEQUENCES = frozenset(["vector", "InlinedVector", "deque", "FixedArray"])
_TEXTS = frozenset(["string", "tstring"])


class TooLongError(Exception):
    """The limit of what is looked at in one function is reached."""


@dataclass
class State:
    """What holds at one place of one path."""

    facts: Facts
    cells: dict[int, Value] = field(default_factory=dict)
    is_open: bool = False
    """Something that is not known decided whether the path gets here."""

    def copy(self) -> State:
        """For a branch."""
        return State(self.facts.copy(), dict(self.cells), self.is_open)


@dataclass
class Frame:
    """One call of a function."""

    function: Function
    names: dict[str, int]
    this: Value = UNKNOWN
    returns: list[tuple[State, Value]] = field(default_factory=list)
    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)


class Machine(ABC):
    """Runs one kernel. The parts that make it are classes of their own modules, each derived from the one before."""

    def __init__(self, look: Look, judge: Judge, kernel: Kernel | None) -> None:
        self.look = look
        self.unit = look.unit
        self.judge = judge
        self.kernel = kernel
        self.atoms = Atoms()
        self.state = State(Facts(self.atoms))
        self.frames: list[Frame] = []
        self.next_cell = 0
        self.nodes = 0
        self.until = time.process_time() + MOST_SECONDS

    @property
    def frame(self) -> Frame:
        """The innermost call."""
        return self.frames[-1]

    @property
    def facts(self) -> Facts:
        """What is known here."""
        return self.state.facts

    @abstractmethod
    def value(self, node: Node | None) -> Value:
        """What an expression is; what it does is done."""

    @abstractmethod
    def run(self, node: Node) -> None:
        """Run a statement."""

    @abstractmethod
    def call(self, function: Function, arguments: list[Value], this: Value, node: Node) -> Value:
        """Inline a call of a function of the project."""

    def step(self) -> None:
        """Count a node.

        Raises:
            TooLongError: there were too many.

        """
        self.nodes += 1
        if self.nodes > MOST_NODES or (self.nodes % 256 == 0 and time.process_time() > self.until):
            raise TooLongError("the function and what it calls are too long to follow every path")

    def text(self, node: Node | None) -> str:
        """The text of a node, on one line."""
        return " ".join(self.frame.function.text(node).split()) if node is not None else ""

    def new(self, value: Value) -> int:
        """A new cell."""
        self.next_cell += 1
        self.state.cells[self.next_cell] = value
        return self.next_cell

    def held(self, value: Value) -> Value:
        """What a pointer to a cell points to; other values as they are."""
        for _ in range(4):
            if not isinstance(value, Address):
                break
            value = self.state.cells.get(value.cell, UNKNOWN)
        return value

    def unknown(self, text: str, low: int | None = None, kind: str = "whole") -> Number:
        """A number that is not known."""
        return Number(Poly.atom(self.atoms.fresh("unknown", text, low)), kind)

    def number(self, value: Value, text: str) -> Number:
        """As a number."""
        inner = self.held(value)
        return inner if isinstance(inner, Number) else self.unknown(text, kind="")

    def plain(self, one: Poly) -> Poly:
        """With all that is known to be equal."""
        return self.facts.plain(one)

    def assume(self, condition: Condition, *, holds: bool = True) -> None:
        """From here on it holds."""
        self.state.facts = assumed(self.state.facts, condition, holds=holds)

    @property
    def is_dead(self) -> bool:
        """No call gets here."""
        return self.state.facts.is_dead

    def die(self) -> None:
        """The path ends."""
        self.state.facts.is_dead = True

    def sizes(self) -> Sizes:
        """Constants, as they are known here."""
        return Sizes(self.unit, self.frame.bound, self.frame.function.qualified)

    # Types

    def kind_of(self, type_: Type) -> str:
        """Of which kind numbers of this type are."""
        name = self.frame.bound.get(type_.name, type_.name) if self.frames else type_.name
        name = parsed(name).name
        words = set(name.removeprefix("std::").split())
        if words & _FLOATS:
            return "float"
        if words & _WIDE:
            return "whole"
        return "whole32" if words & _NARROW else ""

    def from_type(self, type_: Type, text: str, known: str = "") -> Value:
        """What a variable of this type holds, of which nothing else is known."""
        last = type_.last
        kind = self.kind_of(type_)
        if type_.extents:
            size = self.sizes().value(type_.extents[0]) if type_.extents[0] else None
            return Sequence(
                Poly.of(size) if size is not None else self.unknown(f"the size of {text}", 0).poly,
                self.from_type(Type(type_.name, type_.arguments, extents=type_.extents[1:]), text)
                if len(type_.extents) > 1
                else UNKNOWN,
                text,
                is_fixed=True,
            )
        if last in {"OpKernelContext", "OpKernelConstruction"}:
            return CONTEXT
        if last == "Tensor":
            name = known or f"the tensor `{text}` ({self.next_cell})"
            return Tensor(name, Shape(name))
        if last in {"TensorShape", "PartialTensorShape"}:
            return Shape(f"the shape `{text}` ({self.next_cell})")
        if type_.pointers:
            return UNKNOWN
        if kind:
            return self.unknown(text, kind=kind)
        if last in _SEQUENCES or last in _TEXTS:
            return Sequence(self.unknown(f"the size of {text}", 0).poly, UNKNOWN, text)
        if last == "array" and len(type_.arguments) == 2:
            size = self.sizes().value(type_.arguments[1])
            if size is not None:
                return Sequence(Poly.of(size), UNKNOWN, text, is_fixed=True)
        return UNKNOWN

    def fresh_of(self, type_: Type, text: str) -> Value:
        """What a variable of this type holds that was just made without a value."""
        if type_.pointers or type_.extents:
            return self.from_type(type_, text)
        if type_.last in {"TensorShape", "PartialTensorShape"}:
            return Shape(f"the shape `{text}` ({self.next_cell})", ())
        if type_.last in _SEQUENCES or type_.last in _TEXTS:
            return Sequence(ZERO, UNKNOWN, text)
        cls = self.unit.class_named(type_.name, self.frame.function.qualified)
        if cls is not None and cls.kind != "union":
            return self.object_of(cls)
        return self.from_type(type_, text)

    def object_of(self, cls: Class, depth: int = 0) -> Object:
        """An object whose members are not known."""
        made = Object(cls)
        for each in cls.bases if depth < 4 else ():
            base = self.unit.class_named(each.name, cls.qualified)
            if base is not None and base is not cls:
                made.members.update(self.object_of(base, depth + 1).members)
        for one in cls.fields:
            if one.is_static:
                continue
            value = self.from_type(one.type, one.name)
            if one.default is not None and isinstance(value, Number):
                number = self.sizes().value(one.default)
                value = Number(Poly.of(number), value.kind) if number is not None else value
            made.members[one.name] = self.new(value)
        return made

    # Paths

    def meet(self, states: list[State]) -> State:
        """What all paths that are not dead have in common."""
        alive = [each for each in states if not each.facts.is_dead]
        if not alive:
            made = states[0]
            made.facts.is_dead = True
            return made
        made = alive[0]
        if len(alive) == 1:
            return made
        facts = joined([each.facts for each in alive])
        cells = {}
        for cell, value in made.cells.items():
            others = [each.cells.get(cell, UNKNOWN) for each in alive[1:]]
            if all(each == value for each in others):
                cells[cell] = value
                continue
            cells[cell] = merged = self._merged([value, *others], facts)
            if isinstance(merged, Number):
                self._choice(merged.poly, alive, [value, *others], facts)
        return State(facts, cells, any(each.is_open for each in alive))

    def _choice(self, merged: Poly, alive: list[State], values: list[Value], facts: Facts) -> None:
        """The paths have set the number to different constants: the constant says which path it was."""
        sets = [_choices(each) for each in values]
        for state, value, own in zip(alive, values, sets, strict=True):
            others = [each for each in sets if each is not own]
            if own is None or None in others or any(own & each for each in others if each is not None):
                continue
            if len(own) == 1:
                split(facts, state.facts, Condition("equal", merged.plus(-min(own))), holds=True)
                continue
            for asked, holds, more in state.facts.later:  # decided earlier on this path
                poly = asked.poly if isinstance(asked, Condition) and asked.op == "equal" else None
                if poly is not None and isinstance(value, Number) and holds:
                    constant = (poly - value.poly).constant
                    if constant is not None:
                        facts.later = (*facts.later, (Condition("equal", merged.plus(constant)), True, more))
                        split(facts, state.facts, Condition("equal", merged.plus(constant)), holds=True)

    def _merged(self, values: list[Value], facts: Facts) -> Value:
        first = values[0]
        if all(isinstance(each, Number) for each in values):
            polys = [each.poly for each in values if isinstance(each, Number)]
            plain = {facts.plain(each) for each in polys}
            if len(plain) == 1:
                return first
            constants = [each.constant for each in plain]
            known = [each for each in constants if each is not None]
            atom = self.atoms.fresh("unknown", "a number")
            sets = [_choices(each) for each in values]
            if len(known) == len(constants):
                atom.low, atom.high = min(known), max(known)
            if None not in sets:
                atom.choices = frozenset().union(*(each for each in sets if each is not None))
            kinds = {each.kind for each in values if isinstance(each, Number)}
            return Number(Poly.atom(atom), kinds.pop() if len(kinds) == 1 else "whole")
        if all(isinstance(each, Condition) for each in values):
            return OPEN
        if all(isinstance(each, Sequence) for each in values):
            sizes = {each.size for each in values if isinstance(each, Sequence)}
            size = sizes.pop() if len(sizes) == 1 else self.unknown("a size", 0).poly
            same = isinstance(first, Sequence) and all(
                isinstance(each, Sequence) and each.element == first.element for each in values
            )
            element = first.element if same and isinstance(first, Sequence) else UNKNOWN
            return Sequence(size, element, getattr(first, "text", ""))
        if all(isinstance(each, Tensor) for each in values):
            name = f"a tensor ({self.atoms.count}, {self.next_cell})"
            self.next_cell += 1
            return Tensor(name, Shape(name))
        if all(isinstance(each, Shape) for each in values):
            self.next_cell += 1
            return Shape(f"a shape ({self.next_cell})")
        return UNKNOWN

    def forget(self, value: Value, depth: int = 0) -> None:
        """Code that is not known was given this to change: nothing is known of it any more."""
        if isinstance(value, Address) and depth < 3:
            held = self.state.cells.get(value.cell, UNKNOWN)
            self.forget(held, depth + 1)
            if not isinstance(held, Object):
                self.state.cells[value.cell] = self.forgotten(held)
        elif isinstance(value, Object) and depth < 3:
            for cell in value.members.values():
                self.forget(Address(cell), depth + 1)

    def forgotten(self, value: Value) -> Value:
        """Another value of the same sort, of which nothing is known."""
        if isinstance(value, Number):
            return self.unknown("a number", kind=value.kind)
        if isinstance(value, Sequence):
            return Sequence(
                value.size if value.is_fixed else self.unknown("a size", 0).poly, UNKNOWN, value.text, value.is_fixed
            )
        if isinstance(value, Tensor | Shape):
            self.next_cell += 1
            name = f"a tensor ({self.next_cell})"
            return Tensor(name, Shape(name)) if isinstance(value, Tensor) else Shape(name)
        if isinstance(value, Condition):
            return OPEN
        if isinstance(value, Object | Pointer):
            return value if isinstance(value, Object) else UNKNOWN
        return value if value is CONTEXT else UNKNOWN

    # Shapes

    def rank_of(self, shape: Shape) -> Poly:
        """How many dimensions."""
        return Poly.of(len(shape.dims)) if shape.dims is not None else self.atoms.rank(shape.name)

    def count_of(self, shape: Shape) -> Poly:
        """How many elements."""
        if shape.dims is not None:
            total = Poly.of(1)
            for one in shape.dims:
                total = self.capped(total * one)
            return total
        return self.atoms.number_of(shape.name)

    def dim_of(self, shape: Shape, which: Poly) -> Poly:
        """One dimension."""
        if shape.dims is not None:
            number = self.plain(which).constant
            if number is not None and 0 <= number < len(shape.dims):
                return shape.dims[number]
            return self.unknown("a dimension", 0).poly
        return self.atoms.dim(self.facts.shape(shape.name), self.plain(which))

    def capped(self, one: Poly) -> Poly:
        """Itself, or an unknown number where it became too long."""
        return one if len(one.terms) <= 40 and one.degree <= 8 else self.unknown("a long expression").poly


def _choices(value: Value) -> frozenset[int] | None:
    """The few constants that a number can be."""
    if not isinstance(value, Number):
        return None
    constant, single = value.poly.constant, value.poly.single
    if constant is not None:
        return frozenset({constant})
    return single.choices if single is not None else None
