"""A call of an op as flat data: small for a million elements, the same in each run, and readable as Python.

What runs is the Python text that a user can paste: ``ops.Gather(params=tf.constant(np.full([4], 1.0, np.float32)))``.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from necropsy.fuzz.engine import Call

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint8": (0, (1 << 8) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}
FLOATS = {"float16": 65504.0, "bfloat16": 3e38, "float32": 3e38, "float64": 1e308}
COMPLEX = ("complex64", "complex128")
QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}
DTYPES = frozenset({*INTEGERS, *FLOATS, *COMPLEX, *QUANTIZED, "bool", "string"})
"""The types that values can be made of."""

Library = Literal["tensorflow", "torch"]
CompositeKind = Literal["ragged", "sparse"]
Kind = Literal["same", "cycle", "ramp", "random"]
Item = float | int | bool | tuple[str, int]
"""An element; of strings its repeated part, in Latin-1, and how often: ``("(", 1000)``."""


Fill = tuple[Kind, tuple[Any, ...]]
"""The elements of a tensor: ``kind`` and ``items``."""


@dataclass(frozen=True)
class Composite:
    """A value that is made of several tensors: of what, and by which expression."""

    parts: tuple[str, ...]
    """Also the attributes of the value that hold them."""
    made: str


COMPOSITES: Mapping[CompositeKind, Composite] = {
    "ragged": Composite(("values", "row_splits"), "tf.RaggedTensor.from_row_splits({}, {}, validate=False)"),
    "sparse": Composite(("indices", "values", "dense_shape"), "tf.SparseTensor({}, {}, {})"),
}
"""TensorFlow's own functions check their parts, as far as they do, where somebody asks them to."""


@dataclass(frozen=True)
class Tensor:
    """One tensor. ``kind`` says what ``items`` are.

    ``same``: every element; ``cycle``: the elements, repeated; ``ramp``: the first one and the step; ``random``: a
    seed, the least and the greatest (not reached).
    """

    dtype: str
    shape: tuple[int, ...]
    kind: Kind = "same"
    items: tuple[Any, ...] = (1,)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def filled(self, fill: Fill) -> Tensor:
        """The same tensor with other elements."""
        return replace(self, kind=fill[0], items=fill[1])

    def python(self) -> str:
        """The expression that makes it."""
        if self.dtype in QUANTIZED:
            plain = replace(self, dtype=QUANTIZED[self.dtype])
            return f"tf.bitcast(tf.constant({plain.array()}), tf.{self.dtype})"
        if self.dtype == "bfloat16":
            return f"tf.cast(tf.constant({replace(self, dtype='float32').array()}), tf.bfloat16)"
        if self.dtype == "string":
            return f"tf.constant({self.array()}, tf.string)"
        return f"tf.constant({self.array()})"

    def array(self) -> str:
        """The expression for the NumPy array of the same elements."""
        dtype = {"string": "object", "bool": "np.bool_"}.get(self.dtype, f"np.{self.dtype}")
        shape = list(self.shape)
        if self.kind == "ramp":
            first, step = self.items
            counted = f"np.arange({self.size})"
            counted += f" * {step}" if step != 1 else ""
            counted += f" + {first}" if first else ""
            if step == 1 and not first:
                made = f"np.arange({self.size}, dtype={dtype})"
            else:
                made = f"({counted}).astype({dtype})"
            return made if len(shape) == 1 else f"{made}.reshape({shape})"
        if self.kind == "random":
            seed, low, high = self.items
            drawn = f"np.random.RandomState({seed})"
            if self.dtype in INTEGERS:
                return f"{drawn}.randint({low}, {high}, {shape}).astype({dtype})"
            return f"{drawn}.uniform({low}, {high}, {shape}).astype({dtype})"
        items = [_item(one, self.dtype) for one in self.items]
        if self.kind == "same":
            return f"np.full({shape}, {items[0]}, {dtype})"
        if self.size == len(items):
            made = f"np.array([{', '.join(items)}], {dtype})"
            return made if len(shape) == 1 else f"{made}.reshape({shape})"
        return f"np.resize(np.array([{', '.join(items)}], {dtype}), {shape})"


Input = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Maker:
    """What makes the handle of a resource; ``is_named``: it takes a name, and calls with one name share a resource."""

    function: str
    is_named: bool

    def made(self, attributes: Mapping[str, Any]) -> str:
        """The expression for a new resource."""
        given = [f"{name}={literal(one)}" for name, one in attributes.items()]
        return f"{self.function}({', '.join([*given, *(['shared_name=uuid.uuid4().hex'] if self.is_named else [])])})"


