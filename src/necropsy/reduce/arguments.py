"""Passes that leave out arguments of the command and variables of its environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from necropsy.reduce.program import Program, Steps, from_the_end, in_parts, search


def drop_arguments(program: Program) -> Steps:
    """A pass that leaves out words of the command line, from the last one on."""
    words = program.arguments

    def made(gone: Sequence[int]) -> Program:
        return replace(program, arguments=tuple(word for at, word in enumerate(words) if at not in gone))

    return (yield from search(program, range(len(words)), from_the_end, made))


def drop_variables(program: Program) -> Steps:
    """A pass that leaves out environment variables."""
    variables = program.environment

    def made(gone: Sequence[str]) -> Program:
        return replace(program, environment={name: value for name, value in variables.items() if name not in gone})

    return (yield from search(program, sorted(variables), in_parts, made))
