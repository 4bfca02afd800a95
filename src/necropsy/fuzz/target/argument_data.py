"""Turns an argument of a call into data that JSON has: a tensor becomes its type, its shape and a few elements.

``{"tensor": {"dtype": "int32", "shape": [3], "kind": "cycle", "items": [0, 2, 1]}}``: ``kind`` is one of those of
recipes, or ``unknown`` for a tensor of a graph. ``weak`` marks a tensor that was made of Python numbers: it takes the
type that the target wants. ``{"tensors": [...]}``, ``{"type": "float32"}``, ``{"shape": [2, null]}`` and
``{"bytes": "ab"}`` (Latin-1) are what they say, ``{"list": [...]}`` and ``{"plain": 1}`` are Python's.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional

MOST_ITEMS = 64
"""Elements of a tensor that are kept as they are; larger ones become a range of numbers, or these repeated."""
_MOST_LOOKED_AT = 1000000
_MOST_TEXT = 2000
_UNKNOWN_SIZE = 2
_PLAIN = (bool, int, float, str, type(None))


def data_of(value: Any) -> Optional[Dict[str, Any]]:
    """The argument as data; None where it has no such form."""
    if isinstance(value, _PLAIN):
        return {"plain": value[:_MOST_TEXT] if isinstance(value, str) else value}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value[:_MOST_TEXT]).decode("latin-1")}
    if isinstance(value, (list, tuple)):
        return _of_list(value)
    name = type(value).__name__
    if name == "DType" or (isinstance(value, type) and value.__module__ == "numpy"):
        return {"type": getattr(value, "name", None) or value.__name__}
    if name == "TensorShape":
        return {"shape": None if value.rank is None else list(value.as_list())}
    tensor = tensor_of(value)
    return None if tensor is None else {"tensor": tensor}


def tensor_of(value: Any) -> Optional[Dict[str, Any]]:
    """An array or a tensor as data, or what one can be made of."""
    numpy = sys.modules.get("numpy")
    dtype = getattr(value, "dtype", None)
    if numpy is None:
        return None
    if dtype is None:
        weak = _array_of_numbers(value, numpy)
        return None if weak is None else {**weak, "weak": True}
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return _of_array(numpy.asarray(value), value.dtype.name)
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    try:
        found = value.detach().cpu() if hasattr(value, "detach") else value
        array = numpy.asarray(found.numpy())
    except Exception:  # noqa: BLE001 - a tensor of a graph has no elements yet
        return _of_symbol(value, name)
    return _of_array(array, name)


def _of_list(several: Any) -> Optional[Dict[str, Any]]:
    if several and any(hasattr(one, "dtype") for one in several):
        tensors = [tensor_of(one) for one in several[:MOST_ITEMS]]
        return None if None in tensors else {"tensors": tensors}
    found = [data_of(one) for one in several[:MOST_ITEMS]]
    return None if None in found else {"list": found}


def _array_of_numbers(value: Any, numpy: Any) -> Optional[Dict[str, Any]]:
    """What TensorFlow makes of Python's numbers: of 32 bits, unless they do not fit."""
    if not isinstance(value, (bool, int, float, str, bytes, list, tuple)):
        return None
    array = numpy.asarray(value)
    if array.dtype == numpy.float64:
        return _of_array(array, "float32")
    if array.dtype == numpy.int64 and (not array.size or abs(array).max() < 1 << 31):
        return _of_array(array, "int32")
    return _of_array(array, array.dtype.name)


def _of_symbol(value: Any, name: str) -> Optional[Dict[str, Any]]:
    try:
        shape = value.shape.as_list()
    except Exception:  # noqa: BLE001 - of unknown rank, or no tensor
        return None
    constant = None
    module = sys.modules.get("tensorflow.python.framework.tensor_util")
    if module is not None:
        constant = module.constant_value(value)
    if constant is not None:
        return _of_array(constant, name)
    sizes = [_UNKNOWN_SIZE if size is None else size for size in shape]
    return {"dtype": name, "shape": sizes, "kind": "unknown", "items": []}


def _of_array(array: Any, name: str) -> Optional[Dict[str, Any]]:
    if array.dtype.fields:
        array = array.view(array.dtype[0])  # TensorFlow's quantized types
    found: Dict[str, Any] = {"dtype": name, "shape": list(array.shape)}
    if array.dtype.kind in "SUO":
        items: List[Any] = [_text(one) for one in array.reshape(-1)[:MOST_ITEMS].tolist()]
        if any(one is None for one in items):
            return None
        found["dtype"] = "string"
        return {**found, **_listed(items)}
    if array.dtype.kind == "c":
        array = array.real
    elif array.dtype.kind not in "biuf":
        array = array.astype("float32")  # bfloat16
    part = array.reshape(-1)[:_MOST_LOOKED_AT]
    if part.size <= MOST_ITEMS or array.dtype.kind == "b":
        return {**found, **_listed(part[:MOST_ITEMS].tolist())}
    return {**found, **_ranged(part)}


def _listed(items: List[Any]) -> Dict[str, Any]:
    if not items or all(one == items[0] for one in items):
        return {"kind": "same" if items else "unknown", "items": items[:1]}
    return {"kind": "cycle", "items": items}


def _ranged(part: Any) -> Dict[str, Any]:
    """Many numbers in few: a constant, a ramp, or where they lie."""
    least, most = part.min().item(), part.max().item()
    if least == most:
        return {"kind": "same", "items": [least]}
    if part.dtype.kind in "iu":
        step = part[1].item() - part[0].item()
        if most - least == abs(step) * (part.size - 1) and (part[1:] - part[:-1] == part.dtype.type(step)).all():
            return {"kind": "ramp", "items": [part[0].item(), step]}
        if most < (1 << 63) - 1:
            return {"kind": "random", "items": [1, least, most + 1]}
    elif abs(least) < float("inf") and abs(most) < float("inf"):
        return {"kind": "random", "items": [1, least, most]}
    return _listed(part[:MOST_ITEMS].tolist())


def _text(one: Any) -> Optional[str]:
    """The bytes of a string tensor's element, in Latin-1."""
    if isinstance(one, str):
        one = one.encode("utf-8", "surrogateescape")
    return bytes(one[:_MOST_TEXT]).decode("latin-1") if isinstance(one, bytes) else None
