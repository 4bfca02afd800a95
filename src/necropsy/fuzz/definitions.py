"""What TensorFlow has registered of an op: its inputs, its attributes, and the types that its kernels take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from necropsy.errors import InputError
from necropsy.fuzz.recipes import COMPOSITES, DTYPES, Composite, CompositeKind, Library

_MOST_COMBINATIONS = 60
_ANY = ("float32", "int32", "int64", "string", "float64", "bool", "uint8", "complex64")
_ARRAYS = ("float64", "float32", "int32", "int64", "uint8", "bool", "int8", "complex128")
_HINTS = (
    "int, float, bool, str, bytes, list[int], list[float], np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor, "
    "torch.Tensor"
)
_NAMES = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16"}


@dataclass(frozen=True)
class Argument:
    """An input: of one ``dtype``, or of that which an attribute names; ``number`` and ``types`` make it a list."""

    name: str
    dtype: str | None = None
    type_attribute: str | None = None
    number: str | None = None
    types: str | None = None
    is_reference: bool = False
    library: Library | None = None
    """Of a Python function, whose tensors the parameter takes; None for NumPy's arrays."""
    part_of: tuple[str, CompositeKind] | None = None
    """The parameter that is made of this and of other inputs."""


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


@dataclass(frozen=True)
class OpDefinition:
    """An op. ``combinations``: the types that its CPU kernels take, by the name of the attribute."""

    name: str
    inputs: tuple[Argument, ...]
    attributes: tuple[Attribute, ...]
    combinations: tuple[Mapping[str, str], ...]
    has_kernel: bool = True
    is_removed: bool = False
    """TensorFlow still registers it, and refuses each call."""
    is_stateful: bool = False
    """Its results may differ for the same inputs."""
    is_python: bool = False
    """A Python function, whose parameters are the inputs (arrays) and the attributes."""

    @property
    def function(self) -> str:
        """What a worker calls."""
        return "target" if self.is_python else f"ops.{self.name}"

    @property
    def libraries(self) -> dict[str, Library]:
        """Whose tensors the parameters of a Python function take, where they are not NumPy's arrays."""
        return {one.name: one.library for one in self.inputs if one.library is not None}

    @property
    def composites(self) -> dict[str, CompositeKind]:
        """The parameters of a Python function that are made of several inputs."""
        return dict(one.part_of for one in self.inputs if one.part_of is not None)

    @property
    def given(self) -> tuple[Attribute, ...]:
        """The attributes that a call names; the others follow from its inputs."""
        followed = {one for each in self.inputs for one in (each.type_attribute, each.number, each.types)}
        return tuple(one for one in self.attributes if one.name not in followed)

    def minimum(self, name: str | None) -> int:
        """The least value of an attribute that counts inputs."""
        found = next((one.minimum for one in self.attributes if one.name == name), None)
        return 1 if found is None else found

    def why_not(self) -> str | None:
        """Why no call of it can be made up; None where it can."""
        if not self.has_kernel:
            return "it has no kernel for the CPU"
        if self.is_removed:
            return "this TensorFlow refuses all calls of it: the op has been removed"
        for one in self.inputs:
            if one.is_reference:
                return f"its input {one.name} is a reference variable, which cannot be called eagerly"
            if one.dtype is not None and one.dtype not in DTYPES:
                return f"no value can be made up for its input {one.name} of type {one.dtype}"
        if not self.combinations:
            return "no value can be made up for the types that its kernels take"
        for each in self.given:
            if each.type in {"func", "list(func)", "tensor", "list(tensor)"} and not each.has_default:
                return f"no value can be made up for its attribute {each.name} of type {each.type}"
        return None


