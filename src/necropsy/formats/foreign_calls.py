"""A Python source -> its calls through ctypes of functions whose argument types are not set, by its syntax tree."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from necropsy.model import ForeignCall

LARGEST = 1 << 17
"""Bytes of a source; a larger one would hold up a stopped process."""
_LOADERS = frozenset({"CDLL", "PyDLL", "WinDLL", "OleDLL", "LoadLibrary"})
_IS_LIBRARY = re.compile(r"\.(?:so|dylib|dll|pyd)(?:\.|$)", re.IGNORECASE)
_DECLARES = frozenset({"argtypes", "errcheck"})


def undeclared(source: bytes, path: str) -> tuple[ForeignCall, ...]:
    """Calls of ctypes in a file's order, by loaders assigned in it; none where this Python cannot parse the file."""
    if b"ctypes" not in source or len(source) > LARGEST:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return tuple(_calls(tree, path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _calls(tree: ast.Module, path: str) -> Iterator[ForeignCall]:
    libraries: dict[str, str | None] = {}
    declared: set[str] = set()
    found: list[tuple[int, int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                name = dotted(target)
                owner, _, last = name.rpartition(".")
                if last in _DECLARES:
                    declared.add(owner)
                elif name and _loads(node.value):
                    libraries[name] = _constant(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _may_pass_a_pointer(node):
            found.append((node.lineno, node.col_offset, dotted(node.func)))
    for line, _, name in sorted(found):
        library = name.rpartition(".")[0]
        if library in libraries and name not in declared:
            yield ForeignCall(function=name, library=libraries[library], source=path, line=line)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of names and attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _loads(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in _LOADERS


def _constant(node: ast.expr) -> str | None:
    """The file that is loaded, where it is a literal: ``CDLL("libm.so")``, ``CDLL(str(here / "libm.so"))``."""
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    texts = (one.value for one in ast.walk(first) if isinstance(one, ast.Constant)) if first is not None else ()
    return next((text for text in texts if isinstance(text, str) and _IS_LIBRARY.search(text)), None)


def _may_pass_a_pointer(call: ast.Call) -> bool:
    values = (one.operand if isinstance(one, ast.UnaryOp) else one for one in call.args)
    return any(not isinstance(one, ast.Constant) or isinstance(one.value, (str, bytes)) for one in values)
