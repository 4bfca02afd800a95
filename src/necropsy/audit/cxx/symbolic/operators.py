"""Operators: arithmetic, comparisons, casts, assignments."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.symbolic.expressions import Expressions
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.objects import (
    FALSE,
    OPEN,
    TRUE,
    UNKNOWN,
    WHOLE,
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
from necropsy.audit.cxx.symbolic.polynomials import Poly
from necropsy.audit.cxx.symbolic.prover import proved
from necropsy.audit.cxx.types import Type, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPARED = frozenset({"<", ">", "<=", ">=", "==", "!="})


class Operators(Expressions):
    """What operators do."""

    def _on_unary_expression(self, node: Node) -> Value:
        sign = self.frame.function.text(node)[:1]
        argument = node.child_by_field_name("argument")
        if sign == "!":
            return self.condition(argument).negated()
        value = self.held(self.value(argument))
        if isinstance(value, Number) and sign in "+-":
            return Number(value.poly.scaled(-1 if sign == "-" else 1), value.kind)
        return self.unknown("a number", kind="whole" if sign == "~" else "")

    def _on_binary_expression(self, node: Node) -> Value:
        sign = self.text(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if sign in {"&&", "||", "and", "or"}:
            return self._logical("and" if sign in {"&&", "and"} else "or", left, right)
        first, second = self.value(left), self.value(right)
        if sign in _COMPARED:
            return self.compared(sign, first, second)
        return self.combined(node, sign, first, second)

    def _logical(self, op: str, left: Node | None, right: Node | None) -> Value:
        first = self.condition(left)
        before = self.state.facts
        self.assume(first, holds=op == "and")
        second = self.condition(right) if not self.is_dead else OPEN
        self.state.facts = before
        return Condition(op, parts=(first, second))

    def compared(self, sign: str, first: Value, second: Value) -> Condition:
        """A comparison."""
        one, other = self.held(first), self.held(second)
        if isinstance(one, Shape) and isinstance(other, Shape) and sign in {"==", "!="}:
            made = self.same_shape(one, other)
            return made if sign == "==" else made.negated()
        if isinstance(one, Condition) and isinstance(other, Condition) and other in {TRUE, FALSE}:
            return one if (other is TRUE) == (sign == "==") else one.negated()
        if not isinstance(one, Number) or not isinstance(other, Number) or "float" in {one.kind, other.kind}:
            return Condition("open", shapes=self.owners([one, other]))
        difference = one.poly - other.poly
        if sign in {"==", "!="}:
            made = Condition("equal", difference)
            return made if sign == "==" else made.negated()
        if sign in {"<", "<="}:
            difference = difference.scaled(-1)
        return Condition("least", difference.plus(-1) if sign in {"<", ">"} else difference)

    def same_shape(self, one: Shape, other: Shape) -> Condition:
        """Two shapes are equal."""
        if one.dims is None and other.dims is None:
            return Condition("same", shapes=(one.name, other.name))
        if one.dims is None:
            one, other = other, one
        dims = one.dims or ()
        parts = [Condition("equal", self.rank_of(other).plus(-len(dims)))]
        parts += [Condition("equal", each - self.dim_of(other, Poly.of(at))) for at, each in enumerate(dims)]
        return Condition("and", parts=tuple(parts))

    def owners(self, values: list[Value]) -> tuple[str, ...]:
        """The inputs that values come from."""
        found: list[str] = []
        for value in values:
            each = self.held(value)
            if isinstance(each, Tensor):
                found += [each.name, each.shape.name]
            elif isinstance(each, View | Pointer) and each.tensor is not None:
                found += [each.tensor.name, each.tensor.shape.name]
            elif isinstance(each, Shape):
                found.append(each.name)
                found += [atom.owner for dim in each.dims or () for atom in dim.atoms()]
            elif isinstance(each, Number):
                found += [atom.owner for atom in each.poly.atoms()]
            elif isinstance(each, Condition):
                found += each.shapes or ()
            elif isinstance(each, Sequence):
                found += [each.owner, *(atom.owner for atom in each.size.atoms())]
                found += self.owners([each.element]) if each.element is not UNKNOWN else ()
        return tuple(dict.fromkeys(one for one in found if one))

    def combined(self, node: Node, sign: str, first: Value, second: Value) -> Value:
        """Arithmetic."""
        one, other = self.held(first), self.held(second)
        if isinstance(one, Pointer) and isinstance(other, Number) and sign in {"+", "-"}:
            return replace(one, offset=one.offset + other.poly.scaled(1 if sign == "+" else -1))
        if isinstance(one, Number) and isinstance(other, Pointer) and sign == "+":
            return replace(other, offset=other.offset + one.poly)
        if isinstance(one, Sequence) and isinstance(other, Number) and sign == "+" and one.is_fixed:
            return Pointer(one.size, other.poly, one.text, element=one.element, width=one.width)
        if isinstance(one, Pointer) and isinstance(other, Pointer) and sign == "-":
            return Number(one.offset - other.offset)
        if not isinstance(one, Number) or not isinstance(other, Number):
            if sign in {"/", "%"} and isinstance(other, Number) and other.kind in WHOLE and sign == "%":
                self.judge.divides(self.at(node), other.poly, self.text(node.child_by_field_name("right")))
            return UNKNOWN
        kind = _kind(one.kind, other.kind)
        if sign in {"+", "-"}:
            return Number(self.capped(one.poly + other.poly.scaled(1 if sign == "+" else -1)), kind)
        if sign == "*":
            made = self.capped(one.poly * other.poly)
            is_size = kind == "whole32" and not self._is_factor_of_float(node)
            if is_size and one.poly.constant is None and other.poly.constant is None:
                self.judge.narrow(self.at(node), made, self.text(node))
            return Number(made, kind)
        if sign in {"/", "%"}:
            return self._divided(node, sign, one, other, kind)
        number = other.poly.constant
        if sign == "<<" and number is not None and 0 <= number < 62:
            return Number(one.poly.scaled(1 << number), kind)
        if sign == ">>" and number is not None and 0 <= number < 62:
            return self._quotient(one.poly, Poly.of(1 << number), kind)[0]
        made_ = self.unknown("a number", kind=kind)
        atom = made_.poly.single
        if sign == "&" and number is not None and number >= 0 and atom is not None:
            atom.low, atom.high = 0, number
        return made_

    def _is_factor_of_float(self, node: Node) -> bool:
        """``rows * columns * cost``: a number, and no size or index."""
        above = node.parent
        while above is not None and above.type == "parenthesized_expression":
            above = above.parent
        if (
            above is None
            or above.type != "binary_expression"
            or self.text(above.child_by_field_name("operator")) != "*"
        ):
            return False
        other = above.child_by_field_name("right")
        type_ = variable(self.unit, self.frame.function, self.text(other)) if other is not None else None
        return type_ is not None and not type_.pointers and self.kind_of(type_) == "float"

    def _divided(self, node: Node, sign: str, one: Number, other: Number, kind: str) -> Value:
        if (kind in WHOLE and "float" not in {one.kind, other.kind}) or sign == "%":
            text = self.text(node.child_by_field_name("right"))
            self.judge.divides(self.at(node), other.poly, text)
            if not self.is_dead and other.poly.constant is None:
                self.facts.add_not_zero(other.poly)
                if proved(self.facts, one.poly, 1):
                    self.facts.add(other.poly.plus(-1))
                self.facts.is_dead = False
            quotient, rest = self._quotient(one.poly, other.poly, kind)
            return quotient if sign == "/" else rest
        return self.unknown("a quotient", kind=kind)

    def _quotient(self, one: Poly, other: Poly, kind: str) -> tuple[Number, Number]:
        """What is known of a division of numbers that are not negative."""
        first, second = self.plain(one), self.plain(other)
        top, bottom = first.constant, second.constant
        if top is not None and bottom:
            quotient = abs(top) // abs(bottom) * (1 if (top < 0) == (bottom < 0) else -1)
            return Number(Poly.of(quotient), kind), Number(Poly.of(top - quotient * bottom), kind)
        is_known = all(atom.is_known for atom in first.atoms() | second.atoms())
        sort = "made" if is_known else "unknown"
        quotient_ = self.atoms.get(sort, ("/", first, second), f"({first}) / ({second})")
        rest_ = self.atoms.get(sort, ("%", first, second), f"({first}) % ({second})")
        parts, rest = Poly.atom(quotient_), Poly.atom(rest_)
        if proved(self.facts, first, 2) and proved(self.facts, second, 2):
            quotient_.low = rest_.low = 0
            self.facts.add(second.plus(-1) - rest)
            self.facts.add_equal(first - self.capped(parts * second) - rest)
        return Number(parts, kind), Number(rest, kind)

    def _on_conditional_expression(self, node: Node) -> Value:
        asked = self.condition(node.child_by_field_name("condition"))
        before = self.state.copy()
        self.assume(asked)
        yes = self.value(node.child_by_field_name("consequence")) if not self.is_dead else UNKNOWN
        one, self.state = self.state, before
        self.assume(asked, holds=False)
        no = self.value(node.child_by_field_name("alternative")) if not self.is_dead else UNKNOWN
        other = self.state
        if one.facts.is_dead or other.facts.is_dead:
            self.state = other if one.facts.is_dead else one
            return no if one.facts.is_dead else yes
        if isinstance(yes, Result | Condition) and isinstance(no, Result | Condition):
            both = [Condition("and", parts=(asked, self.as_condition(yes)))]
            both.append(Condition("and", parts=(asked.negated(), self.as_condition(no))))
            self.state = self.meet([one, other])
            made = Condition("or", parts=tuple(both))
            return Result(made) if isinstance(yes, Result) else made
        cell = self.next_cell = self.next_cell + 1
        one.cells[cell], other.cells[cell] = yes, no
        self.state = self.meet([one, other])
        value = self.state.cells[cell]
        if isinstance(yes, Number) and isinstance(no, Number) and isinstance(value, Number):
            self._chosen(value, asked, yes.poly, no.poly)
        return value

    def _chosen(self, value: Number, asked: Condition, yes: Poly, no: Poly) -> None:
        """A number that is one or the other: which one, its condition says; and ``a < b ? a : b`` is the least."""
        atom = value.poly.single
        if atom is None or atom.kind != "unknown" or yes == no:
            return
        for poly, holds in ((yes, True), (no, False)):
            self.facts.later = (*self.facts.later, (asked, holds, Facts(self.atoms, equal={atom: poly})))
        if asked.op != "least" or asked.poly is None:
            return
        for low, high in ((yes, no), (no, yes)):
            if ((asked.poly - (high - low)).constant in {0, -1} and low is yes) or (
                (asked.poly - (low - high)).constant in {0, -1} and low is no
            ):
                self.facts.add(low - Poly.atom(atom))
                self.facts.add(high - Poly.atom(atom))
                atom.kind = "made"

    def _on_cast_expression(self, node: Node) -> Value:
        return self.cast(self.text(node.child_by_field_name("type")), self.value(node.child_by_field_name("value")))

    def cast(self, type_text: str, value: Value) -> Value:
        """To a type."""
        held = self.held(value) if not isinstance(value, Address) else value
        type_ = parsed(type_text)
        if isinstance(held, Number) and not type_.pointers:
            kind = self.kind_of(type_)
            if self.is_unsigned(type_):
                held = self.wrapped(held)
            if held.kind == "float" and kind in WHOLE:
                return self.unknown("a number", kind=kind)
            return Number(held.poly, kind or ("whole" if held.kind == "whole32" else held.kind))
        return value

    def is_unsigned(self, type_: Type) -> bool:
        """A number of this type is never negative."""
        name = parsed(self.frame.bound.get(type_.name, type_.name)).last
        return name in _UNSIGNED or name.startswith("unsigned")

    def wrapped(self, one: Number) -> Number:
        """A number as an unsigned one: a negative value becomes a huge one."""
        plain = self.plain(one.poly)
        if one.kind not in WHOLE or proved(self.facts, plain, 2):
            return one
        single = next((each for each in plain.atoms() if each.kind in {"value", "attribute"}), None)
        if single is None or any(not each.is_known for each in plain.atoms()):
            return self.unknown("an unsigned number", 0, one.kind)
        key = (*single.key[:1], "unsigned", plain)
        return Number(Poly.atom(self.atoms.get(single.kind, key, f"{plain} as an unsigned number", 0)), one.kind)

    def _on_assignment_expression(self, node: Node) -> Value:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = self.text(node.child_by_field_name("operator"))
        value = self.value(right)
        if sign != "=":
            old = self.value(left)
            if sign == "*=" and isinstance(old, Number) and isinstance(value, Number) and old.kind == "whole32":
                self.judge.grows(self.at(node), old.poly, value.poly, self.text(node))
            value = self.combined(node, sign[:-1], old, value)
        if left is not None and right is not None and re.match(r"(?:std::)?tie\s*\(", self.text(left)):
            self._store_tied(left, right)
            return value
        self.store(left, value, is_new=sign != "=")
        return value

    def _store_tied(self, left: Node, right: Node) -> None:
        """``std::tie(ok, text) = Check(tensor)``: each may be a judgement of what the call was given."""
        targets, given = left.child_by_field_name("arguments"), right.child_by_field_name("arguments")
        values = [self.value(one) for one in given.named_children] if given is not None else []
        for target in targets.named_children if targets is not None else ():
            self.store(target, Condition("open", shapes=self.owners(values)), is_new=True)

    def store(self, left: Node | None, value: Value, is_new: bool = False) -> None:
        """``left = value``; ``is_new``: the place was read already."""
        cell = self.cell(left)
        if cell is not None:
            old = self.state.cells.get(cell)
            if isinstance(old, Number) and isinstance(value, Number) and old.kind:
                value = Number(value.poly, old.kind)
            self.state.cells[cell] = value
        elif left is not None and not is_new:
            held = left.child_by_field_name("argument") if left.type == "subscript_expression" else None
            self.value(left)
            at = self.cell(held)
            base = self.state.cells.get(at, UNKNOWN) if at is not None else UNKNOWN
            if at is not None and isinstance(base, Sequence) and not base.owner:
                self.state.cells[at] = replace(base, element=self.either(base.element, value), items=())
            elif isinstance(value, Condition) and value.shapes:
                self._judgement(left, value.shapes)

    def _judgement(self, left: Node, shapes: tuple[str, ...]) -> None:
        """``good.scalar<bool>() = (x >= 0).all()``: what is read from ``good`` later judges ``x``."""
        at: Node | None = left
        while at is not None and at.type in {"call_expression", "field_expression"}:
            at = at.child_by_field_name("function") or at.child_by_field_name("argument")
        tensor = self.held(self.value(at))
        if isinstance(tensor, Tensor) and tensor.origin == "made":
            self.judgements[tensor.name] = shapes

    def either(self, old: Value, new: Value) -> Value:
        """What is known of each element of a sequence after another one was put there."""
        if old is UNKNOWN or old == new:
            return new if isinstance(new, Number | Sequence | Tensor) else UNKNOWN
        return self.unknown("an element") if isinstance(new, Number) else UNKNOWN

    def _on_update_expression(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        old = self.value(argument)
        step = 1 if "++" in self.text(node) else -1
        value = self.combined(node, "+", old, Number(Poly.of(step), "whole32"))
        self.store(argument, value, is_new=True)
        return old if self.text(node)[:2] not in {"++", "--"} else value


_UNSIGNED = frozenset({"size_t", "uint64", "uint64_t", "uint32", "uint32_t", "uint8", "uint8_t", "uint16", "uint16_t"})


def _kind(one: str, other: str) -> str:
    if "float" in {one, other}:
        return "float"
    if not one or not other:
        return ""
    return "whole32" if one == other == "whole32" else "whole"
