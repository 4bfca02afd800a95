"""Names, literals, members, pointers, subscripts: what is read, and where it is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from necropsy.audit.cxx.expressions import number as literal
from necropsy.audit.cxx.symbolic.judging import AccessSite
from necropsy.audit.cxx.symbolic.objects import (
    FALSE,
    OPEN,
    TRUE,
    UNKNOWN,
    WHOLE,
    Address,
    Condition,
    Lambda,
    Number,
    Object,
    Pointer,
    Result,
    Sequence,
    Shape,
    Tensor,
    Value,
    View,
)
from necropsy.audit.cxx.symbolic.paths import Paths
from necropsy.audit.cxx.symbolic.polynomials import Poly

if TYPE_CHECKING:
    from tree_sitter import Node


class Expressions(Paths):
    """What names and places hold."""

    def at(self, node: Node) -> AccessSite:
        """Here, for the judge."""
        return AccessSite(self.frame.function, node, self.facts, self.state.is_open)

    def value(self, node: Node | None) -> Value:
        """What an expression is; what it does is done."""
        if node is None:
            return UNKNOWN
        self.step()
        method = getattr(self, f"_on_{node.type}", None)
        if method is not None:
            made: Value = method(node)
            return made
        for each in node.named_children:
            if each.type not in {"comment", "lambda_expression"}:
                self.value(each)
        return UNKNOWN

    def condition(self, node: Node | None) -> Condition:
        """As a condition."""
        return self.as_condition(self.value(node))

    def as_condition(self, value: Value) -> Condition:
        """A value where a condition is wanted."""
        held = self.held(value) if not isinstance(value, Address) else OPEN
        if isinstance(held, Condition):
            return held
        if isinstance(held, Result):
            return held.is_ok
        if isinstance(held, Number) and held.kind in WHOLE:
            number = held.poly.constant
            if number is not None:
                return TRUE if number else FALSE
            return Condition("equal", held.poly).negated()
        return OPEN

    # Names and literals

    def _on_number_literal(self, node: Node) -> Value:
        text = self.text(node)
        number = literal(text.lstrip("-+ "))
        if number is not None and text.startswith("-"):
            number = -number
        if number is None or (re.search(r"[.]|[eE]\d|f$", text) and not text.lower().startswith("0x")):
            return self.unknown(text, kind="float")
        return Number(Poly.of(number), "whole" if "l" in text.lower() else "whole32")

    def _on_true(self, _: Node) -> Value:
        return TRUE

    def _on_false(self, _: Node) -> Value:
        return FALSE

    def _on_string_literal(self, node: Node) -> Value:
        size = max(0, len(self.text(node)) - 2)
        return Sequence(Poly.of(size), UNKNOWN, "a literal", is_fixed=True)

    def _on_char_literal(self, _: Node) -> Value:
        return self.unknown("a character", kind="whole32")

    def _on_null(self, _: Node) -> Value:
        return UNKNOWN

    def _on_this(self, _: Node) -> Value:
        return self.frame.this

    def _on_lambda_expression(self, node: Node) -> Value:
        function = next((one for one in self.unit.functions if one.is_lambda and one.node == node), None)
        return Lambda(function, dict(self.frame.names), self.frame.this) if function is not None else UNKNOWN

    def _on_identifier(self, node: Node) -> Value:
        cell = self.cell(node)
        if cell is not None:
            return self.state.cells.get(cell, UNKNOWN)
        return self._constant(self.text(node))

    _on_type_identifier = _on_identifier

    def _on_qualified_identifier(self, node: Node) -> Value:
        return self._constant(self.text(node))

    def _constant(self, text: str) -> Value:
        limit = _LIMITS.get(text.rpartition("::")[2])
        number = self.sizes().value(text) if limit is None else limit
        return Number(Poly.of(number)) if number is not None else UNKNOWN

    def _on_parenthesized_expression(self, node: Node) -> Value:
        return self.value(node.named_children[0]) if node.named_child_count else UNKNOWN

    def _on_comma_expression(self, node: Node) -> Value:
        self.value(node.child_by_field_name("left"))
        return self.value(node.child_by_field_name("right"))

    def _on_sizeof_expression(self, node: Node) -> Value:
        number = self.sizes().value(self.text(node))
        if number is None:
            held = node.child_by_field_name("type") or node.child_by_field_name("value")
            name = self.text(held).strip("() ")
            return Number(Poly.atom(self.atoms.get("unknown", ("sizeof", name), f"sizeof({name})", 1, 4096)))
        return Number(Poly.of(number))

    # Places

    def cell(self, node: Node | None) -> int | None:
        """The cell of a variable or member."""
        if node is None:
            return None
        if node.type == "parenthesized_expression" and node.named_child_count == 1:
            return self.cell(node.named_children[0])
        if node.type in {"identifier", "field_identifier", "type_identifier"}:
            name = self.text(node)
            cell = self.frame.names.get(name)
            if cell is None:
                this = self.held(self.frame.this)
                cell = this.members.get(name) if isinstance(this, Object) else None
            return cell
        if node.type == "field_expression":
            held = self.held(self.value(node.child_by_field_name("argument")))
            name = self.text(node.child_by_field_name("field"))
            return held.members.get(name) if isinstance(held, Object) else None
        if node.type == "pointer_expression" and self.text(node).startswith("*"):
            held = self.value(node.child_by_field_name("argument"))
            return held.cell if isinstance(held, Address) else None
        return None

    def changed_cell(self, node: Node | None) -> int | None:
        """The cell of what a method changes: of a variable, or of what a pointer points to."""
        cell = self.cell(node)
        for _ in range(3):
            held = self.state.cells.get(cell, UNKNOWN) if cell is not None else UNKNOWN
            if not isinstance(held, Address):
                break
            cell = held.cell
        return cell

    def _on_field_expression(self, node: Node) -> Value:
        cell = self.cell(node)
        return self.state.cells.get(cell, UNKNOWN) if cell is not None else UNKNOWN

    def _on_pointer_expression(self, node: Node) -> Value:
        inner = node.child_by_field_name("argument")
        if self.text(node).startswith("&"):
            return self.address(inner)
        value = self.value(inner)
        if isinstance(value, Address):
            return self.state.cells.get(value.cell, UNKNOWN)
        if isinstance(value, Pointer):
            return self.element(node, value, Poly.of(0))
        return value if isinstance(value, Object | Tensor | Shape | Result) else UNKNOWN

    def address(self, node: Node | None) -> Value:
        """``&x``"""
        while node is not None and node.type == "parenthesized_expression" and node.named_child_count == 1:
            node = node.named_children[0]
        cell = self.cell(node)
        if cell is not None:
            return Address(cell)
        if node is not None and node.type in {"subscript_expression", "call_expression"}:
            inner = self.pointed(node)
            if inner is not None:
                return inner
        value = self.value(node)
        return Address(self.new(value)) if value is not UNKNOWN else UNKNOWN

    def pointed(self, node: Node) -> Value | None:
        """``&view(i)`` and ``&a[i]`` are pointers; the element itself is not read."""
        held = node.child_by_field_name("argument") or node.child_by_field_name("function")
        if held is None or held.type == "field_expression":
            return None
        base = self.held(self.value(held))
        given = node.child_by_field_name("indices") or node.child_by_field_name("arguments")
        if given is None or not isinstance(base, View | Pointer | Sequence):
            return None
        numbers = [self.number(self.value(one), self.text(one)).poly for one in given.named_children]
        if isinstance(base, View) and len(numbers) == len(base.extents) and numbers:
            offset, size = Poly.of(0), Poly.of(1)
            for one, extent in zip(numbers, base.extents, strict=True):
                offset = self.capped(offset * extent + one)
                size = self.capped(size * extent)
            return Pointer(size, offset, base.text, base.tensor, base.kind, width=base.width)
        if len(numbers) == 1 and isinstance(base, Pointer):
            return replace(base, offset=base.offset + numbers[0])
        if len(numbers) == 1 and isinstance(base, Sequence):
            return Pointer(base.size, numbers[0], base.text, element=base.element, width=base.width)
        return None

    def _on_subscript_expression(self, node: Node) -> Value:
        base = self.held(self.value(node.child_by_field_name("argument")))
        given = node.child_by_field_name("indices")
        index = given.named_children[0] if given is not None and given.named_children else None
        number = self.number(self.value(index), self.text(index))
        return self.element(node, base, number.poly)

    def element(self, node: Node, base: Value, index: Poly) -> Value:
        """``base[index]``, which is judged."""
        if isinstance(base, Pointer):
            whole = base.offset + index
            self.reach(node, whole, base.size, base.text, is_text=base.kind == "text")
            return self.read(base.tensor, (whole,), base.kind) if base.tensor is not None else base.element
        if isinstance(base, View):
            return self.at_view(node, base, [index])
        if isinstance(base, Sequence):
            if base.is_list:
                return self.listed(base, index)
            self.reach(node, index, base.size, base.text or "the sequence")
            if base.owner:
                number = self.plain(index)
                atom = self.atoms.get("attribute", (base.owner, number), f"element {number} of attribute {base.owner}")
                return Number(Poly.atom(atom))
            at = self.plain(index).constant
            return base.items[at] if at is not None and 0 <= at < len(base.items) else self.one_of(base)
        if isinstance(base, Shape):
            return Number(self.dim_of(base, index))
        return UNKNOWN

    def one_of(self, base: Sequence) -> Value:
        """An element: of two that are not known, each is a number of its own."""
        single = base.element.poly.single if isinstance(base.element, Number) else None
        if not isinstance(base.element, Number) or single is None or single.kind != "unknown":
            return base.element
        return self.unknown("an element", single.low, base.element.kind)

    def reach(self, node: Node, index: Poly, extent: Poly, buffer: str, is_text: bool = False) -> None:
        """``0 <= index < extent`` is needed here, and holds behind it."""
        self.judge.reach(self.at(node), index, extent, buffer, is_text=is_text)
        if not self.is_dead:
            for need in (index, extent.plus(-1) - index):
                if need.constant is None:
                    self.facts.add(need)
            self.facts.is_dead = False

    def listed(self, base: Sequence, index: Poly) -> Value:
        """A tensor of a list."""
        name = f"{base.text}[{self.plain(index)}]"
        if not index.constant and index.constant != 0 and not index.single:
            name = f"{base.text}[...{self.next_cell}]"
        return Tensor(name, Shape(name), "input" if name.startswith("input") else "made")

    def at_view(self, node: Node, view: View, indices: list[Poly]) -> Value:
        """``view(i, j)``, which is judged."""
        if len(indices) != len(view.extents):
            return UNKNOWN
        if view.kind == "handle" and all(one == Poly.of(0) for one in indices):
            return UNKNOWN  # TensorFlow refuses an input of resources without elements
        for index, extent in zip(indices, view.extents, strict=True):
            self.reach(node, index, extent, view.text)
        return self.read(view.tensor, tuple(indices), view.kind)

    def read(self, tensor: Tensor | None, indices: tuple[Poly, ...], kind: str) -> Value:
        """A value of a tensor."""
        if tensor is not None and tensor.name in self.judgements:
            return Condition("open", shapes=self.judgements[tensor.name])
        kind = kind or (tensor.kind if tensor is not None else "")
        limits = LIMITS.get(kind, (None, None))
        if kind == "whole32":
            limits = (-(1 << 31), (1 << 31) - 1)
        kind = "whole32" if kind in LIMITS else kind
        if kind == "text" and (tensor is None or tensor.origin != "input"):
            return Sequence(self.unknown("the length of a text", 0).poly, UNKNOWN, "the text")
        if kind == "text":
            number = Poly.atom(
                self.atoms.get("size", (tensor.name if tensor else "", *indices), "the length of a text", 0)
            )
            return Sequence(number, UNKNOWN, "the text")
        if tensor is None or tensor.origin != "input" or kind == "float":
            return self.unknown("an element", kind=kind)
        plain = tuple(self.plain(one) for one in indices)
        shown = ", ".join(str(one) for one in plain)
        atom = self.atoms.get("value", (tensor.name, *plain), f"{tensor.name}({shown})", *limits)
        return Number(Poly.atom(atom), kind)


LIMITS: dict[str, tuple[int | None, int | None]] = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint32": (0, None),
    "uint64": (0, None),
    "bool": (0, 1),
}
"""Kinds of elements with the least and the largest value that counts."""
_LIMITS = {"kint32max": (1 << 31) - 1, "kint64max": (1 << 63) - 1, "INT_MAX": (1 << 31) - 1, "INT32_MAX": (1 << 31) - 1}
