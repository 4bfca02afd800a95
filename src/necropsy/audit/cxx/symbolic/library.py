"""Functions and methods of the standard library, of Abseil and Eigen that say something about sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.symbolic.conditions import once
from necropsy.audit.cxx.symbolic.objects import (
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Pointer,
    Result,
    Sequence,
    Shape,
    Value,
)
from necropsy.audit.cxx.symbolic.polynomials import ZERO, Poly
from necropsy.audit.cxx.symbolic.prover import proved
from necropsy.audit.cxx.symbolic.tensors import Tensors
from necropsy.audit.cxx.types import parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_COPIES = {"memcpy": 2, "memmove": 2, "memset": 1, "strncpy": 2}
ERRORS = frozenset(
    {"InvalidArgument", "Internal", "FailedPrecondition", "OutOfRange", "NotFound", "Unimplemented", "DataLoss"}
    | {"ResourceExhausted", "Aborted", "Unknown", "AlreadyExists", "Cancelled", "Unavailable", "PermissionDenied"}
    | {"DeadlineExceeded", "Unauthenticated"}
)
"""What makes a Status that is not OK."""
HARMLESS = frozenset(
    {"StrCat", "Printf", "LOG", "VLOG", "ToString", "DebugString", "errors", "InvalidArgument"}
    | {"Internal", "FailedPrecondition", "OutOfRange", "NotFound", "Unimplemented", "OkStatus", "OK"}
    | {"SummarizeValue", "DataTypeString", "shape_string", "abs", "swap", "sqrt", "exp", "log", "pow"}
    | {"floor", "ceil", "round", "isnan", "isinf", "isfinite", "move", "forward", "make_pair"}
    | {"make_tuple", "tie", "get", "printf", "fprintf", "cout", "begin", "end", "fill", "fill_n", "copy"}
)


class Library(Tensors):
    """What functions give that are not the project's."""

    def of_sequence(self, call: Call, one: Sequence) -> Value:
        """A method of a vector, array or string."""
        name, given = call.name, call.arguments
        cell = self.changed_cell(call.receiver)
        values = [self.value(each) for each in given]
        first = self.held(values[0]) if values else UNKNOWN
        made: Sequence | None = None
        result: Value = UNKNOWN
        if name in {"size", "length", "dimension"}:
            return Number(one.size)
        if name == "empty":
            return Condition("equal", one.size)
        if name in {"data", "mdata", "c_str", "begin"}:
            return Pointer(one.size, ZERO, one.text, kind="text" if one.text == "the text" else "", element=one.element)
        if name in {"at", "front", "back"}:
            return self.listed(one, ZERO) if one.is_list else self.one_of(one)
        if name in {"push_back", "emplace_back"}:
            made = replace(one, size=one.size.plus(1), element=self.either(one.element, first), owner="", items=())
        elif name in {"resize", "assign"} and isinstance(first, Number):
            self.judge.makes(self.at(call.node), first.poly, self.text(given[0]), name)
            element = self.held(values[1]) if len(values) > 1 else UNKNOWN
            made = replace(one, size=first.poly, element=element, owner="", items=())
        elif name == "reserve" and isinstance(first, Number):
            self.judge.makes(self.at(call.node), first.poly, self.text(given[0]), name)
        elif name == "clear":
            made = replace(one, size=ZERO, element=UNKNOWN, owner="", items=())
        elif name in {"pop_back", "erase", "insert", "append", "swap"}:
            made = replace(one, size=self.unknown("a size", 0).poly, owner="", items=())
        if made is not None and cell is not None:
            self.state.cells[cell] = made
        return result

    def of_library(self, call: Call) -> Value | None:
        """A function by its name; None where it is not one that is known."""
        name, given = call.name, call.arguments
        if name in {"static_cast", "reinterpret_cast", "const_cast", "implicit_cast", "down_cast"} and len(given) == 1:
            return self._casted(call)
        if name in {"max", "min"} and len(given) == 2:
            return self._extreme(call)
        if name == "FastBoundsCheck" and len(given) == 2:
            index, limit = (self.number(self.value(one), self.text(one)).poly for one in given)
            return Condition("and", parts=(Condition("least", index), Condition("least", limit.plus(-1) - index)))
        if name in {"SubtleMustCopy", "move", "forward", "internal"} and given:
            return self.value(given[0])
        if name in {"MultiplyWithoutOverflow", "CeilOfRatio"} and len(given) == 2:
            one, other = (self.number(self.value(each), "").poly for each in given)
            return Number(self.capped(one * other)) if name[0] == "M" else self.unknown("a quotient", 0)
        if name in _COPIES and len(given) == 3:
            self._copied(call)
            return UNKNOWN
        if name in {"AddDimWithStatus", "BuildTensorShape", "MakeShape"} and call.receiver is None:
            values = [self.value(one) for one in given]
            for each in values:
                self.forget(each)
            return OPEN
        around = call.scope.rpartition("::")[2]
        if around == "errors" or (around == "absl" and name.endswith("Error")) or (name in ERRORS and not around):
            for argument in given:
                self.value(argument)
            return Result(Condition("false"))
        if name == "OkStatus" or (name in {"OK", "Status"} and around in {"Status", "absl"} and not given):
            return Result(Condition("true"))
        if name in HARMLESS or call.scope.partition("::")[0] in {"errors", "absl", "strings", "std"}:
            values = [self.value(one) for one in given]
            if name in {"swap", "sort", "fill", "copy", "iota"} or name.startswith("Parse"):
                for each in values:
                    self.forget(each)
            if name == "abs":
                return self.unknown("a number", 0)
            return UNKNOWN
        return None

    def _casted(self, call: Call) -> Value:
        value = self.value(call.arguments[0])
        target = parsed(call.template)
        held = self.held(value)
        if call.name == "reinterpret_cast" and isinstance(held, Pointer):
            return UNKNOWN if not call.template.startswith("const void") else held
        if target.pointers:
            return value
        return self.cast(call.template, value)

    def _extreme(self, call: Call) -> Value:
        numbers = [self.number(self.value(one), self.text(one)) for one in call.arguments]
        first, second = (self.plain(one.poly) for one in numbers)
        kind = numbers[0].kind if numbers[0].kind == numbers[1].kind else "whole"
        if "float" in {one.kind for one in numbers}:
            return self.unknown("a number", kind="float")
        sign = 1 if call.name == "max" else -1
        for one, other in ((first, second), (second, first)):
            if proved(self.facts, (one - other).scaled(sign), 2):
                return Number(one, kind)
        is_known = all(atom.is_known for atom in first.atoms() | second.atoms())
        atom = self.atoms.get(
            "made" if is_known else "unknown", (call.name, first, second), f"{call.name}({first}, {second})"
        )
        made = Poly.atom(atom)
        for one in (first, second):
            self.facts.add((made - one).scaled(sign))
        bounds = [one.constant for one in (first, second) if one.constant is not None]
        for one, other in ((first, second), (second, first)):
            if one.constant is not None:  # past the constant, it is the other
                past = (made - one).scaled(sign).plus(-1)
                once(self.facts, Condition("least", past), (other - made).scaled(sign))
        if bounds and sign > 0:
            atom.low = max(bounds)
        elif bounds:
            atom.high = min(bounds)
        if sign < 0 and all(proved(self.facts, one, 2) for one in (first, second)):
            atom.low = 0
        return Number(made, kind)

    def _copied(self, call: Call) -> None:
        """``memcpy(to, from, bytes)``: both buffers have to hold that much."""
        values = [self.held(self.value(one)) for one in call.arguments]
        size = self.number(values[2], self.text(call.arguments[2])).poly
        target, source = values[0], values[1] if len(values) > 1 else UNKNOWN
        for value in values[: _COPIES[call.name]]:
            held = _pointer(value)
            width = Poly.of(1) if held is not None and held.kind == "text" else held.width if held is not None else None
            if held is None or width is None:
                continue
            begin, whole = self.capped(held.offset * width), self.capped(held.size * width)
            self.judge.spans(self.at(call.node), begin, size, whole, held.text)
        raw = self.value(call.arguments[0])
        if isinstance(raw, Address):
            self.forget(raw)
            tensor = source.tensor if isinstance(source, Pointer) else None
            if isinstance(target, Number) and tensor is not None and tensor.origin == "input":
                atom = self.atoms.fresh("value", f"what is read from {tensor.name}")
                atom.key = (tensor.name, atom.number)
                self.state.cells[raw.cell] = Number(Poly.atom(atom), target.kind)

    def copied_text(self, call: Call) -> None:
        """``text.assign(pointer, length)``: the buffer behind the pointer has to hold that much."""
        source, length = (self.held(self.value(one)) for one in call.arguments)
        if isinstance(source, Pointer) and isinstance(length, Number):
            self.judge.spans(self.at(call.node), source.offset, length.poly, source.size, source.text)

    def shape_or_number(self, type_text: str, arguments: list[Node], node: Node) -> Value | None:
        """``TensorShape({1, 2})``, ``int64_t(x)``, ``std::vector<int>(n)``: a value of a type that is made here."""
        type_ = parsed(type_text)
        kind = self.kind_of(type_)
        if type_.last in {"TensorShape", "PartialTensorShape"}:
            if not arguments:
                return Shape("a shape", ())
            if arguments[0].type == "initializer_list" or node.type == "compound_literal_expression":
                return self.shape_of_list(arguments[0] if arguments[0].type == "initializer_list" else node)
            inner = self.held(self.value(arguments[0]))
            self.next_cell += 1
            return inner if isinstance(inner, Shape) else Shape(f"a shape ({self.next_cell})")
        if kind and not type_.pointers and not type_.arguments:
            value = self.held(self.value(arguments[0])) if arguments else Number(ZERO, kind)
            return self.cast(type_text, self.number(value, self.text(node)))
        if type_.last in {"vector", "InlinedVector", "string", "FixedArray"}:
            return self.sequence_of(arguments, self.text(node))
        if type_.last in {"Span", "ArraySlice", "string_view", "StringPiece"} and arguments:
            return self.held(self.value(arguments[0]))
        return None

    def sequence_of(self, arguments: list[Node], text: str) -> Sequence:
        """A vector made from arguments in parentheses."""
        if not arguments:
            return Sequence(ZERO, UNKNOWN, text)
        if arguments[0].type == "initializer_list":
            return self.sequence_of_list(arguments[0], text)
        values = [self.held(self.value(one)) for one in arguments]
        first = values[0]
        if isinstance(first, Number) and first.kind != "float":
            self.judge.makes(self.at(arguments[0]), first.poly, self.text(arguments[0]), "vector")
            return Sequence(first.poly, values[1] if len(values) > 1 else UNKNOWN, text)
        if isinstance(first, Sequence) and len(values) == 1:
            return replace(first, text=text, is_fixed=False)
        return Sequence(self.unknown(f"the size of {text}", 0).poly, UNKNOWN, text)

    def sequence_of_list(self, node: Node, text: str, *, is_array: bool = False) -> Sequence:
        """``{1, 2, 3}``"""
        inner = [one for one in node.named_children if one.type != "comment"]
        if is_array and len(inner) == 1 and inner[0].type == "initializer_list":
            return self.sequence_of_list(inner[0], text)  # std::array<int, 2> pair{{1, 2}}
        values = [self.value(one) for one in inner]
        element: Value = UNKNOWN
        for one in values:
            element = self.either(element, one)
        known = element if len(values) == 1 else UNKNOWN
        return Sequence(Poly.of(len(values)), known, text, items=tuple(values[:8]) if len(values) <= 8 else ())


def _pointer(value: Value) -> Pointer | None:
    if isinstance(value, Pointer):
        return value
    if isinstance(value, Sequence) and value.is_fixed:
        return Pointer(value.size, ZERO, value.text, element=value.element, width=value.width)
    return None
