"""The deepest path of calls below a kernel: templates count once for each of their instances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx.frames import SHARE
from necropsy.audit.cxx.looking import Look, shown, where
from necropsy.audit.cxx.model import Class, Function, TemplateParameter
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import parsed
from necropsy.model import CodeDefect, CodeFact

_OVERHEAD = 48
_MOST = 4000
_DEEPEST = 400
_SHOWN = 4
_Bound = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Path:
    bytes: int
    steps: tuple[tuple[Function, int], ...]


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each kernel below which the frames together exceed the stack, but no single one does."""
    told: set[int] = set()
    for kernel in one.unit.kernels:
        compute = kernel.compute
        if compute is None or id(compute) in told:
            continue
        told.add(id(compute))
        with one.of(compute):
            cls = kernel.cls
            bound: _Bound = ()
            if cls is not None:
                bound = tuple((each.name, given) for each, given in zip(cls.template, kernel.arguments, strict=False))
            path = _Deepest(one).below(compute, bound, ())
            if path.bytes < one.stack or any(size >= one.stack // SHARE for _, size in path.steps):
                continue
            yield _told(one, compute, path)


@dataclass
class _Deepest:
    one: Look
    _known: dict[tuple[int, _Bound], _Path] = field(default_factory=dict)

    def below(self, function: Function, bound: _Bound, around: tuple[tuple[int, _Bound], ...]) -> _Path:
        """The deepest path from a function on; a function that is on the path already is not counted again."""
        key = (id(function), bound)
        if key in self._known:
            return self._known[key]
        if key in around or len(around) > _DEEPEST or len(self._known) > _MOST:
            return _Path(0, ())
        own = self._frame(function, dict(bound))
        deepest = _Path(0, ())
        for call, target in (*self.one.calls.edges[id(function)], *self._of_instances(function)):
            found = self.instance(call, target, dict(bound))
            if found is None:
                continue
            path = self.below(*found, (*around, key))
            if path.bytes > deepest.bytes:
                deepest = path
        known = _Path(own + deepest.bytes, ((function, own), *deepest.steps))
        self._known[key] = known
        return known

    def _of_instances(self, function: Function) -> Iterator[tuple[Call, Function]]:
        """Calls such as ``Level<kLevel - 1>::Solve(x)``, which name an instance of a class template."""
        for call in self.one.calls.calls(function):
            if "<" not in call.scope or call.scope.startswith(("std::", "Eigen::", "absl::")):
                continue
            ends = f"{parsed(call.scope).name}::{call.name}"
            for target in self.one.unit.named(call.name):
                if target.template and (target.qualified == ends or target.qualified.endswith(f"::{ends}")):
                    yield call, target

    def instance(self, call: Call, target: Function, bound: dict[str, str]) -> tuple[Function, _Bound] | None:
        """The function that a call reaches, with what its template parameters are; None where that is not known."""
        if not target.template:
            return target, ()
        scope = parsed(call.scope) if "<" in call.scope else None
        given = [self._value(text, bound, call.caller) for text in scope.arguments] if scope is not None else []
        if scope is not None:
            special = self._specialised(target, scope.last, given)
            if special is not None:
                return special, ()
            return target, self._pairs(target.template, given)
        if call.template:
            return target, self._pairs(
                target.template[-len(parsed(f"X<{call.template}>").arguments) :],
                [self._value(text, bound, call.caller) for text in parsed(f"X<{call.template}>").arguments],
            )
        if target.class_name == call.caller.class_name:
            return target, tuple(bound.items())
        return target, ()

    def _value(self, text: str, bound: dict[str, str], caller: Function) -> str:
        number = Sizes(self.one.unit, bound, caller.qualified).value(text)
        return str(number) if number is not None else bound.get(text, text)

    def _specialised(self, target: Function, name: str, given: list[str]) -> Function | None:
        """The function of the same name in the specialisation of its class for these arguments."""
        for several in self.one.unit.classes.values():
            for cls in several:
                if cls.name == name and cls.arguments and [each.strip() for each in cls.arguments] == given:
                    found = [each for each in self.one.unit.named(target.name) if _is_in(each, cls)]
                    if found:
                        return found[0]
        return None

    @staticmethod
    def _pairs(template: tuple[TemplateParameter, ...], given: list[str]) -> _Bound:
        return tuple((each.name, text) for each, text in zip(template, given, strict=False))

    def _frame(self, function: Function, bound: dict[str, str]) -> int:
        sizes = Sizes(self.one.unit, bound, function.qualified)
        return _OVERHEAD + sum(
            sizes.bytes(each.type) or 8
            for each in locals_of(function)
            if not each.is_static and not each.type.reference
        )


def _is_in(function: Function, cls: Class) -> bool:
    return function.file is cls.file and cls.node.start_byte <= function.node.start_byte < cls.node.end_byte


def _told(one: Look, compute: Function, path: _Path) -> CodeDefect:
    largest = sorted(path.steps, key=lambda each: -each[1])[:_SHOWN]
    order = [f"{shown(function)} ({size:,} bytes)" for function, size in path.steps]
    text = " -> ".join(order if len(order) <= 2 * _SHOWN else [*order[:_SHOWN], "...", *order[-2:]])
    return one.defect(
        "op-stack-depth",
        "source",
        compute.place,
        "function",
        function=compute,
        others=tuple(one.place(function.place, "call") for function, _ in largest if function is not compute),
        names={"largest": shown(largest[0][0]), "path": re.sub(r"\s+", " ", text)},
        numbers={"bytes": path.bytes, "calls": len(path.steps), "frame": largest[0][1]},
        facts=tuple(
            CodeFact(claim=f"frame of {shown(function)}", seen=f"{size:,} bytes", where=where(function.place))
            for function, size in largest
        ),
        severity="warning",
        confidence="likely",
        stack=one.stack,
    )
