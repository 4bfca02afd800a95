"""Runs every kernel of a unit: first the constructor, then Compute with the members that it left."""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Class, Function, Kernel
from necropsy.audit.cxx.symbolic.judging import Judge
from necropsy.audit.cxx.symbolic.loops import Loops
from necropsy.audit.cxx.symbolic.machine import Frame
from necropsy.audit.cxx.symbolic.objects import CONTEXT, UNKNOWN, Value
from necropsy.model import CodeDefect

_COMPUTES = frozenset({"Compute", "ComputeAsync"})


def look(one: Look) -> Iterator[CodeDefect]:
    """What the kernels of the unit do not check."""
    judge = Judge(one)
    done: set[int] = set()
    for kernel in one.unit.kernels:
        if kernel.compute is None or kernel.cls is None or id(kernel.compute) in done or kernel.device == "GPU":
            continue
        done.add(id(kernel.compute))
        with one.of(kernel.compute):
            _run(one, judge, kernel.cls, (kernel.constructor, kernel.compute), kernel)
    for function in one.unit.functions:
        if function.name in _COMPUTES and function.class_name is not None and id(function) not in done:
            cls = one.unit.class_named(function.class_name)
            if cls is not None and _takes_context(function):
                with one.of(function):
                    constructor = next((each for each in one.unit.methods(cls) if each.is_constructor), None)
                    _run(one, judge, cls, (constructor, function), None)
    one.undecided += len(judge.undecided)
    yield from judge.found.values()


def _takes_context(function: Function) -> bool:
    return any(each.type.last == "OpKernelContext" for each in function.parameters)


def _run(one: Look, judge: Judge, cls: Class, both: tuple[Function | None, Function], kernel: Kernel | None) -> None:
    constructor, compute = both
    judge.kernel = kernel
    machine = Loops(one, judge, kernel)
    bound = _bound(cls, kernel)
    machine.frames.append(Frame(compute, {}, bound=bound))
    this = machine.object_of(cls)
    if constructor is not None:
        try:
            _start(machine, constructor, this, bound)
        finally:
            if machine.is_dead:  # it never succeeds as far as is known: better without what it left
                machine = Loops(one, judge, kernel)
                machine.frames.append(Frame(compute, {}, bound=bound))
                this = machine.object_of(cls)
    machine.state.is_open = False
    _start(machine, compute, this, bound)


def _start(machine: Loops, function: Function, this: Value, bound: dict[str, str]) -> None:
    values = [
        CONTEXT if each.type.last in {"OpKernelContext", "OpKernelConstruction"} else UNKNOWN
        for each in function.parameters
    ]
    machine.frames[0] = Frame(function, {}, this, bound=bound)
    frame = Frame(function, {}, this, bound=bound)
    for each, value in zip(function.parameters, values, strict=True):
        frame.names[each.name] = machine.new(value)
    machine.frames.pop()
    machine.frames.append(frame)
    if function.initializers is not None:
        machine.initialize(function.initializers)
    machine.run(function.body)
    ends = [state for state, _ in frame.returns] + [machine.state]
    machine.state = machine.meet(ends)


def _bound(cls: Class, kernel: Kernel | None) -> dict[str, str]:
    """What the template parameters of a kernel's class are."""
    found = {}
    for number, one in enumerate(cls.template):
        given = kernel.arguments if kernel is not None else ()
        text = given[number] if number < len(given) else one.default
        if text is not None and one.name and text != one.name:
            found[one.name] = text
    return found
