"""Calls: what a name means, which function of the project is inlined, and macros of TensorFlow that check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.symbolic.inlining import Inlining
from necropsy.audit.cxx.symbolic.objects import (
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Context,
    Lambda,
    Number,
    Object,
    Result,
    Sequence,
    Shape,
    Tensor,
    Value,
    View,
)
from necropsy.audit.cxx.symbolic.polynomials import Poly
from necropsy.audit.cxx.symbolic.witness import EVERYTHING
from necropsy.audit.cxx.types import parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_CHECKS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_NO_JUDGES = frozenset(
    {"LookupResource", "LookupOrCreateResource", "HandleFromInput", "CreateResource", "GetResourceFromContext"}
    | {"DeleteResource", "MakeResourceHandle", "LookupResources", "GetNodeAttr", "PrepareToUpdateVariable"}
)
"""Functions of TensorFlow that get the context, and say nothing of the values of inputs."""
_RETURNS = frozenset({"TF_RETURN_IF_ERROR", "RETURN_IF_ERROR", "TF_RETURN_WITH_CONTEXT_IF_ERROR", "TF_CHECK_OK"})
_SHARDS = frozenset({"Shard", "ParallelFor", "parallelFor", "TransformRangeConcurrently", "ParallelForWithWorkerId"})


class Calls(Inlining):
    """What a call does."""

    def _on_call_expression(self, node: Node) -> Value:
        call = self.look.calls.at(self.frame.function, node)
        if call is None:
            return self._unnamed(node)
        checked = self._checked(call)
        if checked is not None:
            return checked
        if call.receiver is not None and call.receiver.type != "this":
            return self._method(call)
        return self._function(call)

    def _checked(self, call: Call) -> Value | None:
        """``OP_REQUIRES`` and what is like it: the path goes on only if the condition holds."""
        name, given = call.name, call.arguments
        if (name in {"OP_REQUIRES", "OP_REQUIRES_ASYNC"} and len(given) >= 2) or (
            name in {"OP_REQUIRES_OK", "OP_REQUIRES_OK_ASYNC"} and len(given) >= 2
        ):
            self.assume(self.condition(given[1]))
        elif name in _RETURNS and given:
            is_ok = self.condition(given[0])
            if name != "TF_CHECK_OK" and len(self.frames) > 1:
                failed = self.state.copy()
                self.frame.returns.append((failed, Result(Condition("false"))))
            self.assume(is_ok)
        elif name in {"TF_ASSIGN_OR_RETURN", "OP_REQUIRES_VALUE"}:
            for one in given:
                self.value(one)
        elif name in {"CHECK", "QCHECK", "assert"} and given:
            self.assume(self.condition(given[0]))
        elif name.startswith(("CHECK_", "QCHECK_")) and name.rpartition("_")[2] in _CHECKS and len(given) == 2:
            sign = _CHECKS[name.rpartition("_")[2]]
            self.assume(self.compared(sign, self.value(given[0]), self.value(given[1])))
        elif name.startswith("CHECK_") and name.partition("_")[2] not in _CHECKS:
            self.assume(Condition("open", shapes=self.owners([self.value(one) for one in given])))
        elif name.startswith(("CHECK_", "DCHECK", "VLOG", "LOG", "DLOG")):
            return UNKNOWN
        else:
            return None
        return UNKNOWN

    def _method(self, call: Call) -> Value:
        value = self.value(call.receiver)
        held = self.held(value)
        if call.name in {"assign", "append"} and len(call.arguments) == 2:
            self.copied_text(call)
        if isinstance(held, Context):
            return self.of_context(call)
        if isinstance(held, Tensor):
            return self.of_tensor(call, held)
        if isinstance(held, Shape):
            return self.of_shape(call, held)
        if isinstance(held, View):
            return self.of_view(call, held)
        if isinstance(held, Sequence):
            return self.of_sequence(call, held)
        if isinstance(held, Result) and call.name == "ok":
            return held.is_ok
        if isinstance(held, Result) and call.name == "Update" and call.arguments:
            inner = self.condition(call.arguments[0])
            cell = self.cell(call.receiver)
            if cell is not None:
                self.state.cells[cell] = Result(Condition("and", parts=(held.is_ok, inner)))
            return UNKNOWN
        if isinstance(held, Object) and held.cls is not None:
            found = self.method_of(held.cls, call.name, len(call.arguments))
            if found is not None:
                return self.call(found, [self.value(one) for one in call.arguments], value, call.node)
        if call.name in {"get", "value", "ValueOrDie", "release"} and not call.arguments:
            return value
        if call.name in _SHARDS:
            return self._sharded(call)
        targets = self.look.calls.targets(call)
        if len(targets) == 1 and held is UNKNOWN:
            cls = self.unit.class_named(targets[0].class_name or "")
            this = self.object_of(cls) if cls is not None else UNKNOWN
            return self.call(targets[0], [self.value(one) for one in call.arguments], this, call.node)
        return self._not_known(call, held)

    def _function(self, call: Call) -> Value:
        name = call.name
        if not call.scope and name in self.frame.names:
            return self._called(call, self.state.cells.get(self.frame.names[name], UNKNOWN))
        if not call.scope:
            cell = self.cell(call.node.child_by_field_name("function"))
            if cell is not None:
                return self._called(call, self.state.cells.get(cell, UNKNOWN))
        utils = self.shape_utils(call)
        if utils is not None:
            return utils
        if name == "GetNodeAttr" and len(call.arguments) == 3:
            self._attribute(call.arguments[1], call.arguments[2])
            return Result(OPEN)
        targets = self.look.calls.targets(call) or self._of_base(call)
        if targets:
            return self._inlined(call, targets)
        known = self.of_library(call)
        if known is not None:
            return known
        if name in _SHARDS:
            return self._sharded(call)
        type_text = self.text(call.node.child_by_field_name("function"))
        made = self.shape_or_number(type_text, list(call.arguments), call.node)
        if made is not None:
            return made
        cls = self.unit.class_named(parsed(type_text).name, self.frame.function.qualified)
        if cls is not None:
            return self.constructed(cls, [self.value(one) for one in call.arguments], call.node)
        return self._not_known(call)

    def _of_base(self, call: Call) -> tuple[Function, ...]:
        """``Base::Check(context)`` of a base class by another name, and ``Bounds<T>::From(context)``."""
        this = self.held(self.frame.this)
        if not call.scope:
            return ()
        named = self.unit.class_named(parsed(call.scope).name, self.frame.function.qualified)
        own = self.method_of(named, call.name, len(call.arguments)) if named is not None and "<" in call.scope else None
        if own is not None or not isinstance(this, Object) or this.cls is None:
            return (own,) if own is not None else ()
        known = {each.last for each in this.cls.bases} | {"Base"}
        found = self.method_of(this.cls, call.name, len(call.arguments))
        return (found,) if found is not None and call.scope.rpartition("::")[2] in known else ()

    def _inlined(self, call: Call, targets: tuple[Function, ...]) -> Value:
        values = [self.value(one) for one in call.arguments]
        this = self.frame.this if targets[0].class_name is not None else UNKNOWN
        if len(targets) > 1 and len({one.qualified for one in targets}) > 1:
            return self._after_unknown(call, values)
        return self.call(targets[0], values, this, call.node)

    def _called(self, call: Call, value: Value) -> Value:
        """A call of what a variable holds: a lambda, a view, an object with ``operator()``."""
        held = self.held(value)
        if isinstance(held, View):
            numbers = [self.number(self.value(one), self.text(one)).poly for one in call.arguments]
            return self.at_view(call.node, held, numbers)
        values = [self.value(one) for one in call.arguments]
        if isinstance(held, Lambda):
            return self.call_lambda(held, values, call.node)
        if isinstance(held, Object) and held.cls is not None:
            found = self.method_of(held.cls, "operator()", len(values))
            if found is not None:
                return self.call(found, values, held, call.node)
        return self._after_unknown(call, values)

    def _unnamed(self, node: Node) -> Value:
        """``scalar<T>()()``, ``Functor<T>()(x)``: a call of what an expression gives; ``int64_t(x)``."""
        called, held = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = [one for one in held.named_children if one.type != "comment"] if held is not None else []
        if called is None:
            return UNKNOWN
        if called.type in {"primitive_type", "sized_type_specifier", "template_function", "qualified_identifier"}:
            made = self.shape_or_number(self.text(called), given, node)
            if made is not None:
                return made
        value = self.held(self.value(called))
        values = [self.value(one) for one in given]
        if isinstance(value, View):
            return self.at_view(node, value, [self.number(one, "").poly for one in values])
        if isinstance(value, Lambda):
            return self.call_lambda(value, values, node)
        if isinstance(value, Object) and value.cls is not None:
            found = self.method_of(value.cls, "operator()", len(values))
            if found is not None:
                return self.call(found, values, value, node)
        for one in values:
            self.forget(one)
        return Condition("open", shapes=self.owners(values))

    def _on_compound_literal_expression(self, node: Node) -> Value:
        type_, held = node.child_by_field_name("type"), node.child_by_field_name("value")
        given = [one for one in held.named_children if one.type != "comment"] if held is not None else []
        made = self.shape_or_number(self.text(type_), given, held if held is not None else node)
        if made is not None:
            return made
        values = [self.value(one) for one in given]
        cls = self.unit.class_named(parsed(self.text(type_)).name, self.frame.function.qualified)
        return self.constructed(cls, values, node) if cls is not None else UNKNOWN

    def _on_initializer_list(self, node: Node) -> Value:
        return self.sequence_of_list(node, "a list")

    def _on_new_expression(self, node: Node) -> Value:
        type_ = node.child_by_field_name("type")
        declarator = node.child_by_field_name("declarator")
        if declarator is not None and declarator.type == "new_declarator":
            length = declarator.child_by_field_name("length")
            number = self.number(self.value(length), self.text(length))
            self.judge.makes(self.at(node), number.poly, self.text(length), "new[]")
            return Address(self.new(Sequence(number.poly, UNKNOWN, "the array", is_fixed=True)))
        held = node.child_by_field_name("arguments")
        given = [self.value(one) for one in held.named_children] if held is not None else []
        cls = self.unit.class_named(parsed(self.text(type_)).name, self.frame.function.qualified)
        return Address(self.new(self.constructed(cls, given, node))) if cls is not None else UNKNOWN

    def _sharded(self, call: Call) -> Value:
        """A loop in pieces: the last argument gets ``[begin, end)`` of ``[0, total)``."""
        values = [self.value(one) for one in call.arguments]
        function = next((one for one in reversed(values) if isinstance(self.held(one), Lambda)), None)
        held = self.held(function) if function is not None else UNKNOWN
        if not isinstance(held, Lambda):
            return UNKNOWN
        where = {"Shard": 2, "TransformRangeConcurrently": 1}.get(call.name, 0)
        total = self.number(values[where] if where < len(values) else UNKNOWN, "the total").poly
        begin = self.atoms.fresh("counter", "the shard's begin", 0)
        end = self.atoms.fresh("counter", "the shard's end", 0)
        begin.least, begin.most = Poly.of(0), total.plus(-1)
        end.least, end.most = Poly.atom(begin).plus(1), total
        before = self.state.copy()
        self.facts.add(total.plus(-1))
        parts: list[Value] = [Number(Poly.atom(begin)), Number(Poly.atom(end))]
        if len(held.function.parameters) > 2:
            parts.append(self.unknown("the worker", 0))
        if not self.is_dead:
            self.call_lambda(held, parts, call.node)
        after = self.state
        self.state = before if after.facts.is_dead else self.meet([before, after])
        return UNKNOWN

    def _not_known(self, call: Call, receiver: Value = UNKNOWN) -> Value:
        return self._after_unknown(call, [self.value(one) for one in call.arguments], receiver)

    def _after_unknown(self, call: Call, values: list[Value], receiver: Value = UNKNOWN) -> Value:
        """A function that is not known may change what it is given to change, and may judge what it is given."""
        for one in values:
            if isinstance(self.held(one), Lambda):
                self._perhaps(one, call.node)
            self.forget(one)
        for given in call.arguments:
            self._passed(given)
        if any(isinstance(one, Context) for one in values) and call.name not in _NO_JUDGES:
            self.asked_others = True
            return Condition("open", shapes=(*self.owners(values), EVERYTHING))
        made = receiver if isinstance(receiver, Condition) else UNKNOWN  # an object that was made of some of the inputs
        return Condition("open", shapes=self.owners([*values, made]))

    def _passed(self, node: Node) -> None:
        """A variable given to a function that is not known: it may take a reference, unless the variable is const."""
        cell = self.cell(node) if node.type in {"identifier", "field_expression"} else None
        old = self.state.cells.get(cell, UNKNOWN) if cell is not None else UNKNOWN
        if cell is None or not isinstance(old, Number | Sequence | Shape):
            return
        type_ = variable(self.unit, self.frame.function, self.text(node))
        if type_ is not None and not type_.const:
            self.state.cells[cell] = self.forgotten(old)

    def _perhaps(self, value: Value, node: Node) -> None:
        """A lambda given to a function that is not known: it may be called, with anything."""
        held = self.held(value)
        if not isinstance(held, Lambda):
            return
        before = self.state.copy()
        given = [self.from_type(one.type, one.name) for one in held.function.parameters]
        self.state.is_open = True
        self.call_lambda(held, given, node)
        self.state = before if self.is_dead else self.meet([before, self.state])
