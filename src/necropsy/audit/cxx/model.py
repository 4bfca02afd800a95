"""What the front end gives of a C++ source: files, functions, classes, constants, registered ops and their kernels.

Everything is frozen; nodes are tree-sitter's, and belong to the tree of the file that ``file`` names.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from necropsy.audit.cxx.macros import Span
from necropsy.audit.cxx.types import Type

if TYPE_CHECKING:
    from tree_sitter import Node, Tree


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file as its author sees it; lines and columns from 1 on, columns count characters.

    ``start`` and ``end`` are offsets of bytes in the file itself, for repairs. ``macro`` names the macro whose
    expansion it lies in: there, nothing may be edited, and ``start`` and ``end`` enclose the whole call of the macro
    unless the text stands in one of its arguments.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    start: int
    end: int
    macro: str | None = None


@dataclass(frozen=True, eq=False)
class SourceFile:
    """A file after the preprocessor. Nodes have offsets in ``text``; ``place`` finds them in ``original``."""

    path: str
    original: bytes
    text: bytes
    spans: tuple[Span, ...]
    tree: Tree
    is_header: bool

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the original, without line ends."""
        return [one.rstrip("\r") for one in self.original.decode("utf-8", "replace").split("\n")]

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [0], self.original.find(b"\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.original.find(b"\n", at + 1)
        return starts

    @cached_property
    def _span_starts(self) -> list[int]:
        return [one.start for one in self.spans]

    def span_at(self, offset: int) -> Span | None:
        """The expansion that wrote the byte at this offset of ``text``."""
        number = bisect.bisect_right(self._span_starts, offset) - 1
        return self.spans[number] if number >= 0 and offset < self.spans[number].end else None

    def source_offset(self, offset: int, *, is_end: bool = False) -> int:
        """From an offset in ``text`` to one in ``original``; ``is_end``: of what ends before it."""
        inside = offset - 1 if is_end and offset else offset
        number = bisect.bisect_right(self._span_starts, inside) - 1
        if number < 0:
            return offset
        span = self.spans[number]
        if inside >= span.end:
            return offset - span.end + span.source_end
        for to, at, size in span.anchors:
            if to <= inside < to + size:
                return at + offset - to
        return span.source_end if is_end else span.source_start

    def place(self, node: Node) -> Place:
        """Where a node of this file's tree stands in the file."""
        return self.place_of(node.start_byte, node.end_byte)

    def place_of(self, start: int, end: int) -> Place:
        """As ``place``, for offsets in ``text``."""
        span = self.span_at(start) or (self.span_at(end - 1) if end > start else None)
        first, last = self.source_offset(start), self.source_offset(end, is_end=True)
        last = max(first, last)
        line, column = self._line_and_column(first)
        end_line, end_column = self._line_and_column(last)
        return Place(
            self.path, line, column, end_line, end_column, first, last, span.macro if span is not None else None
        )

    def _line_and_column(self, offset: int) -> tuple[int, int]:
        number = bisect.bisect_right(self._starts, offset) - 1
        before = self.original[self._starts[number] : offset]
        return number + 1, len(before.decode("utf-8", "replace")) + 1

    def text_of(self, node: Node) -> str:
        """The preprocessed text of a node."""
        return self.text[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def line_text(self, line: int) -> str:
        """The original line, without indentation."""
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of a function; ``name`` is empty where it has none."""

    name: str
    type: Type
    default: str | None = None
    is_pack: bool = False


@dataclass(frozen=True, eq=False)
class TemplateParameter:
    """``typename T``, or ``int N = 4`` with its type."""

    name: str
    type: Type | None = None
    """None for a type parameter."""
    default: str | None = None
    is_pack: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """A function with a body, or a lambda.

    ``name`` is the last part (``Compute``, ``~Node``, ``operator()``, the variable that a lambda initialises);
    ``qualified`` has namespaces and classes. Lambdas are functions of their own: ``outer`` is the one around them.
    """

    name: str
    qualified: str
    file: SourceFile
    node: Node
    """``function_definition`` or ``lambda_expression``."""
    body: Node
    """``compound_statement`` (of ``= default`` and declarations there is no Function)."""
    parameters: tuple[Parameter, ...] = ()
    returns: Type | None = None
    class_name: str | None = None
    """The qualified name of its class, as in ``Unit.classes``; it may be one that was not read."""
    template: tuple[TemplateParameter, ...] = ()
    """Of the function and of the templates around it, outermost first."""
    is_lambda: bool = False
    captures: str = ""
    """A lambda's, without brackets: ``&``, ``=``, ``this, &sum``."""
    outer: Function | None = None
    is_static: bool = False
    is_virtual: bool = False
    initializers: Node | None = None
    """A constructor's ``field_initializer_list``."""

    @cached_property
    def place(self) -> Place:
        """From the head to the end of the body."""
        return self.file.place(self.node)

    @property
    def is_constructor(self) -> bool:
        """Of its class."""
        return self.class_name is not None and self.name == self.class_name.rpartition("::")[2]

    @property
    def is_destructor(self) -> bool:
        """Of its class."""
        return self.name.startswith("~")

    @property
    def least(self) -> int:
        """With how many arguments it can be called at least."""
        return sum(one.default is None and not one.is_pack for one in self.parameters)

    @property
    def most(self) -> int | None:
        """And at most; None for a parameter pack."""
        return None if any(one.is_pack for one in self.parameters) else len(self.parameters)

    def text(self, node: Node) -> str:
        """The preprocessed text of a node in it."""
        return self.file.text_of(node)


@dataclass(frozen=True, eq=False)
class Field:
    """A data member."""

    name: str
    type: Type
    file: SourceFile
    node: Node
    default: str | None = None
    is_static: bool = False

    @cached_property
    def place(self) -> Place:
        """The whole declaration."""
        return self.file.place(self.node)


@dataclass(frozen=True, eq=False)
class Class:
    """A class, struct or union with its members; of a specialisation, ``arguments`` are what it is for."""

    name: str
    qualified: str
    kind: str
    file: SourceFile
    node: Node
    fields: tuple[Field, ...] = ()
    bases: tuple[Type, ...] = ()
    template: tuple[TemplateParameter, ...] = ()
    arguments: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    """The names of all methods that it declares, with ``~Name`` for a destructor."""
    defaulted: tuple[str, ...] = ()
    """Of these, the ones with ``= default``."""

    @cached_property
    def place(self) -> Place:
        """The whole declaration."""
        return self.file.place(self.node)

    @property
    def own_destructor(self) -> bool:
        """It declares one that is not defaulted; its body, if it was read, is a function of the unit."""
        name = f"~{self.name}"
        return name in self.declared and name not in self.defaulted


@dataclass(frozen=True, eq=False)
class Argument:
    """An input or output of a registered op: ``values: T``, ``lengths: N * int64``."""

    name: str
    type: str
    """``float``, or the attribute that gives it."""
    number: str | None = None
    """The attribute that says how many tensors it is; None: one tensor, or a list whose types ``type`` gives."""
    is_ref: bool = False


@dataclass(frozen=True, eq=False)
class Attribute:
    """An attribute of a registered op: ``N: int >= 1 = 4``, ``T: {float, double}``."""

    name: str
    type: str
    """``int``, ``list(int)``, ``type``, ``{float, double}``, ..."""
    minimum: int | None = None
    """Of an int, its least value; of a list, its least length."""
    allowed: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, eq=False)
class RegisteredOp:
    """A ``REGISTER_OP`` with what follows it."""

    name: str
    place: Place
    file: SourceFile
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Argument, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    shape_function: str | None = None
    """The text of SetShapeFn's argument; None where it has none."""
    is_stateful: bool = False

    def attribute(self, name: str) -> Attribute | None:
        """Its attribute of this name."""
        return next((one for one in self.attributes if one.name == name), None)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A ``REGISTER_KERNEL_BUILDER`` with the class that it names; its functions where they were read."""

    op_name: str
    class_name: str
    """Without template arguments."""
    arguments: tuple[str, ...]
    """The template arguments of the class: ``("CPUDevice", "float")``."""
    device: str
    place: Place
    op: RegisteredOp | None = None
    cls: Class | None = None
    constructor: Function | None = None
    compute: Function | None = None
    """``Compute``, or ``ComputeAsync``; of a base class where the class itself has none."""
    host_memory: tuple[str, ...] = ()
    constraints: tuple[tuple[str, str], ...] = ()
    """``("T", "float")`` of ``TypeConstraint<float>("T")``."""

    @property
    def is_async(self) -> bool:
        """Its function is ``ComputeAsync``."""
        return self.compute is not None and self.compute.name == "ComputeAsync"


@dataclass(frozen=True, eq=False)
class Trouble:
    """A part that could not be read or analysed, and why: becomes a gap."""

    part: str
    why: str


@dataclass(frozen=True, eq=False)
class Unit:
    """A source with its project headers. ``files`` has the headers first, the source itself last."""

    path: str
    files: tuple[SourceFile, ...]
    functions: tuple[Function, ...] = ()
    classes: dict[str, tuple[Class, ...]] = field(default_factory=dict)
    """By qualified name; several for a template with specialisations."""
    constants: dict[str, str] = field(default_factory=dict)
    """Expressions by qualified name: constexpr and const variables, static members, enumerators; see ``Sizes``."""
    aliases: dict[str, tuple[Type, tuple[TemplateParameter, ...]]] = field(default_factory=dict)
    """``using`` and ``typedef`` by qualified name, with their template parameters."""
    ops: tuple[RegisteredOp, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    troubles: tuple[Trouble, ...] = ()

    @property
    def source(self) -> SourceFile:
        """The source itself, behind its headers."""
        return self.files[-1]

    @cached_property
    def _by_name(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for one in self.functions:
            found.setdefault(one.name, []).append(one)
        return found

    def named(self, name: str) -> tuple[Function, ...]:
        """All functions with this last name."""
        return tuple(self._by_name.get(name, ()))

    @cached_property
    def template_uses(self) -> dict[str, list[tuple[tuple[str, ...], Function | None]]]:
        """Filled by ``frames.bindings``: arguments with which a template is written, and the function around them."""
        return {}

    @cached_property
    def _classes_by_name(self) -> dict[str, list[Class]]:
        found: dict[str, list[Class]] = {}
        for several in self.classes.values():
            for one in several:
                found.setdefault(one.name, []).append(one)
        return found

    def class_named(self, name: str, near: str = "") -> Class | None:
        """The class that ``name`` means in the scope ``near``; of a template with specialisations, the primary one."""
        plain = name.rpartition("::")[2]
        several = self._classes_by_name.get(plain, ())
        fitting = [one for one in several if one.qualified == name or one.qualified.endswith(f"::{name}")] or (
            [] if "::" in name else list(several)
        )
        fitting.sort(key=lambda one: (bool(one.arguments), not near.startswith(one.qualified.rpartition("::")[0])))
        return fitting[0] if fitting else None

    def methods(self, cls: Class) -> tuple[Function, ...]:
        """Those functions of the class whose bodies were read."""
        return tuple(one for one in self.functions if one.class_name == cls.qualified and not one.is_lambda)

    def lambdas(self, function: Function) -> tuple[Function, ...]:
        """The lambdas directly in a function."""
        return tuple(one for one in self.functions if one.outer is function)
