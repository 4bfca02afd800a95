"""A pass that puts the text of a module where another file of the program imports it."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from necropsy.reduce.program import Program, Steps
from necropsy.reduce.python_source import Edit, Source, source_of
from necropsy.reduce.rewriting import own_lines
from necropsy.reduce.statements import parsed


def merge_modules(program: Program) -> Steps:
    """A pass over the modules that one file imports: each becomes a part of that file."""
    for path in program.python_files[:-1]:
        candidate = _merged(program, path)
        if candidate is not None and (yield candidate):
            program = candidate
    return program


def _merged(program: Program, path: str) -> Program | None:
    """The program with one module put where it is imported; None where that is not in one place."""
    module = source_of(program.files[path])
    modules = _names(program, path)
    if module is None or not modules:
        return None
    found: list[tuple[str, Source, ast.stmt, ast.alias, bool]] = [
        (other, source, node, alias, is_module)
        for other, source in parsed(program).items()
        if other != path
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias, is_module in _imported(node, modules, other)
    ]
    importers = {other for other, _, _, _, _ in found}
    if len(importers) != 1:
        return None
    importer, source = found[0][:2]
    nodes = [node for node in source.tree.body if any(node is one for _, _, one, _, _ in found)]
    if len(nodes) != len({id(node) for _, _, node, _, _ in found}) or not all(own_lines(source, one) for one in nodes):
        return None
    edits = []
    for node in nodes:
        lines = _without(source, node, [(alias, is_module) for _, _, one, alias, is_module in found if one is node])
        if node is nodes[0]:
            lines.insert(0, module.text.rstrip())
        edits.append(Edit(source.start(node), source.end(node), source.eol.join(lines)))
    own = {alias.asname or alias.name for _, _, _, alias, is_module in found if is_module}
    edits += [
        Edit(source.start(one), source.end(one), one.attr.encode())
        for one in ast.walk(source.tree)
        if isinstance(one, ast.Attribute) and source.segment(one.value).decode() in own
    ]
    try:
        return program.without_file(path).with_file(importer, source.edited(edits))
    except UnicodeEncodeError:  # of another encoding, which has no such characters
        return None


def _without(source: Source, node: ast.stmt, taken: list[tuple[ast.alias, bool]]) -> list[bytes]:
    """The lines in the place of an import: what else it imports, and the other names that it gives."""
    gone = [alias for alias, _ in taken]
    kept = [alias for alias in getattr(node, "names", []) if alias not in gone]
    lines = []
    if kept:
        first = getattr(node, "names", kept)[0]
        head = source.text[source.start(node) : source.start(first)].rstrip(b"( \r\n\t")
        lines.append(head + b" " + b", ".join(source.segment(alias) for alias in kept))
    lines += [f"{one.asname} = {one.name}".encode() for one, is_module in taken if one.asname and not is_module]
    return lines


def _names(program: Program, path: str) -> set[str]:
    """The names under which a file can be imported."""
    place = PurePosixPath(path)
    if place.stem.startswith("__"):
        return set()
    roots = {PurePosixPath(), PurePosixPath(program.script).parent}
    return {".".join(place.relative_to(root).with_suffix("").parts) for root in roots if place.is_relative_to(root)}


def _imported(node: ast.Import | ast.ImportFrom, modules: set[str], importer: str) -> list[tuple[ast.alias, bool]]:
    """What a statement imports of a module, or the module itself (True)."""
    if isinstance(node, ast.Import):
        return [(alias, True) for alias in node.names if alias.name in modules]
    base = node.module or ""
    if node.level:
        parts = PurePosixPath(importer).parts[: -node.level]
        base = ".".join([*parts, *([base] if base else [])])
    if base in modules:
        return [(alias, False) for alias in node.names]
    return [(alias, True) for alias in node.names if f"{base}.{alias.name}" in modules]
