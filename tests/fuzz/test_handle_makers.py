"""Handles of resources: which op makes one, and how the calls of another op have it. Real ones: ``test_fuzz_command.py``."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.condition_checks import check
from necropsy.fuzz.conditions import Condition, Term
from necropsy.fuzz.definitions import definition, handle_maker
from necropsy.fuzz.first_calls import FirstCalls
from necropsy.fuzz.handle_makers import HandleMaker, maker_for
from necropsy.fuzz.recipes import Maker, Recipe, Tensor

HANDLE: dict[str, Any] = {
    "name": "RingHandle",
    "function": "ops.RingHandle",
    "attr": [
        {"name": "capacity", "type": "int", "hasMinimum": True, "minimum": "2"},
        {"name": "shared_name", "type": "string", "defaultValue": {"s": ""}},
    ],
}
PUSH = {
    "name": "RingPush",
    "inputArg": [{"name": "ring", "type": "DT_RESOURCE"}, {"name": "slot", "type": "DT_INT64"}],
    "kernels": [{}],
}


def makers() -> list[HandleMaker]:
    one = handle_maker(HANDLE)
    return [one] if one is not None else []


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("RingPush", "RingHandle"),
        ("QueueSizeV2", "FIFOQueueV2"),
        ("LookupTableSizeV2", "MutableHashTableV2"),
        ("Other", None),
    ],
)
def test_a_handle_is_made_by_the_op_of_the_same_words(op: str, found: str | None) -> None:
    names = ("VarHandleOp", "RingHandle", "FIFOQueueV2", "MutableHashTableV2", "StackV2")
    makers = [HandleMaker(name, Maker(f"tf.raw_ops.{name}", is_named=True), (), is_own=False) for name in names]
    made_by = maker_for(op, makers)
    assert (made_by.name if made_by is not None else None) == found
    own = HandleMaker("PoolHandle", Maker("ops.PoolHandle", is_named=False), (), is_own=True)
    assert maker_for("Other", [*makers, own]) == own, "the only one of the same library"


def test_a_handle_of_its_own_for_each_call() -> None:
    one = Recipe(
        "ops.Push",
        {"at": Tensor("int32", (1,))},
        {"ring.size": 3, "axis": 0},
        handles={"ring": Maker("ops.Ring", is_named=True)},
    )
    assert one.arguments()["ring"] == "ops.Ring(size=3, shared_name=uuid.uuid4().hex)"
    assert list(one.arguments()) == ["at", "ring", "axis"]
    text = writer.text_of("Push", one, repeated=1, headline="x", source=writer.Source(), place=Path("/tests/test_x.py"))
    assert "import uuid" in text


def test_an_op_has_the_attributes_of_what_makes_its_handle() -> None:
    why = definition(PUSH).why_not()
    assert why is not None
    assert "its input ring of type resource" in why
    op = definition(PUSH, makers())
    assert op.why_not() is None
    assert [one.name for one in op.inputs] == ["slot"]
    assert [(one.name, one.minimum) for one in op.given] == [("ring.capacity", 2)]
    made = FirstCalls(op, op.given, Random(0), []).made(op.combinations[0], lambda _name: (), plain=True)
    assert made.arguments()["ring"] == "ops.RingHandle(capacity=2, shared_name=uuid.uuid4().hex)"


def test_a_check_counts_the_handle_among_the_inputs() -> None:
    op = definition(PUSH, makers())
    text = check([Condition(Term("size", "slot"), "==", 1)], op)
    assert text is not None
    assert "ctx->input(1).NumElements() == 1" in text
    assert check([Condition(Term("value", "ring.capacity"), ">", 1)], op) is None, "the kernel does not know it"


def test_an_op_that_needs_a_function_makes_no_handle() -> None:
    assert handle_maker({**HANDLE, "attr": [{"name": "f", "type": "func"}]}) is None
