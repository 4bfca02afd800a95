"""Statements: declarations, branches, returns; see ``loops`` for loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import all_declared
from necropsy.audit.cxx.symbolic.calls import Calls
from necropsy.audit.cxx.symbolic.conditions import split
from necropsy.audit.cxx.symbolic.library import ERRORS
from necropsy.audit.cxx.symbolic.machine import State
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
from necropsy.audit.cxx.symbolic.polynomials import Poly
from necropsy.audit.cxx.types import Type

if TYPE_CHECKING:
    from tree_sitter import Node

_OKS = frozenset({"OkStatus", "OK"})


class Statements(Calls):
    """What a statement does."""

    def run(self, node: Node) -> None:
        """Run a statement."""
        if self.is_dead:
            return
        self.step()
        method = getattr(self, f"_do_{node.type}", None)
        if method is not None:
            method(node)
        elif node.type.endswith("_statement") or node.type in {"ERROR", "else_clause"}:
            for one in node.named_children:
                self.run(one)
        elif node.type in {
            "comment",
            "using_declaration",
            "alias_declaration",
            "type_definition",
            "static_assert_declaration",
        }:
            return
        elif not node.type.endswith(("_specifier", "_definition")):
            self.value(node)

    def _do_compound_statement(self, node: Node) -> None:
        names = dict(self.frame.names)
        for one in node.named_children:
            self.run(one)
        self.frame.names = names

    def _do_expression_statement(self, node: Node) -> None:
        for one in node.named_children:
            self.value(one)

    def _do_declaration(self, node: Node) -> None:
        for one in all_declared(self.frame.function.file, node):
            if not one.name or (one.function is not None and one.value is None and not self._is_made(one.function)):
                continue
            self.declare(one.name, one.type, one.value, one.function, one.node)

    def _is_made(self, function: Node) -> bool:
        """``std::vector<int> v(n);`` reads like a function."""
        held = function.child_by_field_name("parameters")
        return (
            held is not None
            and bool(held.named_children)
            and all(one.type == "parameter_declaration" and one.named_child_count == 1 for one in held.named_children)
        )

    def declare(
        self, name: str, type_: Type, node: Node | None, function: Node | None, declarator: Node | None
    ) -> None:
        """A local variable."""
        if type_.reference and node is not None:
            cell = self.cell(node)
            if cell is not None and not isinstance(self.state.cells.get(cell), Address):
                self.frame.names[name] = cell
                return
        value = self._initial(name, type_, node, function)
        if type_.extents and declarator is not None:
            value = self._array(name, type_, value)
        kind = self.kind_of(type_)
        if isinstance(value, Number) and kind and not type_.pointers:
            if value.kind == "float" and kind != "float":
                value = self.unknown(name, kind=kind)
            if self.is_unsigned(type_):
                value = self.wrapped(value)
            value = Number(value.poly, kind)
        elif value is UNKNOWN or (isinstance(value, Condition) and type_.name not in {"bool", "auto"}):
            if isinstance(value, Condition) and type_.last == "Status":
                value = Result(value)
            else:
                made = self.from_type(type_, name)
                value = value if made is UNKNOWN and isinstance(value, Condition) else made
        elif isinstance(value, Address) and not type_.pointers and type_.name != "auto":
            value = self.held(value)
        if isinstance(value, Sequence) and not type_.reference and type_.last in {"vector", "InlinedVector", "string"}:
            value = Sequence(value.size, value.element, name, owner=value.owner, is_list=value.is_list)
        if isinstance(value, Condition) and value.op == "open":
            self.next_cell += 1
            value = Condition("open", shapes=(*(value.shapes or ()), f"condition {self.next_cell}"))
        self.frame.names[name] = self.new(value)

    def _array(self, name: str, type_: Type, value: Value) -> Value:
        size = self.sizes().value(type_.extents[0]) if type_.extents[0] else None
        if size is not None:
            made = self.from_type(type_, name)
            return (
                made if not isinstance(value, Sequence) else Sequence(Poly.of(size), value.element, name, is_fixed=True)
            )
        return value if isinstance(value, Sequence) else self.from_type(type_, name)

    def _initial(self, name: str, type_: Type, node: Node | None, function: Node | None) -> Value:
        if node is None and function is not None:
            held = function.child_by_field_name("parameters")
            given = [one.named_children[0] for one in held.named_children] if held is not None else []
            return self._made(name, type_, given)
        if node is None:
            return self.fresh_of(type_, name)
        if node.type in {"argument_list", "initializer_list"} and type_.name != "auto":
            given = [one for one in node.named_children if one.type != "comment"]
            if type_.last in {"TensorShape", "PartialTensorShape"} and node.type == "initializer_list":
                return self.shape_of_list(node)
            if (
                type_.last in {"vector", "InlinedVector", "array"}
                and node.type == "initializer_list"
                and not type_.pointers
            ):
                return self.sequence_of_list(node, name, is_array=type_.last == "array")
            if type_.extents:
                return self.sequence_of_list(node, name)
            return self._made(name, type_, given)
        return self.value(node)

    def _made(self, name: str, type_: Type, given: list[Node]) -> Value:
        if type_.last in {"vector", "InlinedVector", "string", "FixedArray"}:
            return self.sequence_of(given, name)
        if type_.last in {"TensorShape", "PartialTensorShape"} and given:
            made = self.shape_or_number("TensorShape", given, given[0])
            return made if made is not None else UNKNOWN
        values = [self.value(one) for one in given]
        if type_.last == "Tensor" and len(values) >= 2:
            shape = next((self.held(one) for one in values if isinstance(self.held(one), Shape)), None)
            tensor = self.from_type(type_, name)
            if isinstance(shape, Shape):
                self.next_cell += 1
                return Tensor(f"the tensor `{name}` ({self.next_cell})", shape, "made")
            return tensor
        cls = self.unit.class_named(type_.name, self.frame.function.qualified)
        if cls is not None and not type_.pointers:
            return self.constructed(cls, values, given[0] if given else self.frame.function.node)
        if len(values) == 1:
            held = self.held(values[0])
            return held if isinstance(held, Number | Sequence | Shape) else values[0]
        about = self.owners(values)
        return Condition("open", shapes=about) if about and type_.last[:1].isupper() else UNKNOWN

    def _do_return_statement(self, node: Node) -> None:
        given = [one for one in node.named_children if one.type != "comment"]
        value = self.returned(given[0]) if given else UNKNOWN
        self.frame.returns.append((self.state, value))
        self.state = self.state.copy()
        self.die()

    def returned(self, node: Node) -> Value:
        """A returned value; of a Status, whether it is OK."""
        text = self.text(node)
        type_ = self.frame.function.returns
        is_status = type_ is not None and type_.last in {"Status", "StatusOr"}
        if is_status:
            name = text.partition("(")[0].rpartition("::")[2]
            if name in _OKS and "(" in text:
                return Result(Condition("true"))
            if name in ERRORS or (name.endswith("Error") and "(" in text) or text.startswith("Status("):
                return Result(Condition("false"))
        value = self.value(node)
        if is_status and isinstance(value, Condition):
            return Result(value)
        if is_status and not isinstance(value, Result):
            return Result(OPEN)
        return value

    def _do_throw_statement(self, _: Node) -> None:
        self.die()

    def _do_if_statement(self, node: Node) -> None:
        asked = node.child_by_field_name("condition")
        names = dict(self.frame.names)
        condition = self._asked(asked)
        yes, no = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        self.branch(condition, yes, no)
        self.frame.names = names

    def _asked(self, node: Node | None) -> Condition:
        """The condition of an ``if``, with a declaration before or in it."""
        if node is None:
            return OPEN
        if node.type != "condition_clause":
            return self.condition(node)
        before, value = node.child_by_field_name("initializer"), node.child_by_field_name("value")
        if before is not None:
            self.run(before)
        if value is not None and value.type == "declaration":
            self.run(value)
            return OPEN
        return self.condition(value)

    def branch(self, condition: Condition, yes: Node | None, no: Node | None) -> None:
        """Both ways, and what they have in common."""
        other = self.state.copy()
        is_open = _is_open(condition)
        was_open = self.state.is_open
        self.assume(condition)
        self.state.is_open = was_open or is_open
        if yes is not None:
            self.run(yes)
        first = self.state
        self.state = other
        self.assume(condition, holds=False)
        self.state.is_open = was_open or is_open
        if no is not None:
            self.run(no)
        second = self.state
        if first.facts.is_dead and second.facts.is_dead:
            return
        kept = [first.facts, second.facts]
        self.state = self.meet([first, second])
        if not any(each.is_dead for each in kept):
            for facts, holds in zip(kept, (True, False), strict=True):
                split(self.facts, facts, condition, holds=holds)
        self.state.is_open = was_open or (is_open and (first.facts.is_dead or second.facts.is_dead))

    def _do_switch_statement(self, node: Node) -> None:
        asked = node.child_by_field_name("condition")
        value = self.held(self.value(asked.child_by_field_name("value") if asked is not None else None))
        body = node.child_by_field_name("body")
        start = self.state
        breaks, self.frame.breaks = self.frame.breaks, []
        names = dict(self.frame.names)
        running: State | None = None
        has_default = False
        passed = start.copy()
        for one in body.named_children if body is not None else ():
            if one.type != "case_statement":
                continue
            label = one.child_by_field_name("value")
            entering = passed.copy() if label is None else start.copy()
            entering.is_open = entering.is_open or not isinstance(value, Number)
            if label is not None:
                self.state = start.copy()
                equal = self.compared("==", value, self.value(label))
                self.state = entering
                self.assume(equal)
                entering = self.state
                self.state = passed
                self.assume(equal, holds=False)
                passed = self.state
            has_default = has_default or label is None
            entries = [each for each in (entering, running) if each is not None]
            self.state = self.meet(entries)
            for each in one.named_children:
                if label is None or each != label:
                    self.run(each)
            running = self.state
        ends = [*self.frame.breaks, *([running] if running is not None else []), *([] if has_default else [passed])]
        self.frame.breaks = breaks
        self.frame.names = names
        self.state = self.meet(ends) if ends else start

    def _do_break_statement(self, _: Node) -> None:
        self.frame.breaks.append(self.state)
        self.state = self.state.copy()
        self.die()

    def _do_continue_statement(self, _: Node) -> None:
        self.frame.continues.append(self.state)
        self.state = self.state.copy()
        self.die()


def _is_open(condition: Condition) -> bool:
    """Something in it is not known."""
    if condition.op == "open":
        return True
    if condition.poly is not None:
        return any(not atom.is_known for atom in condition.poly.atoms())
    return any(_is_open(one) for one in condition.parts) or any(_is_open(one.value) for one in condition.paths)
