"""``flat<T>`` and the like with another type than the registration allows, through templates and helpers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Argument, Function, Kernel, RegisteredOp
from necropsy.audit.cxx.registrations import string
from necropsy.audit.cxx.types import parsed
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_VIEWS = frozenset(
    {"flat", "vec", "matrix", "tensor", "scalar", "unaligned_flat", "flat_inner_dims", "flat_outer_dims"}
    | {"flat_inner_outer_dims", "shaped", "unaligned_shaped"}
)
_NAMES = {
    "float": "float",
    "double": "double",
    **dict.fromkeys(("int", "int32", "int32_t", "signed int"), "int32"),
    **dict.fromkeys(("int64", "int64_t", "long long", "long", "long int", "long long int"), "int64"),
    **dict.fromkeys(("int16", "int16_t", "short"), "int16"),
    **dict.fromkeys(("int8", "int8_t", "signed char"), "int8"),
    **dict.fromkeys(("uint8", "uint8_t", "unsigned char"), "uint8"),
    **dict.fromkeys(("uint16", "uint16_t", "unsigned short"), "uint16"),
    **dict.fromkeys(("uint32", "uint32_t", "unsigned int", "unsigned"), "uint32"),
    **dict.fromkeys(("uint64", "uint64_t", "unsigned long long", "unsigned long"), "uint64"),
    "bool": "bool",
    **dict.fromkeys(("tstring", "tensorflow::tstring", "string", "std::string"), "string"),
    **dict.fromkeys(("Eigen::half", "half"), "half"),
    **dict.fromkeys(("bfloat16", "Eigen::bfloat16"), "bfloat16"),
    **dict.fromkeys(("complex64", "std::complex<float>"), "complex64"),
    **dict.fromkeys(("complex128", "std::complex<double>"), "complex128"),
    **dict.fromkeys(("qint8", "quint8", "qint16", "quint16", "qint32"), ""),
    **dict.fromkeys(("Variant", "variant"), "variant"),
    "ResourceHandle": "resource",
}
_REAL = (
    "float",
    "double",
    "int32",
    "uint8",
    "int16",
    "int8",
    "int64",
    "bfloat16",
    "half",
    "uint16",
    "uint32",
    "uint64",
)
_SETS = {
    "type": (*_REAL, "string", "bool", "complex64", "complex128"),
    "realnumbertype": _REAL,
    "numbertype": (*_REAL, "complex64", "complex128"),
}
_ASKS = re.compile(
    r"\bdtype\s*\(|MatchSignature|input_type\s*\(|expected_input|DataTypeToEnum|\bdtype_?\b|input_dtype|DataType\b"
)
_DEEPEST = 4
_CONTEXT = r"(?:->|\.)\s*"


@dataclass(frozen=True, eq=False)
class _Held:
    """The input or output that a variable is, and which types it may have."""

    what: str
    argument: Argument
    allowed: tuple[str, ...]
    line: str


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each access with a type that some registered kernel does not have there."""
    told: set[tuple[str, int]] = set()
    for kernel in one.unit.kernels:
        if kernel.op is None or kernel.compute is None or kernel.device not in {"", "CPU"}:
            continue
        with one.of(kernel.compute):
            if _asks(one, kernel):
                continue
            cls = kernel.cls
            bound = {}
            if cls is not None and cls.template and len(kernel.arguments) <= len(cls.template):
                bound = {each.name: given for each, given in zip(cls.template, kernel.arguments, strict=False)}
            for found in _in(one, kernel, kernel.op, kernel.compute, {}, bound, 0):
                key = (found.place.path, found.place.line)
                if key not in told:
                    told.add(key)
                    yield found


def _asks(one: Look, kernel: Kernel) -> bool:
    """The kernel looks at the types itself."""
    own = [kernel.compute, kernel.constructor]
    if kernel.cls is not None:
        own += one.unit.methods(kernel.cls)
    return any(each is not None and _ASKS.search(each.text(each.node)) is not None for each in own)


def _in(  # noqa: PLR0917 - what its caller has in hand
    one: Look,
    kernel: Kernel,
    op: RegisteredOp,
    function: Function,
    given: dict[str, _Held],
    bound: dict[str, str],
    depth: int,
) -> Iterator[CodeDefect]:
    held = dict(given)
    for each in locals_of(function):
        if each.value is not None and each.type.last in {"Tensor", "auto"}:
            found = _input(kernel, op, function.text(each.value)) or _output(kernel, op, function.text(each.value))
            if found is not None:
                held[each.name] = found
            else:
                held.pop(each.name, None)
    calls = [node for node in walk(function.body, into_scopes=True) if node.type == "call_expression"]
    for node in calls:
        _written(kernel, op, function, node, held)
    for node in calls:
        defect = _viewed(one, kernel, op, function, node, held, bound)
        if defect is not None:
            yield defect
    if depth >= _DEEPEST:
        return
    for call, target in one.calls.edges[id(function)]:
        passed = {
            parameter.name: held[name]
            for text, parameter in zip(call.texts, target.parameters, strict=False)
            if (name := re.sub(r"^[*&]+", "", text)) in held and parameter.type.last == "Tensor"
        }
        if passed and len(one.calls.targets(call)) == 1:
            inner = _bound_of(call.template, target, bound, same=target.class_name == function.class_name)
            yield from _in(one, kernel, op, target, passed, inner, depth + 1)


