"""What an expression can be: numbers, conditions, tensors, shapes, views, pointers, sequences, objects, lambdas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.polynomials import Poly

if TYPE_CHECKING:
    from necropsy.audit.cxx.model import Class, Function

WHOLE = frozenset({"whole", "whole32"})


@dataclass(frozen=True)
class Value:
    """Anything; on its own: nothing is known of it."""


UNKNOWN = Value()


@dataclass(frozen=True)
class Number(Value):
    """A number. ``kind``: ``whole``, ``whole32`` (computed in at most 32 bits), ``float``, or ``""`` if not known."""

    poly: Poly
    kind: str = "whole"


@dataclass(frozen=True)
class Condition(Value):
    """A condition: ``op`` is ``least`` (``poly >= 0``), ``equal``, ``and``, ``or``, ``not``, ``same``, ``true``, ...

    ``shapes`` are the two of ``same``, and those that an ``open`` one judges; ``parts`` the inner ones; ``paths`` what
    a helper returned on each of its paths.
    """

    op: str
    poly: Poly | None = None
    parts: tuple[Condition, ...] = ()
    shapes: tuple[str, ...] | None = None
    paths: tuple[Path, ...] = ()

    def negated(self) -> Condition:
        """Not so."""
        return self.parts[0] if self.op == "not" else Condition("not", parts=(self,))


@dataclass(frozen=True, eq=False)
class Path:
    """One way through a helper: what is known at its end, and what it returned."""

    facts: Facts
    value: Condition


TRUE, FALSE, OPEN = Condition("true"), Condition("false"), Condition("open")
"""``OPEN``: not known which."""


@dataclass(frozen=True)
class Shape(Value):
    """A shape. ``dims`` where the code says them; else ``name`` is whose it is."""

    name: str
    dims: tuple[Poly, ...] | None = None


@dataclass(frozen=True)
class Tensor(Value):
    """``name``: ``input 0 (indices)``; ``origin``: ``input``, ``made`` or ``unknown``."""

    name: str
    shape: Shape
    origin: str = "unknown"
    kind: str = ""
    """Of its elements, where the op declares it: ``whole``, ``whole32``, ``float``, ``text``."""


@dataclass(frozen=True)
class View(Value):
    """What ``flat``, ``matrix`` and others make of a tensor; ``width`` is the size of an element in bytes."""

    tensor: Tensor
    extents: tuple[Poly, ...]
    kind: str = ""
    text: str = ""
    width: Poly | None = None


@dataclass(frozen=True)
class Pointer(Value):
    """Into a buffer of ``size`` elements, ``offset`` elements behind its start."""

    size: Poly
    offset: Poly
    text: str
    tensor: Tensor | None = None
    kind: str = ""
    element: Value = UNKNOWN
    width: Poly | None = None


@dataclass(frozen=True)
class Sequence(Value):
    """A vector, array or string in memory; ``element`` is what is known of each of its elements."""

    size: Poly
    element: Value = UNKNOWN
    text: str = ""
    is_fixed: bool = False
    owner: str = ""
    """Of an attribute's list: its name."""
    is_list: bool = False
    """A list of input or output tensors."""
    width: Poly | None = None
    items: tuple[Value, ...] = ()
    """Each element, where the code lists them."""


@dataclass(frozen=True)
class Address(Value):
    """A pointer to, or iterator at, something with a name of its own: the number of its cell."""

    cell: int


@dataclass(frozen=True, eq=False)
class Object(Value):
    """An object of a class of the project: the cells of its members."""

    cls: Class | None
    members: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Lambda(Value):
    """A lambda, with the names that it sees."""

    function: Function
    names: dict[str, int]
    this: Value


@dataclass(frozen=True)
class Context(Value):
    """``OpKernelContext`` or ``OpKernelConstruction``."""


@dataclass(frozen=True)
class Result(Value):
    """A Status; the condition says whether it is OK."""

    is_ok: Condition


CONTEXT = Context()
