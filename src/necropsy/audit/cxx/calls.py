"""Which functions of a unit call which, and which call themselves. Passing a callback does not count as calling it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.expression_types import class_of, pointee, type_of, variable
from necropsy.audit.cxx.model import Class, Function, Kernel, Unit
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import is_other_instance, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_AT_ONCE = frozenset(
    {"for_each", "transform", "sort", "stable_sort", "any_of", "all_of", "none_of", "accumulate", "visit", "find_if"}
)
"""Functions that call what they are given before they return, on the same stack."""
_NUMBERS = frozenset(
    {"int", "long", "float", "double", "char", "bool", "short", "unsigned", "size_t", "int64", "int32"}
)


@dataclass(frozen=True, eq=False)
class Call:
    """A call as written. In ``a::b::f(x)``, ``name`` is ``f`` and ``scope`` is ``a::b``."""

    caller: Function
    node: Node
    name: str
    scope: str = ""
    receiver: Node | None = None
    arguments: tuple[Node, ...] = ()
    template: str = ""
    """Explicit template arguments, without brackets."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The arguments as text."""
        return tuple(" ".join(self.caller.text(one).split()) for one in self.arguments)


def calls_in(function: Function) -> Iterator[Call]:
    """The calls in a function; those in its lambdas are the lambdas'."""
    for root in (function.initializers, function.body):
        for node in walk(root, into_scopes=False) if root is not None else ():
            if node.type == "call_expression":
                one = _call(function, node)
                if one is not None:
                    yield one


def _call(function: Function, node: Node) -> Call | None:
    called = node.child_by_field_name("function")
    held = node.child_by_field_name("arguments")
    if called is None:
        return None
    arguments = tuple(held.named_children) if held is not None else ()
    receiver, template = None, ""
    if called.type == "call_expression":  # Functor<T>()(x)
        made = called.child_by_field_name("function")
        if made is None or called.child_by_field_name("arguments") is None or made.type == "field_expression":
            return None
        made_of = parsed(function.text(made))
        return Call(function, node, "operator()", made_of.name, None, arguments) if made_of.name else None
    if called.type == "field_expression":
        receiver, called = called.child_by_field_name("argument"), called.child_by_field_name("field")
    scopes = []
    while called is not None and called.type in {
        "qualified_identifier",
        "dependent_name",
        "template_function",
        "template_method",
    }:
        if called.type == "qualified_identifier":
            scope = called.child_by_field_name("scope")
            scopes.append(function.text(scope) if scope is not None else "")
        elif called.type != "dependent_name":
            given = called.child_by_field_name("arguments")
            template = function.text(given)[1:-1] if given is not None else ""
        called = called.child_by_field_name("name") or (called.named_children[0] if called.named_children else None)
    if called is None or called.type not in {"identifier", "field_identifier", "type_identifier", "operator_name"}:
        return None
    return Call(function, node, function.text(called), "::".join(scopes), receiver, arguments, template)


