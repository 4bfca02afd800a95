"""Asks an op's shape function which ranks its inputs may have, so that fewer calls are refused for their shapes.

The function is called with inputs of unknown sizes, one of which has a rank. What it allows is a hint only: calls with
other ranks are made as well, because a kernel that is called eagerly has to check them itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from necropsy.fuzz.engine import Call, Engine
from necropsy.fuzz.recipes import Recipe, Tensor, literal
from necropsy.fuzz.target.worker import MOST

_RANKS = range(7)

Ranks = Mapping[str, tuple[int, ...]]
"""The ranks that an input may have, by its name; of an input that may have any, nothing."""


def inferred_ranks(engine: Engine, op: str, plain: Recipe) -> Ranks:
    """What the shape function of an op allows; ``plain``: a call with types and attributes that it can do with."""
    if not plain.inputs:
        return {}
    asked = [_question(op, plain)]
    asked += [_question(op, plain, name, rank) for name in plain.inputs for rank in _RANKS]
    answers: list[bool] = []
    while len(answers) < len(asked):
        ended = engine.run(asked[len(answers) : len(answers) + MOST])
        answers += [one.kind == "accepted" for one in ended]
        if not answers[0] or not ended:
            return {}
    found = {}
    for at, name in enumerate(plain.inputs):
        several = answers[1 + at * len(_RANKS) : 1 + (at + 1) * len(_RANKS)]
        if 0 < sum(several) < len(_RANKS):
            found[name] = tuple(rank for rank, allowed in zip(_RANKS, several, strict=True) if allowed)
    return found


def _question(op: str, plain: Recipe, asked: str | None = None, rank: int | None = None) -> Call:
    """A call of the shape function: all inputs are of unknown rank, ``asked`` excepted."""

    def text(one: Tensor, name: str) -> str:
        return f"unknown({one.dtype!r}, {rank if name == asked else None})"

    inputs = (
        f"{name}={text(one, name)}"
        if isinstance(one, Tensor)
        else f"{name}=[{', '.join(text(each, name) for each in one)}]"
        for name, one in plain.inputs.items()
    )
    handles = (f"{name}=unknown('resource', 0)" for name in plain.handles)
    attributes = (f"{name}={literal(one)}" for name, one in plain.attributes.items() if "." not in name)
    return f"shapes.{op}", ", ".join([*inputs, *handles, *attributes])