@dataclass(frozen=True)
class Recipe:
    """One call: its inputs and the attributes that are given, by name. A type is ``{"type": "float32"}``.

    Bytes are ``{"bytes": "(", "times": 1000}``, in Latin-1.
    """

    function: str
    inputs: Mapping[str, Input]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    arrays: bool = False
    """The inputs are NumPy arrays, not tensors, unless ``libraries`` says whose tensors they are."""
    libraries: Mapping[str, Library] = field(default_factory=dict)
    composites: Mapping[str, CompositeKind] = field(default_factory=dict)
    """Arguments that are made of several inputs, whose names begin with that of the argument."""
    handles: Mapping[str, Maker] = field(default_factory=dict)
    """Arguments that are handles; what makes ``table`` is given the attributes ``table.NAME``."""

    @functools.cached_property
    def call(self) -> Call:
        """The two texts that a worker runs."""
        return self.function, ", ".join(f"{name}={one}" for name, one in self.arguments().items())

    def arguments(self) -> dict[str, str]:
        """The expression for each argument."""
        given = {name: self.expression(name) for name in self.inputs}
        for name, kind in self.composites.items():
            parts = [given.pop(f"{name}_{part}") for part in COMPOSITES[kind].parts]
            given[name] = COMPOSITES[kind].made.format(*parts)
        own = {name: one for name, one in self.attributes.items() if "." not in name}
        for name, maker in self.handles.items():
            start = f"{name}."
            of_maker = {key.removeprefix(start): one for key, one in self.attributes.items() if key.startswith(start)}
            given[name] = maker.made(of_maker)
        return given | {name: literal(one) for name, one in own.items()}

    def expression(self, name: str) -> str:
        """The expression for an input."""
        one = self.inputs[name]
        if not isinstance(one, Tensor):
            return f"[{', '.join(each.python() for each in one)}]"
        if not self.arrays or self.libraries.get(name) == "tensorflow":
            return one.python()
        return f"torch.tensor({one.array()})" if self.libraries.get(name) == "torch" else one.array()

    @property
    def python(self) -> str:
        """The call as one expression."""
        function, arguments = self.call
        return f"{function}({arguments})"

    @property
    def elements(self) -> int:
        """The number of elements of all inputs, a string's characters among them."""
        return sum(_elements(one) for one in self.tensors())

    def tensors(self) -> Iterator[Tensor]:
        """The tensors of all inputs."""
        for one in self.inputs.values():
            yield from (one,) if isinstance(one, Tensor) else one

    def with_input(self, name: str, one: Input) -> Recipe:
        """The same call with another input."""
        return self._with({**self.inputs, name: one}, self.attributes)

    def with_attribute(self, name: str, one: Any) -> Recipe:
        """The same call with another attribute."""
        return self._with(self.inputs, {**self.attributes, name: one})

    def _with(self, inputs: Mapping[str, Input], attributes: Mapping[str, Any]) -> Recipe:
        """Faster than ``dataclasses.replace``, because thousands of calls are proposed each second."""
        return Recipe(self.function, inputs, attributes, self.arrays, self.libraries, self.composites, self.handles)

    def with_shapes(self, change: Mapping[int, int]) -> Recipe:
        """The same call with sizes replaced in the shapes of all inputs."""

        def other(one: Tensor) -> Tensor:
            return replace(one, shape=tuple(change.get(size, size) for size in one.shape))

        inputs = {
            name: other(one) if isinstance(one, Tensor) else tuple(map(other, one)) for name, one in self.inputs.items()
        }
        return replace(self, inputs=inputs)


def literal(one: Any) -> str:
    """The expression for an attribute."""
    if isinstance(one, dict):
        return f"tf.{one['type']}" if "type" in one else _item((one["bytes"], one["times"]), "string")
    if isinstance(one, list):
        return f"[{', '.join(map(literal, one))}]"
    if isinstance(one, float) and not math.isfinite(one):
        return f"float('{one}')"
    return repr(one)


def to_json(recipe: Recipe) -> str:
    """The recipe as one line of JSON."""

    def tensor(one: Tensor) -> list[Any]:
        return [one.dtype, list(one.shape), [one.kind, *one.items]]

    inputs = {
        name: tensor(one) if isinstance(one, Tensor) else [tensor(each) for each in one]
        for name, one in recipe.inputs.items()
    }
    data = {"function": recipe.function, "inputs": inputs, "attributes": recipe.attributes, "arrays": recipe.arrays}
    return json.dumps(data)


def from_json(text: str) -> Recipe:
    """The recipe that ``to_json`` wrote."""
    data = json.loads(text)

    def tensor(one: list[Any]) -> Tensor:
        dtype, shape, (kind, *items) = one
        return Tensor(
            dtype, tuple(shape), kind, tuple(tuple(each) if isinstance(each, list) else each for each in items)
        )

    inputs: dict[str, Input] = {
        name: tensor(one) if one and isinstance(one[0], str) else tuple(tensor(each) for each in one)
        for name, one in data["inputs"].items()
    }
    return Recipe(data["function"], inputs, data["attributes"], data["arrays"])


def _elements(one: Tensor) -> int:
    if one.dtype == "string" and one.kind in {"same", "cycle"}:
        longest = max((len(unit) * times for unit, times in one.items), default=0)
        return one.size + one.size * longest
    return one.size


def _item(one: Any, dtype: str) -> str:
    if dtype == "string":
        unit, times = one
        text = repr(unit.encode("latin-1"))
        return text if times == 1 else f"{text} * {times}"
    if isinstance(one, float) and not math.isfinite(one):
        return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}[str(one)]
    return repr(one)
