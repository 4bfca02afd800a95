"""TensorFlow's shapes: how they are made, changed and compared, and what their methods need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.symbolic.expressions import LIMITS
from necropsy.audit.cxx.symbolic.objects import (
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Result,
    Sequence,
    Shape,
    Tensor,
    Value,
)
from necropsy.audit.cxx.symbolic.operators import Operators
from necropsy.audit.cxx.symbolic.polynomials import ZERO, Poly

if TYPE_CHECKING:
    from tree_sitter import Node

    from necropsy.audit.cxx.model import Function

_OK = Result(OPEN)
_RANKS = {"vec": 1, "matrix": 2, "unaligned_vec": 1}
_FLAT = frozenset({"flat", "unaligned_flat", "bit_casted_flat"})
_KINDS = {
    **dict.fromkeys(("int64",), "whole"),
    **dict.fromkeys(("int32",), "whole32"),
    **{name: name for name in LIMITS},
    **dict.fromkeys(("float", "double", "half", "bfloat16", "complex64", "complex128"), "float"),
    "string": "text",
}
_IS = {"IsScalar": 0, "IsVector": 1, "IsMatrix": 2, "IsSquareMatrix": 2}


class Shapes(Operators):
    """What methods of ``TensorShape`` give."""

    def value_as_shape(self, node: Node) -> Value:
        """A shape argument: ``{rows, 3}`` or a TensorShape."""
        if node.type == "initializer_list":
            return self.shape_of_list(node)
        return self.held(self.value(node))

    def shape_of_list(self, node: Node, *, is_new: bool = True) -> Shape:
        """``{rows, 3}``; where it is not new, nothing is allocated for it."""
        dims = []
        for one in node.named_children:
            if one.type == "comment":
                continue
            number = self.number(self.value(one), self.text(one))
            if is_new:
                self.judge.makes(self.at(one), number.poly, self.text(one), "TensorShape")
            dims.append(number.poly)
        return Shape("a shape", tuple(dims))

    def shape_from(self, value: Value, node: Node) -> Shape:
        """A value as a shape."""
        if isinstance(value, Shape):
            return value
        if isinstance(value, Tensor):
            return value.shape
        self.next_cell += 1
        return Shape(f"the shape `{self.text(node)}` ({self.next_cell})")

    def dims_of(self, shape: Shape, rank: int) -> tuple[Poly, ...]:
        """All dimensions of a shape of this rank."""
        return tuple(self.dim_of(shape, Poly.of(at)) for at in range(rank))

    def of_shape(self, call: Call, shape: Shape, tensor: Tensor | None = None) -> Value:
        """A method of ``TensorShape``, or the same of a tensor."""
        name, given = call.name, call.arguments
        if name in {"dims", "rank"}:
            return Number(self.rank_of(shape), "whole32")
        if name in {"NumElements", "num_elements"}:
            return Number(self.count_of(shape))
        if name == "dim_size" and given:
            which = self.number(self.value(given[0]), self.text(given[0])).poly
            self._needs_dim(call.node, shape, which, tensor)
            return Number(self.dim_of(shape, which))
        if name in {"IsSameSize", "SharesBufferWith"} and given:
            other = self.held(self.value(given[0]))
            other = other.shape if isinstance(other, Tensor) else other
            return self.same_shape(shape, other) if isinstance(other, Shape) and name == "IsSameSize" else OPEN
        if name == "dim_sizes":
            return Sequence(self.rank_of(shape), UNKNOWN, "the dimensions")
        values = [self.value(one) for one in given]
        if name in {
            "AddDim",
            "InsertDim",
            "AppendShape",
            "RemoveDim",
            "RemoveLastDims",
            "Clear",
            "set_dim",
        } or name.endswith("WithStatus"):
            self._changed(call, shape, name, values)
            return _OK
        for one in values:
            if isinstance(one, Address) and self.held(one) is UNKNOWN:  # AsProto(&proto)
                self.state.cells[one.cell] = Condition("open", shapes=self.owners([shape]))
        return UNKNOWN

    def _changed(self, call: Call, shape: Shape, name: str, values: list[Value]) -> None:
        last = self.held(values[-1]) if values else UNKNOWN
        if name == "set_dim" and isinstance(last, Number):
            self.judge.makes(self.at(call.node), last.poly, self.text(call.arguments[-1]), "TensorShape")
        cell = self.changed_cell(call.receiver)
        if cell is None:
            return
        self.next_cell += 1
        made = Shape(f"the shape `{self.text(call.receiver)}` ({self.next_cell})")
        first = self.held(values[0]) if values else UNKNOWN
        if name == "Clear":
            made = Shape(made.name, ())
        elif name.startswith("AddDim") and isinstance(first, Number):
            if name == "AddDim":
                self.judge.makes(self.at(call.node), first.poly, self.text(call.arguments[0]), "TensorShape")
            elif shape.dims is not None:
                self.facts.add(first.poly)
            if shape.dims is not None:
                made = Shape(made.name, (*shape.dims, first.poly))
            else:
                rank = self.facts.rank(shape.name)
                if rank is not None and rank < 8:
                    made = Shape(made.name, (*self.dims_of(shape, rank), first.poly))
        elif (
            name.startswith("AppendShape")
            and isinstance(first, Shape)
            and first.dims is not None
            and shape.dims is not None
        ):
            made = Shape(made.name, (*shape.dims, *first.dims))
        elif name.startswith("AppendShape") and shape.dims == () and isinstance(first, Shape):
            made = first
        elif name.startswith("set_dim") and shape.dims is not None and isinstance(first, Number) and len(values) == 2:
            at, number = self.plain(first.poly).constant, self.held(values[1])
            if at is not None and 0 <= at < len(shape.dims) and isinstance(number, Number):
                made = Shape(made.name, (*shape.dims[:at], number.poly, *shape.dims[at + 1 :]))
        self.state.cells[cell] = made

    def _needs_dim(self, node: Node, shape: Shape, which: Poly, tensor: Tensor | None) -> None:
        owner = tensor or Tensor(shape.name, shape, "input" if shape.name.startswith("input") else "unknown")
        plain = self.plain(which)
        if any(atom.kind in {"value", "attribute"} for atom in plain.atoms()):
            self.judge.reach(self.at(node), which, self.rank_of(shape), f"the dimensions of {owner.name}")
            return
        is_compared = plain.constant == 0 and _is_asked(self.frame.function, node)
        for need in (self.rank_of(shape).plus(-1) - which, which):
            if not is_compared:  # of a scalar, it is a number by chance, which the comparison refuses
                self.judge.rank(
                    self.at(node), owner, need, equal=False, case="dimension", method="dim_size", rank=str(plain)
                )
            if need.constant is None and not self.is_dead:
                self.facts.add(need)

    def shape_utils(self, call: Call) -> Value | None:
        """``TensorShapeUtils::IsVector(shape)`` and what is like it."""
        name = call.name
        if call.scope.rpartition("::")[2] != "TensorShapeUtils":
            return None
        raw = [self.value(one) for one in call.arguments]
        values = [self.held(one) for one in raw]
        if name == "MakeShape" and raw:
            self.forget(raw[-1])
        shapes = [one.shape if isinstance(one, Tensor) else one for one in values]
        first = shapes[0] if shapes else UNKNOWN
        if not isinstance(first, Shape):
            return OPEN
        if name in _IS:
            is_rank = Condition("equal", self.rank_of(first).plus(-_IS[name]))
            if name == "IsSquareMatrix":
                square = Condition("equal", self.dim_of(first, ZERO) - self.dim_of(first, Poly.of(1)))
                return Condition("and", parts=(is_rank, square))
            return is_rank
        if name.endswith("OrHigher"):
            return Condition("least", self.rank_of(first).plus(-(_IS.get(name.removesuffix("OrHigher"), 1))))
        return Condition("open", shapes=self.owners(list(values)))


def _is_asked(function: Function, node: Node) -> bool:
    """It is part of the condition of an ``OP_REQUIRES``."""
    at = node.parent
    while at is not None and not at.type.endswith("_statement"):
        called = at.child_by_field_name("function") if at.type == "call_expression" else None
        if called is not None and function.text(called).startswith("OP_REQUIRES"):
            return True
        at = at.parent
    return False
