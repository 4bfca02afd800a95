"""REGISTER_OP and REGISTER_KERNEL_BUILDER -> ops and kernels. Works on text: syntax errors do not matter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.audit.cxx.model import Argument, Attribute, Kernel, RegisteredOp, SourceFile
from necropsy.audit.cxx.tokens import TOKEN, arguments, closing
from necropsy.audit.cxx.types import parsed

_OP = re.compile(rb"\bREGISTER_(?:SYSTEM_)?OP\s*\(")
_KERNEL = re.compile(rb"\bREGISTER_(?:SYSTEM_)?KERNEL_BUILDER\s*\(")
_LEAST = re.compile(r"(.+?)\s*>=\s*(-?\d+)\s*$", re.DOTALL)
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')


def string(text: str) -> str | None:
    """The value of one or more adjacent string literals; None where there is none."""
    parts = _STRING.findall(text)
    return "".join(parts).replace('\\"', '"') if parts else None


def ops(file: SourceFile) -> Iterator[RegisteredOp]:
    """All ops that a file registers."""
    text = file.text.decode("latin-1")
    for one in _OP.finditer(file.text):
        end = closing(text, one.end() - 1)
        name = string(text[one.end() : end]) if end is not None else None
        if end is None or name is None:
            continue
        calls, stop = _chain(text, end + 1)
        values = {
            what: [string(given) or "" for word, given in calls if word == what] for what in ("Input", "Output", "Attr")
        }
        shape = next((given for word, given in calls if word == "SetShapeFn"), None)
        yield RegisteredOp(
            name=name,
            place=file.place_of(one.start(), stop),
            file=file,
            inputs=tuple(map(_argument, values["Input"])),
            outputs=tuple(map(_argument, values["Output"])),
            attributes=tuple(map(_attribute, values["Attr"])),
            shape_function=shape.strip() if shape is not None else None,
            is_stateful=any(word == "SetIsStateful" for word, _ in calls),
        )


def _chain(text: str, at: int) -> tuple[list[tuple[str, str]], int]:
    """The calls ``.Name(arguments)`` from an offset on, and where they end."""
    calls = []
    pattern = re.compile(r"\s*\.\s*(\w+)\s*(?:<([^()]*?)>\s*)?\(")
    while (found := pattern.match(text, at)) is not None:
        end = closing(text, found.end() - 1)
        if end is None:
            break
        given = text[found.end() : end]
        calls.append((found[1], f"{given}, <{found[2]}>" if found[2] else given))
        at = end + 1
    return calls, at


def _argument(text: str) -> Argument:
    name, _, type_ = (part.strip() for part in text.partition(":"))
    is_ref = type_.startswith("Ref(")
    inner = type_.removeprefix("Ref(").removesuffix(")") if is_ref else type_
    number, star, last = inner.partition("*")
    if star:
        return Argument(name, last.strip(), number.strip(), is_ref)
    return Argument(name, inner, None, is_ref)


def _attribute(text: str) -> Attribute:
    name, _, rest = (part.strip() for part in text.partition(":"))
    body, default = rest, None
    at = _default_at(rest)
    if at is not None:
        body, default = rest[:at].strip(), rest[at + 1 :].strip()
    least = _LEAST.match(body)
    minimum = int(least[2]) if least is not None else None
    body = least[1].strip() if least is not None else body
    inner = body.removeprefix("list(").removesuffix(")") if body.startswith("list(") else body
    allowed = tuple(one.strip().strip("'") for one in inner[1:-1].split(",")) if inner.startswith("{") else ()
    return Attribute(name, body, minimum, allowed, default)


def _default_at(text: str) -> int | None:
    """Where the ``=`` of a default is: not that of ``>=``."""
    return next((at for at, sign in enumerate(text) if sign == "=" and text[at - 1 : at] != ">"), None)


def kernels(file: SourceFile) -> Iterator[Kernel]:
    """All kernels that a file registers; their class and op are not looked up yet."""
    text = file.text.decode("latin-1")
    for one in _KERNEL.finditer(file.text):
        end = closing(text, one.end() - 1)
        if end is None:
            continue
        given = arguments(text[one.end() : end])
        head = re.match(r"\s*(?:::\s*)?(?:\w+\s*::\s*)*Name\s*\(", given[0]) if len(given) > 1 else None
        stop = closing(given[0], head.end() - 1) if head is not None else None
        if head is None or stop is None:
            continue
        calls, _ = _chain(given[0], stop + 1)
        cls = parsed(" ".join(", ".join(given[1:]).split()))
        yield Kernel(
            op_name=string(given[0][head.end() : stop]) or given[0][head.end() : stop].strip(),
            class_name=cls.name,
            arguments=cls.arguments,
            device=next((_device(inner) for word, inner in calls if word == "Device"), ""),
            place=file.place_of(one.start(), end + 1),
            host_memory=tuple(string(inner) or "" for word, inner in calls if word == "HostMemory"),
            constraints=tuple(_constraint(inner) for word, inner in calls if word == "TypeConstraint"),
        )


def _device(text: str) -> str:
    return string(text) or text.strip().removeprefix("DEVICE_").rpartition("::")[2].removeprefix("DEVICE_")


def _constraint(text: str) -> tuple[str, str]:
    name, _, types = text.partition(",")
    return string(name) or name.strip(), types.strip().removeprefix("<").removesuffix(">").strip()


def names_in(text: str) -> frozenset[str]:
    """All names in a piece of code."""
    return frozenset(one[0] for one in TOKEN.finditer(text) if one["name"] is not None)
