"""Makes a call several times: whether its result depends on chance or on old memory, and whether inputs changed.

New memory is filled with one byte, then with another, where the guard allocator was loaded with the process.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple

from necropsy.fuzz.target import gradients, guarding

FILLS = (1, 127)
"""As floats, these bytes are a tiny number and a huge one."""
ROUNDS = 3
_TOLERANCE = 1e-3
"""Sums of floats depend on the order of the additions, a little."""
_SHOWN = 120
_LARGEST = 16 << 20
"""Bytes of a result that is compared: several are held at the same time."""
_NO_MEMORY = ("ResourceExhaustedError", "MemoryError")


class NotComparedError(Exception):
    """The results of a call cannot be compared."""


def compare(
    function: str, arguments: str, names: Dict[str, Any], refusals: Tuple[Any, ...], wanted: Optional[Dict[str, Any]]
) -> str:
    """What ``ROUNDS`` calls with each byte gave, as JSON: see ``CallComparison``.

    Raises:
        NotComparedError: there is not the memory for so many results.
        Exception: what making the inputs raises.

    """
    fills = FILLS if wanted is not None and guarding.is_loaded() else (None, None)
    results: List[List[Any]] = [[], []]
    modified: List[str] = []
    for _ in range(ROUNDS):
        for at, fill in enumerate(fills):
            guard = guarding.Guard(None if wanted is None or fill is None else dict(wanted, fill=fill))
            given = eval("dict(%s)" % arguments, names)
            before = {name: copied(one) for name, one in given.items()}
            try:
                with guard.call:
                    made = eval(function, names)(**given)
                results[at].append(copied(made))
            except refusals as error:
                if type(error).__name__ in _NO_MEMORY:
                    raise NotComparedError(type(error).__name__) from error
                results[at].append("%s" % type(error).__name__)
            if sum([one.nbytes for one in _flat(results[at][-1]) if hasattr(one, "nbytes")]) > _LARGEST:
                raise NotComparedError("the result is large")
            modified += [name for name, one in given.items() if not is_same(before[name], copied(one))]
    first, second = results
    varies = not all(is_same(several[0], one) for several in results for one in several[1:])
    differs = not is_same(first[0], second[0])
    found = {
        "varies": varies or (differs and fills[0] is None),
        "by_fill": differs and not varies and fills[0] is not None,
        "modified": sorted(set(modified)),
        "shapes": _other_shapes(function, arguments, names, first[0]),
        "gradient": _gradient(function, arguments, names, first[0]),
        "shown": [_shown(_other(first[0], results)), _shown(first[0])],
    }
    return json.dumps(found)


def _other_shapes(function: str, arguments: str, names: Dict[str, Any], result: Any) -> List[str]:
    """The first shape that the op's shape function infers in a graph and that is not the result's, and the result's."""
    tf = names.get("tf")
    if tf is None or isinstance(result, str):
        return []
    try:
        with tf.Graph().as_default():
            made = eval(function, names)(**eval("dict(%s)" % arguments, names))
            inferred = [one.shape for one in tf.nest.flatten(made) if hasattr(one, "shape")]
    except Exception:  # noqa: BLE001 - what a graph refuses has no shape
        return []
    real = [one.shape for one in _flat(result) if hasattr(one, "shape")]
    if len(real) != len(inferred):
        return []
    wrong = (at for at, one in enumerate(inferred) if not one.is_compatible_with(real[at]))
    return next(([str(inferred[at]), str(list(real[at]))] for at in wrong), [])


def _gradient(function: str, arguments: str, names: Dict[str, Any], result: Any) -> List[str]:
    """See ``gradients.wrong_gradient``; of a call that was accepted, where TensorFlow was loaded.

    TensorFlow tests the gradients of its own ops, and some of them are meant to differ: those of quantization.
    """
    tf, np = names.get("tf"), names.get("np")
    if tf is None or np is None or isinstance(result, str) or names.get("ops") is tf.raw_ops:
        return []
    return gradients.wrong_gradient(tf, np, eval(function, names), eval("dict(%s)" % arguments, names))


def _flat(value: Any) -> List[Any]:
    return [each for one in value for each in _flat(one)] if isinstance(value, list) else [value]


def _other(one: Any, results: List[List[Any]]) -> Any:
    return next((each for several in results for each in several if not is_same(one, each)), one)


def _shown(value: Any) -> str:
    listed = [_listed(one) for one in value] if isinstance(value, list) else _listed(value)
    return str(listed)[:_SHOWN]


def _listed(value: Any) -> Any:
    return value.ravel()[:16].tolist() if hasattr(value, "ravel") else value


def copied(value: Any) -> Any:
    """The value as NumPy arrays of its own, in lists; what has no value is a ``?``."""
    if isinstance(value, (list, tuple)):
        return [copied(one) for one in value]
    try:
        array = value.numpy() if hasattr(value, "numpy") else value
    except Exception:  # noqa: BLE001 - a resource has no value
        return "?"
    if hasattr(array, "dtype") and hasattr(array, "copy"):
        return array.copy()
    return array if isinstance(array, (int, float, complex, str, bytes, bool, type(None))) else "?"


def is_same(one: Any, other: Any) -> bool:
    """Equal, floats up to a small tolerance."""
    if isinstance(one, list) or isinstance(other, list):
        return type(one) is type(other) and len(one) == len(other) and all(map(is_same, one, other))
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.kind == "c":
            return is_same(one.real, other.real) and is_same(one.imag, other.imag)
        if one.dtype.hasobject or one.dtype.kind in "biuSU":
            return bool((one == other).all())
        return _is_near(one.astype("float64"), other.astype("float64"))
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other) or abs(one - other) <= _TOLERANCE * (abs(one) + abs(other))
    return type(one) is type(other) and bool(one == other)


def _is_near(one: Any, other: Any) -> bool:
    import numpy as np

    finite = np.concatenate([each.ravel()[np.isfinite(each.ravel())] for each in (one, other)])
    least = _TOLERANCE * float(np.abs(finite).max()) / 100 if finite.size else 0.0
    return bool(np.isclose(one, other, rtol=_TOLERANCE, atol=least, equal_nan=True).all())