def _bound_of(template: str, target: Function, bound: dict[str, str], *, same: bool) -> dict[str, str]:
    if same:
        known = dict(bound)
        for each in target.template[len(bound) :]:
            known.pop(each.name, None)
    else:
        known = {}
    own = [each for each in target.template if each.name not in known]
    if template:
        for each, text in zip(own, parsed(f"X<{template}>").arguments, strict=False):
            known[each.name] = bound.get(text, text)
    return known


def _viewed(  # noqa: PLR0917 - what its caller has in hand
    one: Look,
    kernel: Kernel,
    op: RegisteredOp,
    function: Function,
    node: Node,
    held: dict[str, _Held],
    bound: dict[str, str],
) -> CodeDefect | None:
    called = node.child_by_field_name("function")
    text = function.text(called) if called is not None else ""
    match = re.fullmatch(r"(?s)(.+?)\s*(?:\.|->)\s*(?:template\s+)?(\w+)\s*<(.+)>\s*", text)
    if match is None or match[2] not in _VIEWS:
        return None
    receiver = match[1].strip()
    tensor = held.get(receiver) or _input(kernel, op, receiver)
    if tensor is None:
        return None
    written = parsed(f"X<{match[3]}>").arguments[0]
    used = _NAMES.get(_plain(bound.get(written, written)))
    wrong = [each for each in tensor.allowed if each != used]
    if not used or not wrong:
        return None
    never = used not in tensor.allowed
    attribute = op.attribute(tensor.argument.type)
    return one.defect(
        "op-type-unchecked",
        "never" if never else "sometimes",
        function.file.place(node),
        "access",
        function=function,
        names={
            "access": f"{match[2]}<{written}>",
            "as": used,
            "tensor": tensor.what,
            "declared": tensor.argument.type,
            "types": ", ".join(wrong[:4]),
            "attribute": attribute.name if attribute is not None else "",
        },
        facts=(
            CodeFact(
                claim="declared as", seen=f"{tensor.argument.name}: {tensor.argument.type}", where=where(op.place)
            ),
        ),
        severity="error",
        confidence="certain" if never else "likely",
    )


def _plain(text: str) -> str:
    return re.sub(r"^(?:::)?(?:tensorflow|tsl)::", "", " ".join(text.replace("const ", "").split()))


def _input(kernel: Kernel, op: RegisteredOp, text: str) -> _Held | None:
    found = re.fullmatch(rf"\s*\*?\s*\w+\s*{_CONTEXT}input\s*\(\s*(\w+|\"\w+\")\s*\)\s*", text)
    return _named(kernel, op, op.inputs, found[1], "input") if found is not None else None


def _output(kernel: Kernel, op: RegisteredOp, text: str) -> _Held | None:
    found = re.fullmatch(rf"\s*\*?\s*\w+\s*{_CONTEXT}mutable_output\s*\(\s*(\w+|\"\w+\")\s*\)\s*", text)
    return _named(kernel, op, op.outputs, found[1], "output") if found is not None else None


def _written(kernel: Kernel, op: RegisteredOp, function: Function, node: Node, held: dict[str, _Held]) -> None:
    """``input("x", &x)`` and ``allocate_output(0, shape, &y)``."""
    name, given = callee(function.file, node), [function.text(each) for each in arguments_of(node)]
    if name not in {"input", "allocate_output", "forward_input_or_allocate_output"} or not given:
        return
    variable = re.fullmatch(r"&\s*(\w+)", given[-1])
    which = next((each for each in given if re.fullmatch(r'\d+|"\w+"', each)), given[0])
    if variable is None:
        return
    if name == "input":
        found = _named(kernel, op, op.inputs, given[0], "input")
    else:
        which = given[1] if name.startswith("forward") and len(given) > 3 else which
        found = _named(kernel, op, op.outputs, which, "output")
    if found is not None and (variable[1] not in held or held[variable[1]].what == found.what):
        held[variable[1]] = found
    else:
        held.pop(variable[1], None)


def _named(kernel: Kernel, op: RegisteredOp, all_: tuple[Argument, ...], which: str, kind: str) -> _Held | None:
    if which.isdigit():
        number = int(which)
        if number >= len(all_) or any(_is_list(op, each) for each in all_[: number + 1]):
            return None
        argument = all_[number]
    else:
        name = string(which)
        found = [each for each in all_ if each.name == name]
        if not found or _is_list(op, found[0]):
            return None
        argument = found[0]
    allowed = _allowed(kernel, op, argument)
    return _Held(f"{kind} {argument.name}", argument, allowed, "") if allowed else None


def _is_list(op: RegisteredOp, argument: Argument) -> bool:
    attribute = op.attribute(argument.type)
    return argument.number is not None or (attribute is not None and attribute.type.startswith("list"))


def _allowed(kernel: Kernel, op: RegisteredOp, argument: Argument) -> tuple[str, ...]:
    """The types that a tensor may have in this kernel; empty where that is not known."""
    attribute = op.attribute(argument.type)
    if attribute is None:
        return (argument.type,) if argument.type in set(_NAMES.values()) else ()
    limited = [types for name, types in kernel.constraints if name == attribute.name]
    if limited:
        types = [each for text in limited for each in _types(text)]
        return tuple(types) if all(types) else ()
    if attribute.allowed:
        return attribute.allowed
    return _SETS.get(attribute.type, ())


def _types(text: str) -> list[str]:
    inner = text.strip().removeprefix("{").removesuffix("}")
    if "DT_" in inner:
        return [each.strip().rpartition("DT_")[2].lower() for each in inner.split(",")]
    return [_NAMES.get(_plain(inner), "")]
