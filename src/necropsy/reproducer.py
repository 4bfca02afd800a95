"""The smallest call that is like the one that a process died in: the same types and shapes, and made-up contents."""

from __future__ import annotations

import json
import keyword
import math
import re

from necropsy.lazy_re import regex
from necropsy.model import Argument, Call

RAW_OPS = "tensorflow.raw_ops"
_TENSORS = frozenset({"EagerTensor", "Tensor"})
_OF_NUMPY = regex(r"(?:u?int|float|complex)\d{1,3}|bool")
_OF_TENSORFLOW = regex(r"q?u?int\d{1,2}|float\d\d|complex\d{2,3}|bfloat16|bool|string")
_NUMBER = regex(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_NOT_FINITE = {"nan", "inf", "-inf"}
_LITERAL = regex(r"None|True|False|\[[-\d, ]*\]")
_MODULE = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_POSITION = "argument "
_INFERRED = regex(r"T\w*|SrcT")
_ITEM = regex(r"(\w+)\[\d+\]")
_NOT_PASSED = "_NoValueType"
"""The type of a default that says that nothing was passed."""
_MANY = 1 << 27
"""Arrays of more elements are not filled: they only have the right shape."""
_IMPORTS = {"np.": "import numpy as np", "tf.": "import tensorflow as tf"}
_SCALARS = {"int", "float", "bool", "numpy.bool", "numpy.bool_"}


def code(call: Call) -> tuple[str, ...] | None:
    """Lines of Python that repeat ``call``; None if an argument or the function cannot be written as code.

    Arrays and texts have placeholder contents: zeros, or a value that was seen to be unusual.
    """
    if not call.arguments or not call.function.isidentifier():
        return None
    arguments = [one for one in call.arguments if one.type != _NOT_PASSED and not _is_inferred(one, call)]
    receiver = None
    if arguments and arguments[0].name == "self":
        receiver = _value(arguments.pop(0))
        if receiver is None or not receiver.startswith("np."):
            return None
    elif call.module is None or not _MODULE.fullmatch(call.module):
        return None
    values = [(one.name, _value(one)) for one in arguments]
    if any(value is None for _, value in values):
        return None
    passed = ", ".join(_joined([(name, value or "") for name, value in values]))
    if receiver is not None:
        line = f"{receiver}.{call.function}({passed})"
    elif call.module == RAW_OPS:
        line = f"tf.raw_ops.{call.function}({passed})"
    else:
        line = f"{call.module}.{call.function}({passed})"
    imports = [text for sign, text in _IMPORTS.items() if re.search(rf"\b{re.escape(sign)}", line)]
    own = [f"import {call.module}"] if receiver is None and call.module != RAW_OPS else []
    return *dict.fromkeys([*imports, *own]), line


def _is_inferred(one: Argument, call: Call) -> bool:
    """An attribute that TensorFlow derives from the inputs, such as their dtype or number; no caller passes it."""
    inputs = [each for each in call.arguments if each.type == "Tensor"]
    if one.type == "DType" and one.name != "Tout" and _INFERRED.fullmatch(one.name):
        return any(each.dtype == one.value for each in inputs)
    return one.name == "N" and one.type == "int" and any(_ITEM.fullmatch(each.name) for each in inputs)


def _joined(values: list[tuple[str, str]]) -> list[str]:
    """By position or by name; numbered items of a list are joined."""
    found: dict[str, list[str]] = {}
    lists: set[str] = set()
    for name, value in values:
        item = _ITEM.fullmatch(name)
        found.setdefault(item[1] if item else name, []).append(value)
        lists |= {item[1]} if item else set()
    written = {name: f"[{', '.join(each)}]" if name in lists else each[0] for name, each in found.items()}
    named = {name: value for name, value in written.items() if not name.startswith(_POSITION)}
    positional = [value for name, value in written.items() if name.startswith(_POSITION)]
    return [*positional, *(f"{name}={value}" for name, value in named.items() if not keyword.iskeyword(name))]


def _value(one: Argument) -> str | None:
    if one.type in _TENSORS:
        return _tensor(one)
    if one.type == "numpy.ndarray":
        return _array(one)
    if one.type == "str":
        return json.dumps(one.value or "")
    if one.type == "bytes":
        return 'b""'
    if one.type == "DType" and one.value and _OF_TENSORFLOW.fullmatch(one.value):
        return f"tf.{one.value}"
    if one.value is not None and _LITERAL.fullmatch(one.value):
        return one.value if one.type != "tuple" else f"tuple({one.value})"
    if one.type in {"list", "tuple"}:
        return ("[]" if one.type == "list" else "()") if one.shape == (0,) else None
    if one.type in _SCALARS and one.value is not None:
        return _number(one.value)
    numpy = one.type.removeprefix("numpy.")
    number = _number(one.value) if one.value is not None and numpy != one.type and _OF_NUMPY.fullmatch(numpy) else None
    return f"np.{numpy}({number})" if number is not None else None


def _number(text: str) -> str | None:
    if text in _NOT_FINITE:
        return f'float("{text}")'
    return text if _NUMBER.fullmatch(text) else None


def _filling(one: Argument) -> str | None:
    if one.value is not None:
        return one.value if one.value in {"True", "False"} else _number(one.value)
    if "nan" in one.unusual:
        return 'float("nan")'
    if "negative" in one.unusual:
        return "-1"
    return "2**31" if "huge" in one.unusual and math.prod(one.shape or ()) < 1 << 31 else None


def _tensor(one: Argument) -> str | None:
    if one.shape is None or one.dtype is None or not _OF_TENSORFLOW.fullmatch(one.dtype):
        return None
    shape, filling = list(one.shape), _filling(one)
    if one.dtype == "string":
        return f'tf.fill({shape}, "")'
    return (
        f"tf.zeros({shape}, tf.{one.dtype})"
        if filling is None
        else f"tf.fill({shape}, tf.constant({filling}, tf.{one.dtype}))"
    )


def _array(one: Argument) -> str | None:
    if one.shape is None or one.dtype is None or not _OF_NUMPY.fullmatch(one.dtype):
        return None
    dtype = "np.bool_" if one.dtype == "bool" else f"np.{one.dtype}"
    filling = _filling(one)
    scattered = "not-contiguous" in one.unusual
    shape = (*one.shape, 2) if scattered else one.shape
    if math.prod(shape) > _MANY:
        return f"np.broadcast_to(np.zeros((), {dtype}), {one.shape})"
    made = f"np.zeros({shape}, {dtype})" if filling is None else f"np.full({shape}, {filling}, {dtype})"
    return made + ("[..., 0]" if scattered else "")
