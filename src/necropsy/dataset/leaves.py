"""An element as leaves: path, kind, type and shape of each array, by attributes, since no framework is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Tuple

import numpy as np

Shape = Tuple[int, ...]
_names: dict[Any, str] = {}
"""Names of NumPy types, which take microseconds to compute."""
_NUMBERS = (bool, int, float, complex)


class Problem(NamedTuple):
    """Something that is wrong with one leaf, besides its values."""

    kind: str
    position: Shape | None
    value: str
    expected: str


class Leaf(NamedTuple):
    """One leaf. ``array``: its values where they can be compared; ``shape``: None where there is none."""

    path: str
    kind: str
    dtype: str | None
    shape: Shape | None
    array: Any = None
    problems: tuple[Problem, ...] = ()


def leaves_of(element: Any) -> list[Leaf]:
    """Every leaf of an element, in the order of its structure; the keys of a dict in their own order."""
    found: list[Leaf] = []
    _add(element, "", found)
    return found


def _add(value: Any, path: str, found: list[Leaf]) -> None:
    kind = type(value)
    if kind is np.ndarray:
        found.append(of_array(path, value))
    elif kind is dict or isinstance(value, Mapping):
        for key in value:
            _add(value[key], f"{path}[{key!r}]", found)
        _pairs(value, path, found)
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        for place, one in enumerate(value):
            _add(one, f"{path}.{names[place]}" if names else f"{path}[{place}]", found)
    elif kind is list and not is_array_like(value):
        for place, one in enumerate(value):
            _add(one, f"{path}[{place}]", found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _add(getattr(value, field.name), f"{path}.{field.name}", found)
    else:
        found.append(_leaf(value, path))


def is_array_like(value: Any) -> bool:
    """A list of numbers or texts, nested or not: one array. Any other list is a structure."""
    while isinstance(value, list):
        if not value:
            return True
        value = value[0]
    return isinstance(value, (*_NUMBERS, str, bytes, np.generic))


def of_array(path: str, array: Any, kind: str = "dense", problems: tuple[Problem, ...] = ()) -> Leaf:
    """The leaf of an array of NumPy."""
    dtype = array.dtype
    name = _names.get(dtype)
    if name is None:
        name = _names[dtype] = dtype.name
    letter = dtype.kind
    if letter in "SUO" or name.startswith("StringDType"):
        first = array.reshape(-1)[0] if array.size else ""
        if letter != "O" or isinstance(first, (str, bytes)):
            return Leaf(path, "string", "string", array.shape, None, problems)
        problem = Problem("dtype", None, f"objects of {type(first).__name__}", "numbers or text")
        return Leaf(path, "object", "object", array.shape, None, (*problems, problem))
    return Leaf(path, kind, name, array.shape, array, problems)


def _leaf(value: Any, path: str) -> Leaf:
    kind = type(value)
    if value is None:
        return Leaf(path, "none", None, None)
    if kind in _NUMBERS:
        return Leaf(path, "number", _python_type(value), (), np.asarray(value))
    if isinstance(value, (str, bytes)):
        return Leaf(path, "string", "string", ())
    if isinstance(value, (np.ndarray, np.generic)):
        return of_array(path, np.asarray(value))
    if isinstance(value, list):
        return _of_list(value, path)
    home = kind.__module__.partition(".")[0]
    if home == "tensorflow":
        return _of_tensorflow(value, path)
    if home == "torch" and hasattr(value, "layout"):
        return _of_torch(value, path)
    if hasattr(value, "tocoo") and hasattr(value, "shape"):
        return _of_scipy(value, path)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            return of_array(path, np.asarray(value))
        except Exception:  # noqa: BLE001 - whatever another library raises: it is no array
            return Leaf(path, "object", kind.__name__, None)
    return Leaf(path, "object", kind.__name__, None)


def _python_type(value: Any) -> str:
    return "bool" if isinstance(value, bool) else type(value).__name__


def _of_list(value: Any, path: str) -> Leaf:
    try:
        return of_array(path, np.array(value))
    except (ValueError, TypeError, OverflowError) as error:
        lengths = sorted({len(one) for one in value if isinstance(one, list)})
        seen = f"rows of {lengths[0]} and of {lengths[-1]} values" if len(lengths) > 1 else str(error)
        return Leaf(path, "object", "object", None, None, (Problem("inconsistent", None, seen, "rows of one length"),))


def _of_tensorflow(value: Any, path: str) -> Leaf:
    if hasattr(value, "nested_row_splits") and hasattr(value, "flat_values"):
        return _of_ragged(value, path)
    if hasattr(value, "dense_shape") and hasattr(value, "indices"):
        values, shape = array_of(value.values), array_of(value.dense_shape)
        return _of_indices(path, array_of(value.indices), values, tuple(int(one) for one in shape))
    if hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "numpy"):
        if value.dtype.name in {"string", "variant", "resource"}:
            kind = "string" if value.dtype.name == "string" else "object"
            return Leaf(path, kind, value.dtype.name, tuple(value.shape))
        return of_array(path, array_of(value))
    return Leaf(path, "object", type(value).__name__, None)


def array_of(tensor: Any) -> Any:
    """The values of a tensor of TensorFlow, in place where that is possible; ``numpy()`` would copy them."""
    try:
        return np.asarray(memoryview(tensor))
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return np.asarray(tensor.numpy())


def _of_ragged(value: Any, path: str) -> Leaf:
    values = array_of(value.flat_values) if value.dtype.name != "string" else None
    inner = value.values
    problems: list[Problem] = []
    splits = value.nested_row_splits
    for level, one in enumerate(splits):
        below = splits[level + 1].shape[0] - 1 if level + 1 < len(splits) else int(value.flat_values.shape[0])
        problem = broken_splits(array_of(one), int(below))
        if problem is not None:
            problems.append(problem)
    rank = len(inner.shape) + 1 if inner.shape.rank is not None else None
    shape = (int(splits[0].shape[0]) - 1, *(-1 for _ in range((rank or 2) - 1)))
    dtype = value.dtype.name
    return Leaf(path, "ragged", dtype, shape, values, tuple(problems))


def broken_splits(splits: Any, values: int) -> Problem | None:
    """What is wrong with row splits (or offsets) over so many values, if anything is."""
    if splits.ndim != 1 or not splits.size:
        return None
    if splits[0] != 0:
        return Problem("ragged", (0,), str(int(splits[0])), "0")
    steps = np.diff(splits)
    if steps.size and steps.min() < 0:
        at = int((steps < 0).argmax()) + 1
        return Problem("ragged", (at,), str(int(splits[at])), f"at least {int(splits[at - 1])}, as before it")
    if splits[-1] > values:
        at = int((splits > values).argmax())
        return Problem("ragged", (at,), str(int(splits[at])), f"at most {values}, the number of values")
    return None


def _of_indices(path: str, indices: Any, values: Any, shape: Shape) -> Leaf:
    problems: tuple[Problem, ...] = ()
    if indices.ndim == 2 and indices.shape[1] == len(shape) and indices.size:
        wrong = (indices < 0) | (indices >= np.array(shape))
        if wrong.any():
            row, axis = (int(one) for one in np.argwhere(wrong)[0])
            expected = f"0 to {shape[axis] - 1} on axis {axis}"
            problems = (Problem("index", (row, axis), str(int(indices[row, axis])), expected),)
    return Leaf(path, "sparse", values.dtype.name, shape, values if values.dtype.kind in "biufc" else None, problems)


def _of_torch(value: Any, path: str) -> Leaf:
    tensor = value.detach()
    if "sparse_coo" in str(value.layout):
        # `indices()` refuses a tensor that was not coalesced, and to coalesce a broken one can crash.
        indices = tensor._indices().cpu().numpy().T  # noqa: SLF001 - see above
        values = tensor._values().cpu().numpy()  # noqa: SLF001 - see above
        return _of_indices(path, indices, values, tuple(value.shape))
    if "strided" not in str(value.layout):
        return Leaf(path, "sparse", str(value.dtype).rpartition(".")[2], tuple(value.shape))
    tensor = tensor.cpu()
    dtype = str(value.dtype).rpartition(".")[2]
    try:
        return of_array(path, tensor.numpy())
    except TypeError:  # bfloat16 and its like
        return Leaf(path, "dense", dtype, tuple(value.shape), tensor.float().numpy())


def _of_scipy(value: Any, path: str) -> Leaf:
    shape = tuple(int(one) for one in value.shape)
    problems: list[Problem] = []
    if hasattr(value, "indptr"):
        axis = 0 if value.format == "csc" else 1
        problem = broken_splits(value.indptr, len(value.indices))
        problems += [problem] if problem is not None else []
        wrong = (value.indices < 0) | (value.indices >= shape[axis])
        if wrong.any() and value.format in {"csr", "csc"}:
            at = int(wrong.argmax())
            expected = f"0 to {shape[axis] - 1} on axis {axis}"
            problems.append(Problem("index", (at,), str(int(value.indices[at])), expected))
    data = getattr(value, "data", None)
    array = data if isinstance(data, np.ndarray) and data.dtype.kind in "biufc" else None
    return Leaf(path, "sparse", value.dtype.name, shape, array, tuple(problems))


def _pairs(value: Any, path: str, found: list[Leaf]) -> None:
    """Values and their row splits or offsets, as separate arrays of one dict."""
    for name in ("row_splits", "offsets"):
        if name not in value or "values" not in value:
            continue
        at = {leaf.path: place for place, leaf in enumerate(found)}
        splits = at.get(f"{path}[{name!r}]")
        values = at.get(f"{path}['values']")
        if splits is None or values is None:
            continue
        leaf, whole = found[splits], found[values].shape
        if leaf.array is None or leaf.array.dtype.kind not in "iu" or leaf.array.ndim != 1 or not whole:
            continue
        problem = broken_splits(leaf.array, whole[0])
        if problem is not None:
            found[splits] = leaf._replace(problems=(*leaf.problems, problem))
