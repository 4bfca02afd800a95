"""Findings about the stack, held against the frames that g++ makes of the same source."""

from __future__ import annotations

import msgspec

from necropsy.audit.cxx.frames import SHARE
from necropsy.audit.layers.compilation import Compilation
from necropsy.audit.layers.gcc_call_graph import GccCallGraph, GccPath
from necropsy.model import CodeDefect, CodeFact

RULES = frozenset({"op-large-frame", "op-stack-depth", "op-recursion"})
_SHOWN = 4


def measured(one: CodeDefect, graph: GccCallGraph, compilation: Compilation) -> CodeDefect:
    """The defect with what g++ says of it: as its numbers where it is as bad as estimated, else as evidence."""
    name = one.function or ""
    is_lambda = " in " in name
    found = graph.named(name, one.place.path, one.place.line) if name and not is_lambda else []
    if one.rule not in RULES or not found or one.stack is None:
        return one
    how = f"g++ {compilation.level}"
    if one.rule == "op-recursion":
        turn = graph.turn(found)
        seen = f"{turn:,} bytes: {one.stack // turn:,} turns fit" if turn else "none: it does not call itself directly"
        return _told(one, f"one turn of the recursion in the code of {how}", seen, compilation)
    if one.rule == "op-stack-depth":
        path = max((graph.deepest(each) for each in found), key=lambda each: each.bytes)
        calls = "a call" if path.indirect == 1 else f"{path.indirect:,} calls"
        unknown = f", and {calls} through pointers" if path.indirect else ""
        seen = f"{path.bytes:,} bytes{unknown}"
        told = _told(one, f"deepest path in the code of {how}", seen, compilation)
        return _deep(told, path) if path.bytes >= one.stack else _harmless(told, compilation)
    largest = max((graph.functions[each] for each in found), key=lambda each: each.bytes)
    more = " and more, known only when it runs" if largest.is_dynamic else ""
    told = _told(one, f"frame in the code of {how}", f"{largest.bytes:,} bytes{more}", compilation)
    if largest.bytes < one.stack // SHARE:
        return _harmless(told, compilation)
    return msgspec.structs.replace(
        told,
        numbers={**one.numbers, "bytes": largest.bytes},
        severity="warning" if largest.bytes < one.stack else one.severity,
        confidence="certain",
    )


def _told(one: CodeDefect, claim: str, seen: str, compilation: Compilation) -> CodeDefect:
    fact = CodeFact(
        claim=claim, seen=f"{seen} (options of {compilation.known_from})", where=f"{one.place.path}:{one.place.line}"
    )
    return msgspec.structs.replace(one, facts=(*one.facts, fact))


def _harmless(one: CodeDefect, compilation: Compilation) -> CodeDefect:
    """The compiler did not keep it on the stack; other builds may, unless this is the project's own."""
    if not compilation.is_the_build:
        return one
    return msgspec.structs.replace(one, severity="note", confidence="possible")


def _deep(one: CodeDefect, path: GccPath) -> CodeDefect:
    largest = max(path.steps, key=lambda each: each.bytes)
    order = [f"{each.name} ({each.bytes:,} bytes)" for each in path.steps]
    if len(order) > 2 * _SHOWN:
        order = [*order[:_SHOWN], "...", *order[-2:]]
    return msgspec.structs.replace(
        one,
        names={**one.names, "path": " -> ".join(order), "largest": largest.name},
        numbers={**one.numbers, "bytes": path.bytes, "calls": len(path.steps), "frame": largest.bytes},
        confidence="certain",
    )
