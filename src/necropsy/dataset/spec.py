"""What every element should look like: given, declared by the dataset, or inferred from its first elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Tuple

from necropsy.dataset.leaves import Leaf

Dims = Optional[Tuple[Optional[int], ...]]
SAMPLE = 32
"""Elements that a specification is inferred from."""
_ENOUGH, _MOST = 10, 0.9
"""From ``_ENOUGH`` elements on, a size shared by ``_MOST`` of them counts as correct."""


class Want(NamedTuple):
    """What is wanted at one path; None for what may vary. ``low`` and ``high``: the bounds of its values."""

    path: str
    kind: str = "dense"
    dtype: str | None = None
    shape: Dims = None
    low: float | None = None
    high: float | None = None

    def bounded(self, bounds: Sequence[float | None] | None) -> Want:
        """The same with these bounds, where there are any."""
        return self if bounds is None else self._replace(low=bounds[0], high=bounds[1])


def of_structure(spec: Any) -> list[Want]:
    """The wants of nested ``tf.TensorSpec``, or others with dtype and shape; raises ``TypeError`` for other parts."""
    found: list[Want] = []
    _add(spec, "", found)
    return found


def _add(spec: Any, path: str, found: list[Want]) -> None:
    if isinstance(spec, Mapping):
        for key in spec:
            _add(spec[key], f"{path}[{key!r}]", found)
    elif isinstance(spec, (tuple, list)):
        names = getattr(spec, "_fields", None)
        for place, one in enumerate(spec):
            _add(one, f"{path}.{names[place]}" if names else f"{path}[{place}]", found)
    elif spec is None or type(spec).__name__ == "NoneTensorSpec":
        found.append(Want(path, "none"))
    else:
        found.append(_of_leaf(spec, path))


def _of_leaf(spec: Any, path: str) -> Want:
    kind, name = "dense", type(spec).__name__
    if "Ragged" in name:
        kind = "ragged"
    elif "Sparse" in name:
        kind = "sparse"
    elif name in {"DatasetSpec", "OptionalSpec", "TensorArraySpec"}:
        return Want(path, "object")
    dtype = getattr(spec, "dtype", getattr(spec, "_dtype", None))
    shape = getattr(spec, "shape", getattr(spec, "_shape", None))
    if dtype is None and shape is None:
        raise TypeError(f"the spec has {name} at {path or 'its top'}, which is not a structure and has no dtype")
    text = str(getattr(dtype, "name", dtype)).rpartition(".")[2] if dtype is not None else None
    if text in {"str", "object", "bytes"}:
        text = "string"
    want = Want(path, "string" if text == "string" and kind == "dense" else kind, text, _dims(shape))
    low: Any = getattr(spec, "minimum", None)
    high: Any = getattr(spec, "maximum", None)
    if getattr(low, "ndim", 1) == 0 and getattr(high, "ndim", 1) == 0:  # BoundedTensorSpec
        return want.bounded((float(low), float(high)))
    return want


def _dims(shape: Any) -> Dims:
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(None if size is None or int(size) < 0 else int(size) for size in shape)


class Sign(NamedTuple):
    """What inference remembers of a leaf."""

    path: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None


def sign_of(leaf: Leaf) -> Sign:
    """Without its values."""
    return Sign(leaf.path, leaf.kind, leaf.dtype, leaf.shape)


def infer(elements: Sequence[Sequence[Sign]], *, batches: bool, declared: list[Want] | None) -> list[Want]:
    """What most elements have in common; ``declared`` may lack ranks; ``batches``: the first size of each may vary."""
    if declared is not None:
        by_path: dict[str, list[Sign]] = {want.path: [] for want in declared}
        for signs in elements:
            for sign in signs:
                by_path.setdefault(sign.path, []).append(sign)
        return [
            want._replace(shape=_shape_of([one.shape for one in by_path[want.path] if one.shape is not None], batches))
            if want.shape is None and want.kind == "dense" and by_path[want.path]
            else want
            for want in declared
        ]
    if not elements:
        return []
    paths = Counter(tuple(sorted(sign.path for sign in signs)) for signs in elements).most_common(1)[0][0]
    members = [signs for signs in elements if tuple(sorted(sign.path for sign in signs)) == paths]
    order = [sign.path for sign in members[0]]
    return [_want([sign for signs in members for sign in signs if sign.path == path], batches) for path in order]


def _want(signs: Sequence[Sign], batches: bool) -> Want:
    kind = Counter(sign.kind for sign in signs).most_common(1)[0][0]
    alike = [sign for sign in signs if sign.kind == kind]
    dtypes = Counter(sign.dtype for sign in alike)
    dtype = dtypes.most_common(1)[0][0]
    if kind == "number" and "float" in dtypes:
        dtype = "float"
    shapes = [sign.shape for sign in alike if sign.shape is not None]
    return Want(alike[0].path, kind, dtype, _shape_of(shapes, batches))


def _shape_of(shapes: Sequence[tuple[int, ...]], batches: bool) -> Dims:
    if not shapes:
        return None
    rank, times = Counter(map(len, shapes)).most_common(1)[0]
    if times < len(shapes) * (_MOST if len(shapes) >= _ENOUGH else 1):
        return None
    alike = [shape for shape in shapes if len(shape) == rank]
    sizes: list[int | None] = []
    for axis in range(rank):
        size, times = Counter(shape[axis] for shape in alike).most_common(1)[0]
        usual = times >= len(alike) * (_MOST if len(alike) >= _ENOUGH else 1)
        sizes.append(size if usual and size > 0 and not (batches and axis == 0) else None)
    return tuple(sizes)


_WEAK = {"bool": "b", "int": "biuf", "float": "f", "complex": "c"}
"""A Python number has no size: it takes the wanted one among these NumPy kinds."""
_LETTERS = (("bool", "b"), ("uint", "u"), ("int", "i"), ("float", "f"), ("bfloat", "f"), ("complex", "c"))


def same_type(want: Want, leaf: Leaf) -> bool:
    """The leaf has the type that is wanted."""
    if want.dtype is None or leaf.dtype == want.dtype:
        return True
    numbers = want.kind == "number", leaf.kind == "number"
    if numbers == (False, True):
        letter = next((letter for start, letter in _LETTERS if want.dtype.startswith(start)), "")
        return bool(letter) and letter in _WEAK.get(leaf.dtype or "", "") + ("c" if leaf.dtype != "bool" else "")
    if numbers == (True, True):
        return want.dtype == "float" and leaf.dtype == "int"
    return False


def fits(dims: Dims, shape: tuple[int, ...] | None) -> bool:
    """A shape of the wanted rank has the wanted sizes; a size of -1 is ragged and fits any."""
    if dims is None or shape is None:
        return True
    return all(size is None or one in (-1, size) for size, one in zip(dims, shape))


def dims(shape: Sequence[int | None]) -> str:
    """A shape as it is printed: ``(None, 28, 28)``."""
    sizes = ["None" if one is None or one < 0 else str(one) for one in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
