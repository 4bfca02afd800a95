"""What TensorFlow has registered of an op: its inputs, its attributes, and the types that its kernels take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from necropsy.errors import InputError
from necropsy.fuzz.attributes import Attribute, attribute, dtype_of
from necropsy.fuzz.handle_makers import HandleMaker, maker_for
from necropsy.fuzz.recipes import COMPOSITES, DTYPES, Composite, CompositeKind, Library, Maker

_MOST_COMBINATIONS = 60
_NO_VALUES = frozenset({"func", "list(func)", "tensor", "list(tensor)"})
"""Types of attributes that no value can be made up for."""
_RESOURCE = "resource"
_NAMED_BY = ("container", "shared_name")
"""Attributes of what makes a resource that say under which name it is kept: each call has one of its own."""
_CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "_SwitchN"})
"""TensorFlow's ``kNodeClassTable`` (core/graph/graph.cc). Outputs that are not taken have no value."""
_ANY = ("float32", "int32", "int64", "string", "float64", "bool", "uint8", "complex64")
_ARRAYS = ("float64", "float32", "int32", "int64", "uint8", "bool", "int8", "complex128")
_HINTS = (
    "int, float, bool, str, bytes, list[int], list[float], np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor, "
    "torch.Tensor"
)


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
class Handle:
    """An input that is the handle of a resource: its place among the inputs of the OpDef, and what makes it."""

    name: str
    place: int
    maker: Maker


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
    handles: tuple[Handle, ...] = ()
    """Inputs that are no tensors of values. What makes ``table`` has the attributes ``table.NAME``."""

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
    def makers(self) -> dict[str, Maker]:
        """What makes the inputs that are handles."""
        return {one.name: one.maker for one in self.handles}

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
        if not self.is_python and self.name.removeprefix("Ref") in _CONTROL_FLOW:
            return "it is a control-flow op, which has a meaning within a graph only"
        for one in self.inputs:
            if one.is_reference:
                return f"its input {one.name} is a reference variable, which cannot be called eagerly"
            if one.dtype is not None and one.dtype not in DTYPES:
                return f"no value can be made up for its input {one.name} of type {one.dtype}"
        if not self.combinations:
            return "no value can be made up for the types that its kernels take"
        for each in self.given:
            if each.type in _NO_VALUES and not each.has_default:
                return f"no value can be made up for its attribute {each.name} of type {each.type}"
        return None


def definition(described: Mapping[str, Any], makers: Sequence[HandleMaker] = ()) -> OpDefinition:
    """Read the op from the JSON of its OpDef and of its kernels; ``makers``: where its handles may come from."""
    attributes = tuple(attribute(one) for one in described.get("attr", ()))
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
    handles: list[Handle] = []
    made_by = maker_for(described["name"], makers)
    for place, one in enumerate(inputs):
        if one.dtype == _RESOURCE and one.number is None and made_by is not None:
            handles.append(Handle(one.name, place, made_by.maker))
            attributes += tuple(replace(each, name=f"{one.name}.{each.name}") for each in made_by.attributes)
    inputs = tuple(one for one in inputs if one.name not in {each.name for each in handles})
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
        handles=tuple(handles),
    )


def handle_maker(described: Mapping[str, Any]) -> HandleMaker | None:
    """The op as one that makes handles; None where it has an attribute that no value can be made up for."""
    several = [attribute(one) for one in described.get("attr", ())]
    own = tuple(one for one in several if one.name not in _NAMED_BY)
    if any(one.type in _NO_VALUES and not one.has_default for one in own):
        return None
    maker = Maker(described["function"], is_named=any(one.name == "shared_name" for one in several))
    own = tuple(one for one in own if one.type not in _NO_VALUES)
    return HandleMaker(described["name"], maker, own, is_own=described["function"].startswith("ops."))


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
