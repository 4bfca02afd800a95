"""TensorFlow's API: contexts, tensors, views, and what each of their methods needs and gives."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.registrations import string
from necropsy.audit.cxx.symbolic.expressions import LIMITS
from necropsy.audit.cxx.symbolic.objects import (
    OPEN,
    TRUE,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Pointer,
    Result,
    Sequence,
    Shape,
    Tensor,
    Value,
    View,
)
from necropsy.audit.cxx.symbolic.polynomials import ZERO, Poly
from necropsy.audit.cxx.symbolic.shapes import Shapes
from necropsy.audit.cxx.symbolic.witness import EVERYTHING
from necropsy.audit.cxx.types import parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_OK = Result(TRUE)
"""An op has the inputs and attributes that its kernel asks for; where an allocation fails, nothing is looked at."""
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


class Tensors(Shapes):
    """What methods of TensorFlow's classes give."""

    def input(self, node: Node | None) -> Tensor:
        """``input(0)`` or ``input("name")``"""
        value = self.held(self.value(node))
        number = self.plain(value.poly).constant if isinstance(value, Number) else None
        inputs = self.kernel.op.inputs if self.kernel is not None and self.kernel.op is not None else ()
        name = string(self.text(node)) if number is None else None
        if name is not None:
            number = next((at for at, one in enumerate(inputs) if one.name == name), None)
        if number is None:
            if name is None and isinstance(value, Number):
                self.next_cell += 1
                shown = f"one of the inputs ({self.next_cell})"
                return Tensor(shown, Shape(shown))
            shown = f"input {name}" if name is not None else f"input at {self.text(node)}"
            return Tensor(shown, Shape(shown), "input")
        lists = [at for at, one in enumerate(inputs) if one.number is not None or self._is_list(one.type)]
        one = inputs[number] if number < len(inputs) and (not lists or number < lists[0]) else None
        shown = f"input {number}" + (f" ({one.name})" if one is not None else "")
        return Tensor(shown, Shape(shown), "input", _KINDS.get(one.type, "") if one is not None else "")

    def _is_list(self, type_: str) -> bool:
        op = self.kernel.op if self.kernel is not None else None
        attribute = op.attribute(type_) if op is not None else None
        return attribute is not None and attribute.type.startswith("list")

    def of_context(self, call: Call) -> Value:
        """A method of ``OpKernelContext`` or ``OpKernelConstruction``."""
        name, given = call.name, call.arguments
        if name in {"input", "mutable_input"}:
            if len(given) == 2 and name == "input":
                self.assign(given[1], self.input(given[0]), is_pointer=True)
                return _OK
            made = self.input(given[0] if given else None)
            if name == "input":
                return Address(self.new(made))
            return made
        if name in {"input_list", "mutable_input_list", "output_list"} and len(given) == 2:
            shown = string(self.text(given[0])) or self.text(given[0])
            size = self.atoms.get("size", (f"input list {shown}",), f"the number of tensors of {shown}", 0)
            prefix = "input list" if "input" in name else "output list"
            self.assign(given[1], Sequence(Poly.atom(size), UNKNOWN, f"{prefix} {shown}", is_list=True))
            return _OK
        if name == "GetAttr" and len(given) == 2:
            self._attribute(given[0], given[1])
            return _OK
        if name == "allocate_output" and len(given) >= 3:
            return self._allocated(given[1], given[2], is_pointer=True)
        if name in {"allocate_temp", "allocate_persistent"} and len(given) >= 3:
            return self._allocated(given[1], given[2], is_pointer=False)
        if name == "forward_input_or_allocate_output" and len(given) >= 4:
            return self._allocated(given[2], given[3], is_pointer=True)
        if name == "forward_input_or_allocate_temp" and len(given) >= 5:
            return self._allocated(given[3], given[4], is_pointer=False)
        values = [self.value(one) for one in given]
        if name in {"num_inputs", "num_outputs"}:
            op = self.kernel.op if self.kernel is not None else None
            declared = () if op is None else op.inputs if name == "num_inputs" else op.outputs
            if declared and not any(one.number is not None or self._is_list(one.type) for one in declared):
                return Number(Poly.of(len(declared)), "whole32")
            return Number(Poly.atom(self.atoms.get("unknown", (name,), name, 0)), "whole32")
        if name in {"SetStatus", "CtxFailure", "CtxFailureWithWarning"}:
            return UNKNOWN
        if name == "has_input":
            return OPEN
        for one in values:
            self.forget(one)
        if name == "status":
            return Result(Condition("open", shapes=(EVERYTHING,)) if self.asked_others else OPEN)
        return UNKNOWN

    def _allocated(self, shape: Node, into: Node, is_pointer: bool) -> Value:
        made = self.shape_from(self.value_as_shape(shape), shape)
        self.next_cell += 1
        self.assign(
            into, Tensor(f"the tensor made for `{self.text(into)}` ({self.next_cell})", made, "made"), is_pointer
        )
        return _OK

    def assign(self, into: Node, value: Value, is_pointer: bool = False) -> None:
        """What a call writes through a pointer that it was given: ``&tensor``."""
        target = self.value(into)
        if isinstance(target, Address):
            self.state.cells[target.cell] = Address(self.new(value)) if is_pointer else value

    def _attribute(self, name: Node, into: Node) -> None:
        shown = string(self.text(name)) or self.text(name)
        target = self.value(into)
        if not isinstance(target, Address):
            return
        op = self.kernel.op if self.kernel is not None else None
        one = op.attribute(shown) if op is not None else None
        old = self.state.cells.get(target.cell, UNKNOWN)
        type_ = one.type if one is not None else ""
        if type_ == "int" or (not type_ and isinstance(old, Number) and old.kind in {"whole", "whole32"}):
            low = one.minimum if one is not None else None
            if one is not None and one.allowed:
                low = min((int(each) for each in one.allowed if re.fullmatch(r"-?\d+", each)), default=low)
            sort = "attribute" if one is not None else "unknown"  # what is registered elsewhere may be limited there
            atom = self.atoms.get(sort, (shown,), f"attribute {shown}", low)
            kind = old.kind if isinstance(old, Number) and old.kind else "whole"
            self.state.cells[target.cell] = Number(Poly.atom(atom), kind)
        elif type_ == "list(int)" or (not type_ and isinstance(old, Sequence) and "string" not in shown):
            low = max(0, one.minimum or 0) if one is not None else 0
            sort = "attribute" if one is not None else "unknown"
            size = self.atoms.get(sort, (shown, "size"), f"the length of attribute {shown}", low)
            self.state.cells[target.cell] = Sequence(Poly.atom(size), UNKNOWN, shown, owner=shown if type_ else "")
        elif type_.startswith("list"):
            low = max(0, one.minimum or 0) if one is not None else 0
            sort = "attribute" if one is not None else "unknown"
            size = self.atoms.get(sort, (shown, "size"), f"the length of attribute {shown}", low)
            self.state.cells[target.cell] = Sequence(Poly.atom(size), UNKNOWN, shown)
        elif type_ == "bool" or isinstance(old, Condition):
            self.state.cells[target.cell] = Condition("open", shapes=(f"attribute {shown} is set",))
        else:
            self.forget(target)

    def needs_rank(self, node: Node, tensor: Tensor, rank: int, method: str) -> None:
        """The call aborts if the tensor has another rank."""
        self.judge.rank(
            self.at(node),
            tensor,
            self.rank_of(tensor.shape).plus(-rank),
            equal=True,
            case="rank",
            method=method,
            rank=str(rank),
        )
        if tensor.shape.dims is None and not self.is_dead:
            self.facts.add_equal(self.plain(self.rank_of(tensor.shape)).plus(-rank))

    def of_tensor(self, call: Call, tensor: Tensor) -> Value:
        """A method of ``Tensor``."""
        name, node = call.name, call.node
        kind = self._element_kind(call)
        width = self.width_of(call.template.partition(",")[0].strip())
        if name in _FLAT:
            return View(tensor, (self.count_of(tensor.shape),), kind, self.text(call.receiver), width)
        if name in _RANKS or name in {"tensor", "unaligned_tensor"}:
            rank = _RANKS.get(name)
            if rank is None:
                text = call.template.rpartition(",")[2].strip()
                rank = self.sizes().value(text) if "," in call.template else None
            if rank is None:
                return UNKNOWN
            self.needs_rank(node, tensor, rank, f"{name}()")
            return View(tensor, self.dims_of(tensor.shape, rank), kind, self.text(call.receiver), width)
        if name == "scalar":
            need = self.count_of(tensor.shape).plus(-1)
            self.judge.rank(self.at(node), tensor, need, equal=True, case="scalar", method="scalar()", rank="0")
            if not self.is_dead and tensor.shape.dims is None:
                self.facts.add_equal(self.plain(need))
            return View(tensor, (), kind, self.text(call.receiver), width)
        if name.startswith("flat_") and name[5:] in {"inner_dims", "outer_dims", "inner_outer_dims"}:
            return self._flattened(name, call, tensor, kind)
        if name in {"shaped", "unaligned_shaped"} and call.arguments and call.arguments[0].type == "initializer_list":
            shape = self.shape_of_list(call.arguments[0], is_new=False)
            return View(tensor, shape.dims or (), kind, self.text(call.receiver), width)
        if name == "shape":
            return tensor.shape
        if name in {"NumElements", "dims", "dim_size", "IsSameSize"}:
            return self.of_shape(call, tensor.shape, tensor)
        if name == "IsInitialized":
            return OPEN
        if name == "data":
            return UNKNOWN
        if name == "dtype":
            return UNKNOWN
        if name in {"Slice", "SubSlice"}:
            self.next_cell += 1
            return Tensor(f"a slice ({self.next_cell})", Shape(f"a slice ({self.next_cell})"))
        if name == "CopyFrom" and len(call.arguments) == 2:
            source, wanted = (self.held(self.value(one)) for one in call.arguments)
            cell = self.cell(call.receiver)
            if cell is not None and isinstance(source, Tensor) and isinstance(wanted, Shape):
                self.state.cells[cell] = replace(source, shape=wanted)
            return OPEN
        for given in call.arguments:
            self.value(given)
        return UNKNOWN

    def _element_kind(self, call: Call) -> str:
        text = call.template.partition(",")[0].strip()
        text = self.frame.bound.get(text, text)
        if parsed(text).last in {"tstring", "string"}:
            return "text"
        if parsed(text).last == "ResourceHandle":
            return "handle"
        plain = parsed(text).last.removesuffix("_t").replace("unsigned char", "uint8")
        if plain in LIMITS:
            return plain
        return self.kind_of(parsed(text)) if text else ""

    def width_of(self, text: str) -> Poly | None:
        """The size in bytes of an element of this type."""
        text = self.frame.bound.get(text, text)
        number = self.sizes().bytes(parsed(text)) if text else None
        if number is not None:
            return Poly.of(number)
        return Poly.atom(self.atoms.get("unknown", ("sizeof", text), f"sizeof({text})", 1, 4096)) if text else None

    def _flattened(self, name: str, call: Call, tensor: Tensor, kind: str) -> Value:
        parts = call.template.split(",")
        count = self.sizes().value(parts[1]) if len(parts) > 1 else 2
        rank = self.plain(self.rank_of(tensor.shape)).constant
        if count is None or name == "flat_inner_outer_dims":
            return UNKNOWN
        if rank is not None and rank >= count:
            dims = self.dims_of(tensor.shape, rank)
            extra = rank - count
            whole = Poly.of(1)
            for one in dims[: extra + 1] if name == "flat_inner_dims" else dims[count - 1 :]:
                whole = self.capped(whole * one)
            extents = (whole, *dims[extra + 1 :]) if name == "flat_inner_dims" else (*dims[: count - 1], whole)
        else:
            base = tensor.shape.name
            extents = tuple(
                Poly.atom(self.atoms.get("made", (name, base, count, at), f"dimension {at} of {base} as {name}", 0))
                if tensor.origin == "input"
                else self.unknown("a dimension", 0).poly
                for at in range(count)
            )
            if count == 2 and name == "flat_inner_dims" and tensor.shape.dims is None:
                last = self.dim_of(tensor.shape, self.rank_of(tensor.shape).plus(-1))
                extents = (extents[0], last)
            whole = Poly.of(1)
            for one in extents:
                whole *= one
            self.facts.add_equal(self.count_of(tensor.shape) - whole)
        width = self.width_of(parts[0].strip())
        return View(tensor, extents, kind, self.text(call.receiver), width)

    def of_view(self, call: Call, view: View) -> Value:
        """A method of an Eigen map."""
        name = call.name
        if name in {"size", "dimension"}:
            if name == "size":
                whole = Poly.of(1)
                for one in view.extents:
                    whole = self.capped(whole * one)
                return Number(whole)
            which = self.number(self.value(call.arguments[0]), "").poly if call.arguments else ZERO
            at = self.plain(which).constant
            if at is not None and 0 <= at < len(view.extents):
                return Number(view.extents[at])
            return self.unknown("a dimension", 0)
        if name == "data":
            whole = Poly.of(1)
            for one in view.extents:
                whole = self.capped(whole * one)
            return Pointer(whole, ZERO, view.text, view.tensor, view.kind, width=view.width)
        if name in {"rank", "dimensions"}:
            return Number(Poly.of(len(view.extents))) if name == "rank" else UNKNOWN
        if name in {"coeff", "coeffRef", "operator()"}:
            return self.at_view(call.node, view, [self.number(self.value(one), "").poly for one in call.arguments])
        for given in call.arguments:
            self.value(given)
        return UNKNOWN
