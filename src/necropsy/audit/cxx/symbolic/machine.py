"""The state of one run through a kernel: what each variable holds, and what is known; what all parts of it share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Class, Function, Kernel
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.symbolic.conditions import assumed
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.judging import Judge
from necropsy.audit.cxx.symbolic.objects import (
    CONTEXT,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Object,
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
        self.judgements: dict[str, tuple[str, ...]] = {}
        """Tensors that hold the result of a comparison: of which others."""
        self.asked_others = False
        """Code that is not known was given the context."""
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
        """Count a node. Raises TooLongError where there were too many."""
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
