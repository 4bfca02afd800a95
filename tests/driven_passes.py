"""Runs a pass of ``necropsy reduce`` against an oracle instead of a program that dies."""

from __future__ import annotations

from collections.abc import Callable

from necropsy.reduce.program import Pass, Program
from necropsy.reduce.python_source import compiles


def driven(program: Program, make: Pass, oracle: Callable[[Program], bool], most: int = 400) -> tuple[Program, int]:
    """What a pass makes of a program, and how many candidates were no valid Python; these are refused."""
    steps = make(program)
    invalid = 0
    accepted: bool | None = None
    for _ in range(most):
        try:
            candidate = next(steps) if accepted is None else steps.send(accepted)
        except StopIteration as end:
            returned = end.value
            break
        valid = all(compiles(data) for name, data in candidate.files.items() if name.endswith(".py"))
        invalid += not valid
        accepted = valid and oracle(candidate)
        program = candidate if accepted else program
    else:
        return program, invalid
    assert returned == program
    return program, invalid
