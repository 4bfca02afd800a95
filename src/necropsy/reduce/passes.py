"""Which passes there are in a round, and in which order; those that look at no file's text are here as well."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from necropsy.reduce.data_files import drop_data_files, shorten_data
from necropsy.reduce.expressions import simplified_expressions
from necropsy.reduce.flattening import (
    flattened_attributes,
    flattened_items,
    merged_variables,
    substituted_variables,
)
from necropsy.reduce.inlining import inlined_functions
from necropsy.reduce.merging import merge_modules
from necropsy.reduce.observed_values import Observe, with_observed_values
from necropsy.reduce.parameters import unused_parameters
from necropsy.reduce.program import Pass, Program, Steps, from_the_end, in_parts, search
from necropsy.reduce.rewriting import rewriting
from necropsy.reduce.shortcut import Stack, calls_on_the_stack
from necropsy.reduce.statements import drop_files, drop_statements
from necropsy.reduce.tidying import tidy
from necropsy.reduce.unrolling import unrolled_loops
from necropsy.reduce.unwrapping import dropped_decorators, unwrapped_blocks

_ROUNDS_WITH_DATA = 2


def passes(
    number: int,
    values: Observe,
    stack: Callable[[], Stack],
    kept_calls: Callable[[], Collection[str]],
    refused: set[object],
    *,
    is_cheap: bool,
) -> Iterator[tuple[str, Pass]]:
    """The passes of a round, by name. ``values`` and ``kept_calls`` are asked for when their passes begin.

    ``stack``: of the last run for values. ``is_cheap``: one run decides about a candidate.

    ``refused``: what passes note of candidates that were refused.
    """
    if number == 0:
        yield "shortcut", calls_on_the_stack(values, stack, is_cheap=is_cheap)
    # What is cheap and takes away much comes first; each trial of what is left is quicker then.
    for again in range(2 if number == 0 else 1):
        yield "values", with_observed_values(values)
        yield "statements", drop_statements
        if not again:
            yield "files", drop_files
            yield "blocks", rewriting(unwrapped_blocks, refused)
            yield "modules", merge_modules
            yield "functions", rewriting(inlined_functions, refused)
            yield "attributes", rewriting(flattened_attributes, refused)
            yield "parameters", rewriting(unused_parameters, refused)
    if number < _ROUNDS_WITH_DATA:
        yield "data files", drop_data_files
        yield "data", shorten_data
    if number == 0:
        yield "arguments", drop_arguments
        yield "variables", drop_variables
    yield "decorators", rewriting(dropped_decorators, refused)
    yield "expressions", rewriting(simplified_expressions(kept_calls()), refused)
    yield "variables that are read once", rewriting(substituted_variables, refused)
    cleaning = (
        with_observed_values(values),
        drop_statements,
        rewriting(substituted_variables, refused),
    )
    yield "loops", unrolled_loops(cleaning, refused)
    yield "items", rewriting(flattened_items, refused)
    yield "variables of the same value", rewriting(merged_variables, refused)
    yield "comments", tidy


def drop_unused(unused: Sequence[str]) -> Pass:
    """A pass that leaves out files that were not opened."""

    def steps(program: Program) -> Steps:
        return (yield from search(program, unused, in_parts, program.without_files))

    return steps


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
