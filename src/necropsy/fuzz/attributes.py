"""The attributes of an op, read from the JSON of its OpDef."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMES = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16"}


@dataclass(frozen=True)
class Attribute:
    """An attribute of one of TensorFlow's types, such as ``int`` or ``list(shape)``."""

    name: str
    type: str
    minimum: int | None = None
    """The least value; of a list, its least length."""
    allowed: tuple[str, ...] = ()
    default: Any = None
    has_default: bool = False
    is_needed: bool = True
    """A call must name it, where it has no default."""


def dtype_of(name: str) -> str:
    """``float32`` for ``DT_FLOAT``."""
    return _NAMES.get(name, name.removeprefix("DT_").lower())


def attribute(one: Mapping[str, Any]) -> Attribute:
    """An attribute of the JSON of an OpDef."""
    allowed = one.get("allowedValues", {}).get("list", {})
    return Attribute(
        name=one["name"],
        type=one["type"],
        minimum=int(one.get("minimum", 0)) if one.get("hasMinimum") else None,
        allowed=(*map(dtype_of, allowed.get("type", ())), *map(_text, allowed.get("s", ()))),
        default=_value(one["type"], one["defaultValue"]) if "defaultValue" in one else None,
        has_default="defaultValue" in one,
    )


def _text(data: str) -> str:
    import base64  # protobuf writes bytes so

    return base64.b64decode(data).decode("utf-8", "replace")


def _value(kind: str, held: Mapping[str, Any]) -> Any:
    """The Python value of an AttrValue; None where it is one that calls do not name."""
    if kind.startswith("list("):
        items = held.get("list", {})
        inner = kind[5:-1]
        key = {"int": "i", "float": "f", "bool": "b", "string": "s", "type": "type", "shape": "shape"}.get(inner)
        return [_value(inner, {key: one}) for one in items.get(key, ())] if key is not None else None
    match kind:
        case "int":
            return int(held.get("i", 0))
        case "float":
            return float(held.get("f", 0.0))
        case "bool":
            return bool(held.get("b", False))
        case "string":
            return _text(held.get("s", ""))
        case "type":
            return {"type": dtype_of(held.get("type", "DT_FLOAT"))}
        case "shape":
            shape = held.get("shape", {})
            return None if shape.get("unknownRank") else [int(one.get("size", 0)) for one in shape.get("dim", ())]
        case _:
            return None