def definition(described: Mapping[str, Any]) -> OpDefinition:
    """Read the op from the JSON of its OpDef and of its kernels."""
    attributes = tuple(_attribute(one) for one in described.get("attr", ()))
    inputs = tuple(
        Argument(
            name=one["name"],
            dtype=dtype_of(one["type"]) if "type" in one else None,
            type_attribute=one.get("typeAttr"),
            number=one.get("numberAttr"),
            types=one.get("typeListAttr"),
            is_reference=bool(one.get("isRef")),
        )
        for one in described.get("inputArg", ())
    )
    kernels = described.get("kernels", ())
    typed = [one for one in attributes if one.type == "type" and one.name in {each.type_attribute for each in inputs}]
    return OpDefinition(
        described["name"],
        inputs,
        attributes,
        tuple(_combinations(typed, kernels)),
        has_kernel=bool(kernels),
        is_removed=bool(described.get("removed")),
        is_stateful=bool(described.get("isStateful") or described.get("isDistributedCommunication")),
    )


def python_function(described: Mapping[str, Any]) -> OpDefinition:
    """A Python function by its type hints.

    Raises:
        InputError: no call of it can be made up.

    """
    name, parameters = described["name"], described["parameters"]
    if parameters is None:
        raise InputError(f"{name} does not tell its parameters: write a Python function around it, with type hints")
    inputs, attributes = [], []
    for one in parameters:
        kind = one["kind"] if one["by_name"] else None
        if kind is None and one["needed"]:
            why = "has no type hint that values can be made for" if one["by_name"] else "cannot be given by name"
            error = InputError(f"the parameter {one['name']} of {name} {why}")
            error.hint = f"hints that work: {_HINTS}; or give it a Hypothesis strategy"
            raise error
        if kind in {"ndarray", "tensorflow", "torch"} and described["numpy"]:
            library = None if kind == "ndarray" else kind
            inputs.append(Argument(one["name"], type_attribute=one["name"], library=library))
        elif kind is not None and described["numpy"] and (composite := COMPOSITES.get(kind)) is not None:
            inputs += _parts(one["name"], kind, composite)
        elif kind is not None:
            attributes.append(Attribute(one["name"], kind, is_needed=one["needed"]))
    types = list(_ARRAYS if inputs else _ARRAYS[:1])
    if any(one.library is not None for one in inputs):
        types.sort(key=lambda one: one != "float32")  # what tensors mostly are
    named = [one.type_attribute for one in inputs if one.type_attribute is not None]
    combinations = tuple(dict.fromkeys(named, dtype) for dtype in types)
    return OpDefinition(name, tuple(inputs), tuple(attributes), combinations, is_python=True)


def _parts(name: str, kind: CompositeKind, composite: Composite) -> list[Argument]:
    """The inputs of which the parameter is made: the values are of any type, what says where they are of int64."""
    return [
        Argument(
            f"{name}_{part}",
            dtype=None if part == "values" else "int64",
            type_attribute=f"{name}_values" if part == "values" else None,
            library="tensorflow",
            part_of=(name, kind),
        )
        for part in composite.parts
    ]


def dtype_of(name: str) -> str:
    """``float32`` for ``DT_FLOAT``."""
    return _NAMES.get(name, name.removeprefix("DT_").lower())


def _attribute(one: Mapping[str, Any]) -> Attribute:
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


def _combinations(types: Sequence[Attribute], kernels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, str]]:
    """Types for the attributes that inputs take theirs from, those of one kernel after the other."""
    found: list[Mapping[str, str]] = []
    for kernel in kernels or ({},):
        bound = {
            one["name"]: [dtype_of(each) for each in one.get("allowedValues", {}).get("list", {}).get("type", ())]
            for one in kernel.get("constraint", ())
        }
        choices = []
        for one in types:
            given = [dtype for dtype in bound.get(one.name) or one.allowed or _ANY if dtype in DTYPES]
            allowed = [dtype for dtype in given if not one.allowed or dtype in one.allowed]
            choices.append(allowed)
        for combination in itertools.islice(itertools.product(*choices), _MOST_COMBINATIONS):
            chosen = dict(zip((one.name for one in types), combination, strict=True))
            if chosen not in found:
                found.append(chosen)
    return sorted(found, key=_plainness)[:_MOST_COMBINATIONS]


def _plainness(chosen: Mapping[str, str]) -> int:
    """The common types first."""
    return sum(_ANY.index(one) if one in _ANY else len(_ANY) for one in chosen.values())
