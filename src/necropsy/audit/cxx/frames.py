"""Functions whose local variables take a large share of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.audit.cxx.declarators import Local, locals_of
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Function, TemplateParameter, Unit
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import angle_end, parsed
from necropsy.model import CodeDefect, CodeFact

SHARE = 8
"""A finding from an eighth of the stack on, as for built libraries."""
_SHOWN = 4
_MOST_BINDINGS = 24
_DEEPEST = 3


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each function whose locals take at least an eighth of the stack."""
    for function in one.unit.functions:
        with one.of(function):
            found = _judged(one, function)
            if found is not None:
                yield found


def _judged(one: Look, function: Function) -> CodeDefect | None:
    kept = [each for each in locals_of(function) if not each.is_static and not each.type.is_indirect]
    if not kept:
        return None
    largest = max((_measured(one.unit, function, kept, bound) for bound in bindings(one.unit, function)), key=_total)
    total = _total(largest)
    if total < one.stack // SHARE:
        return None
    largest.sort(key=lambda each: -each[1])
    first = largest[0][0]
    shown = [(each, size) for each, size in largest[:_SHOWN] if size * SHARE >= total]
    kernel = one.calls.kernel_of(function)
    always = kernel is not None and (kernel.compute is function or kernel.constructor is function)
    return one.defect(
        "op-large-frame",
        "locals",
        first.place,
        "declaration",
        function=function,
        others=tuple(one.place(each.place, "declaration") for each, _ in shown[1:]),
        names={"variables": ", ".join(each.name for each, _ in shown), "type": str(first.type)},
        numbers={"bytes": total, "largest": largest[0][1]},
        facts=tuple(
            CodeFact(
                claim="size of a local variable",
                seen=f"{each.type} {each.name}: {size:,} bytes",
                where=where(each.place),
            )
            for each, size in shown
        ),
        severity="error" if total >= one.stack and always else "warning",
        confidence="certain",
        stack=one.stack,
    )


def _total(measured: list[tuple[Local, int]]) -> int:
    return sum(size for _, size in measured)


def _measured(unit: Unit, function: Function, kept: list[Local], bound: dict[str, str]) -> list[tuple[Local, int]]:
    sizes = Sizes(unit, bound, function.qualified)
    return [(each, sizes.bytes(each.type) or 0) for each in kept]


def bindings(unit: Unit, function: Function, depth: int = 0) -> list[dict[str, str]]:
    """What the template parameters of a function are, once for each use of the template that is written out.

    A use in another template has the arguments of that one: ``Functor<T>`` in ``FooOp<float>`` is ``Functor<float>``.
    """
    if not function.template:
        return [{}]
    names = {function.name: function.template}
    cls = unit.class_named(function.class_name) if function.class_name is not None else None
    if cls is not None and cls.template:
        names = {cls.name: cls.template}
        if len(function.template) > len(cls.template):
            names[function.name] = function.template[len(cls.template) :]
    found: list[dict[str, str]] = [{one.name: one.default for one in function.template if one.default and one.name}]
    for name, parameters in names.items():
        if name not in unit.template_uses:
            unit.template_uses[name] = list(_uses(unit, name))
        for given, around in unit.template_uses[name]:
            outer = bindings(unit, around, depth + 1) if around is not None and depth < _DEEPEST else [{}]
            for known in outer:
                one = _bound(parameters, tuple(known.get(text, text) for text in given))
                if one and one not in found:
                    found.append(one)
    return found[:_MOST_BINDINGS]


def _bound(parameters: tuple[TemplateParameter, ...], given: tuple[str, ...]) -> dict[str, str]:
    known = {}
    for number, one in enumerate(parameters):
        text = given[number] if number < len(given) else one.default
        if text is not None and one.name and not one.is_pack and text != one.name:
            known[one.name] = text
    return known


def _uses(unit: Unit, name: str) -> Iterator[tuple[tuple[str, ...], Function | None]]:
    """The template arguments with which the name is written, and the template function around them."""
    for file in unit.files:
        text = file.text.decode("latin-1")
        for one in re.finditer(rf"\b{re.escape(name)}\s*<", text):
            end = angle_end(text[: one.end() + 400], one.end() - 1)
            if end is not None:
                around = [
                    each
                    for each in unit.functions
                    if each.file is file and each.template and each.body.start_byte < one.start() < each.body.end_byte
                ]
                yield parsed(text[one.start() : end + 1]).arguments, around[0] if around else None
