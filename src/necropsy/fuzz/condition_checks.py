"""Writes a condition as the line that enforces it: ``OP_REQUIRES`` in a kernel, ``raise ValueError`` in Python."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from necropsy.fuzz.conditions import ELEMENTS, Condition, Term
from necropsy.fuzz.definitions import Argument, OpDefinition

_CPP_TYPES = {"float32": "float", "float64": "double", "float16": "Eigen::half", "string": "tstring", "bool": "bool"}
_NOT = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_WORDS = {
    "==": "must be",
    "!=": "must not be",
    "<": "must be less than",
    "<=": "must be at most",
    ">": "must be greater than",
    ">=": "must be at least",
}


def check(conditions: Sequence[Condition], op: OpDefinition) -> str | None:
    """The lines, one for each condition; None where an input has no place of its own in the kernel's context.

    The kernel does not know either what its resource was made with.
    """
    if any("." in term.name for one in conditions for term in _terms(one)):
        return None
    if op.is_python:
        lines: list[str | None] = [_python(one, op) for one in conditions]
    else:
        lines = [_cpp(one, op) for one in conditions]
    return None if None in lines else "\n".join(one for one in lines if one is not None)


def said(one: Condition) -> str:
    """``max(rows) must be less than dim(params, 0)``."""
    if one.left.part == "zeros":
        return f"{one.left.name} must not have a zero"
    return f"{one.left} {_WORDS[one.comparison]} {one.right}"


# ------------------------------------------------------------ C++


def _cpp(one: Condition, op: OpDefinition) -> str | None:
    places = [_place(term, op) for term in _terms(one) if term.name in {each.name for each in op.inputs}]
    if None in places:
        return None
    right = _cpp_term(one.right, op) if isinstance(one.right, Term) else str(one.right)
    guards = [
        f"{_place(term, op)}.dims() > {term.axis}" for term in _terms(one) if term.part == "dim"
    ]  # dim_size() of a dimension that is not there ends the process
    if one.left.part in ELEMENTS and not (one.left.part == "length" and not places):
        value = "v.size()" if one.left.part == "length" else "v"
        said_of_each = f"{value} != 0" if one.left.part == "zeros" else f"{value} {one.comparison} {right}"
        body = f"std::all_of({_cpp_elements(one.left, op)} v) {{ return {said_of_each}; }})"
    else:
        body = f"{_cpp_term(one.left, op)} {one.comparison} {right}"
    return f'OP_REQUIRES(ctx, {" && ".join([*guards, body])}, errors::InvalidArgument("{said(one)}"));'


def _cpp_elements(term: Term, op: OpDefinition) -> str:
    """Where the elements lie, and the type of one."""
    place = _place(term, op)
    if place is None:
        return f"{term.name}.begin(), {term.name}.end(), [&](auto"
    kind = _cpp_type(next(one for one in op.inputs if one.name == term.name))
    flat = f"{place}.flat<{kind}>().data()"
    return f"{flat}, {flat} + {place}.NumElements(), [&]({f'const {kind}&' if kind == 'tstring' else kind}"


def _terms(one: Condition) -> list[Term]:
    return [one.left, *([one.right] if isinstance(one.right, Term) else [])]


def _place(term: Term, op: OpDefinition) -> str | None:
    """``ctx->input(1)``, where no list of inputs stands before it."""
    taken = {each.place for each in op.handles}
    for at, one in zip((each for each in itertools.count() if each not in taken), op.inputs, strict=False):
        if one.number is not None or one.types is not None:
            return None
        if one.name == term.name:
            return f"ctx->input({at})"
    return None


def _cpp_term(term: Term, op: OpDefinition) -> str:
    place = _place(term, op)
    match term.part:
        case "rank":
            return f"{place}.dims()"
        case "size":
            return f"{place}.NumElements()" if place is not None else f"static_cast<int64_t>({term.name}.size())"
        case "dim":
            return f"{place}.dim_size({term.axis})"
        case "length":
            return f"{term.name}.size()"
        case _:
            return term.name


def _cpp_type(one: Argument) -> str:
    if one.dtype is None:
        return one.type_attribute or "T"
    return _CPP_TYPES.get(one.dtype, f"{one.dtype}_t")


# ------------------------------------------------------------ Python


def _python(one: Condition, op: OpDefinition) -> str:
    arrays = {each.name: _array(each) for each in op.inputs}
    right = _python_term(one.right, arrays) if isinstance(one.right, Term) else str(one.right)
    guards = [f"{arrays[term.name]}.ndim <= {term.axis}" for term in _terms(one) if term.part == "dim"]
    name, contrary = arrays.get(one.left.name, one.left.name), _NOT[one.comparison]
    if one.left.part == "zeros":
        body = f"({name} == 0).any()"
    elif one.left.part in {"min", "max"} and one.left.name in arrays:
        body = f"({name} {contrary} {right}).any()"
    elif one.left.part in {"min", "max"}:
        body = f"any(one {contrary} {right} for one in {name})"
    else:
        body = f"{_python_term(one.left, arrays)} {contrary} {right}"
    return f'if {" or ".join([*guards, body])}: raise ValueError("{said(one)}")'


def _array(one: Argument) -> str:
    """The expression for the NumPy array of an input."""
    if one.part_of is not None:
        parameter = one.part_of[0]
        return f"np.asarray({parameter}.{one.name.removeprefix(f'{parameter}_')})"
    return one.name if one.library is None else f"np.asarray({one.name})"


def _python_term(term: Term, arrays: Mapping[str, str]) -> str:
    name = arrays.get(term.name, term.name)
    match term.part:
        case "rank":
            return f"{name}.ndim"
        case "size":
            return f"{name}.size" if term.name in arrays else f"len({name})"
        case "dim":
            return f"{name}.shape[{term.axis}]"
        case "length":
            return f"len({name})"
        case _:
            return name
