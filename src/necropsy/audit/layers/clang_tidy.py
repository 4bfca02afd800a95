"""What clang-tidy says of a line on which there is a finding, as evidence for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from necropsy.audit.layers.compilation import Compilation
from necropsy.model import CodeDefect, CodeFact

CHECKS = "-*,bugprone-*,clang-analyzer-*,misc-no-recursion"
_SAID = re.compile(r"^(.+?):(\d+):\d+: (?:warning|error): (.+) \[([\w.,-]+)\]$", re.MULTILINE)
_MOST = 3
"""Findings per line."""


@dataclass(frozen=True)
class TidyLine:
    """One warning; ``path`` is the real one."""

    path: str
    line: int
    text: str
    check: str


def words(program: str, compilation: Compilation) -> tuple[str, ...]:
    """The command. The project's ``.clang-tidy`` is not read: it can name code to load."""
    fixed = ("--quiet", "--config={}", f"--checks={CHECKS}", "--header-filter=.*")
    return (program, *fixed, compilation.source, "--", *compilation.options)


def read(text: str, directory: str) -> Iterator[TidyLine]:
    """The warnings in what clang-tidy has printed, without those of the compiler."""
    for path, line, said, check in dict.fromkeys(_SAID.findall(text)):
        if not check.startswith("clang-diagnostic"):
            real = os.path.realpath(os.path.join(directory, path))  # noqa: PTH118 - a path may be anything
            yield TidyLine(real, int(line), said, check)


def supported(one: CodeDefect, said: list[TidyLine]) -> CodeDefect:
    """The defect, with the warnings on its line as evidence."""
    real = os.path.realpath(one.place.path)
    facts = [
        CodeFact(claim=f"clang-tidy {each.check}", seen=each.text[:200], where=f"{one.place.path}:{one.place.line}")
        for each in said
        if (each.path, each.line) == (real, one.place.line)
    ]
    return msgspec.structs.replace(one, facts=(*one.facts, *facts[:_MOST])) if facts else one