@dataclass(frozen=True, eq=False)
class CallGraph:
    """Who calls whom in one unit."""

    unit: Unit
    _calls: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    _at: dict[tuple[int, int, int], Call | None] = field(default_factory=dict)

    def calls(self, function: Function) -> tuple[Call, ...]:
        """All calls in the function."""
        if id(function) not in self._calls:
            self._calls[id(function)] = tuple(calls_in(function))
        return self._calls[id(function)]

    def at(self, function: Function, node: Node) -> Call | None:
        """The call that a node of the function is."""
        key = (id(function.file), node.start_byte, node.end_byte)
        if key not in self._at:
            self._at[key] = _call(function, node)
        found = self._at[key]
        return found if found is None or found.caller is function else _call(function, node)

    def methods(self, cls: Class, name: str) -> list[Function]:
        """The methods of that name of a class, of its bases, and of classes derived from it."""
        return self._methods(cls, name)

    def targets(self, call: Call) -> tuple[Function, ...]:
        """The functions with a body that a call may reach, by name, class, number and types of its arguments."""
        if call.scope.split("::")[0] in {"std", "absl", "Eigen"}:
            return ()
        found = [one for one in self._candidates(call) if self._fits(one, call)]
        return tuple(found)

    def _candidates(self, call: Call) -> list[Function]:
        named = self.unit.named(call.name)
        caller = call.caller
        if call.receiver is not None and call.receiver.type != "this":
            cls = class_of(self.unit, caller, call.receiver)
            if cls is None or self._is_other_instance(cls, call):
                return []
            return self._methods(cls, call.name)
        if call.scope:
            ends = f"{call.scope}::{call.name}"
            return [one for one in named if one.qualified == ends or one.qualified.endswith(f"::{ends}")]
        own = [one for one in named if one.is_lambda and (one is caller or one.outer in _around(caller))]
        if own:
            return own
        held = variable(self.unit, caller, call.name)
        if held is not None:
            cls = self.unit.class_named(pointee(held).name, caller.qualified)
            return self._methods(cls, "operator()") if cls is not None else []
        cls = self.unit.class_named(caller.class_name) if caller.class_name is not None else None
        methods = self._methods(cls, call.name) if cls is not None else []
        return methods or [one for one in named if not one.is_lambda and one.class_name is None]

    def _is_other_instance(self, cls: Class, call: Call) -> bool:
        type_ = type_of(self.unit, call.caller, call.receiver) if call.receiver is not None else None
        if type_ is None or call.caller.class_name != cls.qualified:
            return False
        return is_other_instance(pointee(type_), (one.name for one in cls.template), cls.arguments)

    def _methods(self, cls: Class, name: str) -> list[Function]:
        """The methods of that name of a class, of its bases, and of classes derived from it."""
        names, waiting = {cls.qualified}, [cls]
        while waiting:
            for each in waiting.pop().bases:
                base = self.unit.class_named(each.name, cls.qualified)
                if base is not None and base.qualified not in names:
                    names.add(base.qualified)
                    waiting.append(base)
        names |= self._derived.get(cls.qualified, set())
        return [one for one in self.unit.named(name) if one.class_name in names and not one.is_lambda]

    @cached_property
    def _derived(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for several in self.unit.classes.values():
            for one in several:
                for each in one.bases:
                    base = self.unit.class_named(each.name, one.qualified)
                    if base is not None:
                        found.setdefault(base.qualified, set()).add(one.qualified)
        return found

    def _fits(self, target: Function, call: Call) -> bool:
        count = len(call.arguments)
        if count < target.least or (target.most is not None and count > target.most):
            return False
        if target.most is None and (target is call.caller or _passes_rest(target, call)):
            return False  # a variadic template calls another instance of itself, or of an overload
        if target is call.caller and self._is_of_base(call):
            return False
        known = {one.name for one in target.template}
        for parameter, node in zip(target.parameters, call.arguments, strict=False):
            given = type_of(self.unit, call.caller, node)
            wanted = parameter.type
            if given is None or wanted.name in known or wanted.name == "auto" or given.name in known:
                continue
            if bool(given.pointers) != bool(wanted.pointers) or (
                given.last != wanted.last and not _converts(given.name, wanted.name, self.unit)
            ):
                return False
        return not self._is_ambiguous(target, call)

    def _is_of_base(self, call: Call) -> bool:
        """``inner_->Read()`` in a ``Read`` that overrides it: of the base class, ``inner_`` may be another one."""
        if call.receiver is None or call.receiver.type == "this" or call.caller.class_name is None:
            return False
        cls = class_of(self.unit, call.caller, call.receiver)
        return cls is not None and call.caller.class_name in self._derived.get(cls.qualified, set())

    def _is_ambiguous(self, target: Function, call: Call) -> bool:
        """Among overloads, a function calls itself only with what derives from its own parameters."""
        if target is not call.caller:
            return False
        overloads = [
            one
            for one in self.unit.named(target.name)
            if one.qualified == target.qualified and one is not target and one.least <= len(call.arguments)
        ]
        if not overloads:
            return False
        own = {one.name for one in target.parameters if one.name}
        return not any(text not in own and _derives(text, own) for text in call.texts)

    @cached_property
    def edges(self) -> dict[int, list[tuple[Call, Function]]]:
        """From a function's ``id`` to its calls with what they reach; lambdas that are called at once count."""
        found: dict[int, list[tuple[Call, Function]]] = {}
        for one in self.unit.functions:
            reached = [(call, target) for call in self.calls(one) for target in self.targets(call)]
            for call in self.calls(one):
                if call.name in _AT_ONCE:
                    reached += [
                        (call, each)
                        for each in self.unit.lambdas(one)
                        if any(node == each.node for node in call.arguments)
                    ]
                elif _passes_itself(one, call):
                    reached.append((call, one))
            found[id(one)] = reached
        return found

    @cached_property
    def cycles(self) -> tuple[tuple[Function, ...], ...]:
        """Groups of functions that call each other, and functions that call themselves."""
        groups = _components(self.unit.functions, {key: [to for _, to in each] for key, each in self.edges.items()})
        return tuple(
            group for group in groups if len(group) > 1 or any(to is group[0] for _, to in self.edges[id(group[0])])
        )

    @cached_property
    def _kernels(self) -> dict[int, Kernel]:
        found: dict[int, Kernel] = {}
        for kernel in self.unit.kernels:
            waiting = [one for one in (kernel.compute, kernel.constructor) if one is not None]
            while waiting:
                one = waiting.pop()
                if id(one) in found:
                    continue
                found[id(one)] = kernel
                waiting += [to for _, to in self.edges[id(one)]]
                waiting += self.unit.lambdas(one)
        return found

    def kernel_of(self, function: Function) -> Kernel | None:
        """The kernel below which the function runs; of several, the one that is registered first."""
        at: Function | None = function
        while at is not None:
            if id(at) in self._kernels:
                return self._kernels[id(at)]
            at = at.outer
        own = [one for one in self.unit.kernels if one.cls is not None and one.cls.qualified == function.class_name]
        return own[0] if own else None

    def callers(self, function: Function) -> list[Call]:
        """All calls that reach the function."""
        return [call for each in self.edges.values() for call, to in each if to is function]

    def frame(self, function: Function) -> int:
        """A lower bound for the bytes of stack of one call: what its variables take, and what every call takes."""
        sizes = Sizes(self.unit, scope=function.qualified)
        return 48 + sum(sizes.bytes(one.type) or 8 for one in locals_of(function) if not one.is_static)


def _passes_rest(target: Function, call: Call) -> bool:
    """``Fill(out, rest...)`` in an overload of ``Fill``."""
    return target.qualified == call.caller.qualified and any(text.endswith("...") for text in call.texts)


def _derives(text: str, own: set[str]) -> bool:
    """``n - 1`` and ``node->left.get()`` derive from parameters; what another function makes of one may not."""
    head = re.match(r"[*&(]*(\w+)", text)
    return head is not None and head[1] in own and not text[head.end() :].startswith("(")


def _around(function: Function) -> list[Function]:
    found = [function]
    while found[-1].outer is not None:
        found.append(found[-1].outer)
    return found


def _converts(given: str, wanted: str, unit: Unit) -> bool:
    """Numbers convert, and what is not a class of the project may."""
    if set(given.split()) & _NUMBERS and set(wanted.split()) & _NUMBERS:
        return True
    return unit.class_named(given) is None or unit.class_named(wanted) is None or _is_base(unit, given, wanted)


def _is_base(unit: Unit, name: str, base: str) -> bool:
    cls = unit.class_named(name)
    return cls is not None and any(one.last == base.rpartition("::")[2] for one in cls.bases)


def _passes_itself(function: Function, call: Call) -> bool:
    """``self(self, n - 1)`` in a lambda whose parameter is ``self``."""
    names = {one.name for one in function.parameters}
    return function.is_lambda and call.name in names and call.receiver is None and call.name in call.texts[:1]


def _components(functions: tuple[Function, ...], edges: dict[int, list[Function]]) -> list[tuple[Function, ...]]:
    """Strongly connected components (Tarjan), without recursion."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[Function] = []
    on: set[int] = set()
    found = []
    for root in functions:
        if id(root) in number:
            continue
        work = [(root, iter(edges[id(root)]))]
        number[id(root)] = low[id(root)] = len(number)
        open_.append(root)
        on.add(id(root))
        while work:
            one, rest = work[-1]
            after = next(rest, None)
            if after is None:
                work.pop()
                if work:
                    above = id(work[-1][0])
                    low[above] = min(low[above], low[id(one)])
                if low[id(one)] == number[id(one)]:
                    start = next(at for at, each in enumerate(open_) if each is one)
                    group = open_[start:]
                    del open_[start:]
                    on -= {id(each) for each in group}
                    found.append(tuple(group))
            elif id(after) not in number:
                number[id(after)] = low[id(after)] = len(number)
                open_.append(after)
                on.add(id(after))
                work.append((after, iter(edges[id(after)])))
            elif id(after) in on:
                low[id(one)] = min(low[id(one)], number[id(after)])
    return found
