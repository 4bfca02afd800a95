"""Functions of the project, followed where they are called: parameters, paths, and what each path returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.audit.cxx.frames import bindings
from necropsy.audit.cxx.model import Class, Function, Parameter
from necropsy.audit.cxx.symbolic.library import Library
from necropsy.audit.cxx.symbolic.machine import Frame, State
from necropsy.audit.cxx.symbolic.objects import (
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Lambda,
    Number,
    Object,
    Path,
    Result,
    Sequence,
    Value,
)
from necropsy.audit.cxx.symbolic.polynomials import Poly
from necropsy.audit.cxx.tokens import arguments as arguments_of

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 10


class Inlining(Library):
    """What a function of the project does where it is called."""

    def method_of(self, cls: Class, name: str, count: int) -> Function | None:
        """The method that a call with so many arguments reaches."""
        found = [
            one
            for one in self.look.calls.methods(cls, name)
            if one.least <= count and (one.most is None or count <= one.most)
        ]
        own = [one for one in found if one.class_name == cls.qualified]
        return (own or found)[0] if found else None

    def constructed(self, cls: Class, arguments: list[Value], node: Node) -> Value:
        """An object that is made here."""
        made = self.object_of(cls)
        found = self.method_of(cls, cls.name, len(arguments))
        if found is not None and arguments:
            self.call(found, arguments, made, node)
        elif found is None and len(arguments) <= len(made.members):
            for cell, value in zip(made.members.values(), arguments, strict=False):
                self.state.cells[cell] = value
        return made

    def call_lambda(self, held: Lambda, arguments: list[Value], node: Node) -> Value:
        """Inline a lambda: it sees the names around it."""
        return self._enter(held.function, dict(held.names), arguments, held.this, node)

    def call(self, function: Function, arguments: list[Value], this: Value, node: Node) -> Value:
        """Follow a call of a function of the project."""
        return self._enter(function, {}, arguments, this, node)

    def _enter(
        self, function: Function, names: dict[str, int], arguments: list[Value], this: Value, node: Node
    ) -> Value:
        if len(self.frames) >= _DEEPEST or any(one.function is function for one in self.frames):
            for each in arguments:
                self.forget(each)
            return Condition("open", shapes=self.owners(arguments))
        frame = Frame(function, names, this, bound=self._bound(function, node))
        for number, one in enumerate(function.parameters):
            value = arguments[number] if number < len(arguments) else self._default(one)
            if isinstance(value, Address) and not one.type.pointers and one.type.reference != "&":
                value = self.held(value)
            if isinstance(value, Condition) and value.op == "open" and value is not OPEN:
                value = self.from_type(one.type, one.name)
            if isinstance(value, Number) and not one.type.is_indirect:
                kind = self.kind_of(one.type)
                value = Number(value.poly, kind or value.kind)
            if value is UNKNOWN:
                value = self.from_type(one.type, one.name)
            if one.type.name == "bool" and value in {UNKNOWN, OPEN}:
                self.next_cell += 1
                value = Condition("open", shapes=(f"condition {self.next_cell}",))
            frame.names[one.name] = self.new(value)
        self._alias(frame, function, arguments, node)
        return self._ran(frame)

    def _default(self, one: Parameter) -> Value:
        number = self.sizes().value(one.default) if one.default is not None else None
        return Number(Poly.of(number)) if number is not None else self.from_type(one.type, one.name)

    def _bound(self, function: Function, node: Node) -> dict[str, str]:
        """What template parameters are: those of the caller, and of the first use of the function's template."""
        if not function.template:
            return dict(self.frame.bound)
        key = id(function)
        if key not in self.look.bindings:
            several = [one for one in bindings(self.unit, function) if one]
            first = several[0] if several else {}
            types = {one.name for one in function.template if one.type is None}
            same = {name for name in first if all(one.get(name) == first[name] for one in several)}
            self.look.bindings[key] = [{name: text for name, text in first.items() if name in types | same}]
        values = {one.name for one in function.template if one.type is not None}
        around = {name: text for name, text in self.frame.bound.items() if name not in values}
        return {**around, **self.look.bindings[key][0], **self._explicit(function, node)}

    def _explicit(self, function: Function, node: Node) -> dict[str, str]:
        """The template arguments that a call is written with."""
        call = self.look.calls.at(self.frame.function, node) if node.type == "call_expression" else None
        given = arguments_of(call.template) if call is not None and call.template and call.receiver is None else []
        found = {}
        for one, text in zip(function.template, given, strict=False):
            number = self.sizes().value(text) if one.type is not None else None
            known = str(number) if number is not None else self.frame.bound.get(text.strip())
            if one.type is None and known is None:
                known = text.strip()
            if known is not None and one.name and known != one.name:
                found[one.name] = known
        return found

    def _alias(self, frame: Frame, function: Function, arguments: list[Value], node: Node) -> None:
        """A parameter that is a reference is the variable itself."""
        held = node.child_by_field_name("arguments")
        nodes = [one for one in held.named_children if one.type != "comment"] if held is not None else []
        if len(nodes) != len(arguments):
            return
        for one, given in zip(function.parameters, nodes, strict=False):
            if one.type.reference == "&" and not one.type.const:
                cell = self.cell(given)
                if cell is not None:
                    frame.names[one.name] = cell

    def _ran(self, frame: Frame) -> Value:
        function = frame.function
        self.frames.append(frame)
        was_open = self.state.is_open
        try:
            if function.initializers is not None:
                self.initialize(function.initializers)
            self.run(function.body)
            ends = list(frame.returns)
            if not self.is_dead:
                ends.append((self.state, UNKNOWN))
        finally:
            self.frames.pop()
        alive = [(state, value) for state, value in ends if not state.facts.is_dead]
        if not alive:
            self.die()
            return UNKNOWN
        value = self._of_paths(alive)
        cell = self.next_cell = self.next_cell + 1
        for state, one in alive:
            state.cells[cell] = one
        self.state = self.meet([state for state, _ in alive])
        self.state.is_open = was_open or self.state.is_open
        return value if value is not None else self.state.cells.get(cell, UNKNOWN)

    def _of_paths(self, alive: list[tuple[State, Value]]) -> Value | None:
        """Of a helper that returns a Status or a bool: what each path returned."""
        values = [value for _, value in alive]
        if len(alive) == 1:
            return values[0]
        conditions: list[Condition] = []
        for one in values:
            if isinstance(one, Result):
                conditions.append(one.is_ok)
            elif isinstance(one, Condition):
                conditions.append(one)
            else:
                return None
        paths = tuple(Path(state.facts.copy(), one) for (state, _), one in zip(alive, conditions, strict=True))
        made = Condition("paths", paths=paths)
        return Result(made) if isinstance(values[0], Result) else made

    def initialize(self, node: Node) -> None:
        """A constructor's initialisers."""
        this = self.held(self.frame.this)
        for one in node.named_children:
            if one.type != "field_initializer" or not isinstance(this, Object) or one.named_child_count < 2:
                continue
            name, held = self.text(one.named_children[0]), one.named_children[1]
            given = [each for each in held.named_children if each.type != "comment"]
            cell = this.members.get(name)
            if cell is None:
                continue
            old = self.state.cells.get(cell, UNKNOWN)
            if isinstance(old, Sequence) and not old.is_fixed:
                self.state.cells[cell] = self.sequence_of(given, name)
            elif len(given) == 1:
                value = self.value(given[0])
                if isinstance(old, Number) and isinstance(value, Number):
                    value = Number(value.poly, old.kind or value.kind)
                self.state.cells[cell] = value
