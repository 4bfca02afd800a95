"""A path -> its ``Unit``: read, preprocessed with its headers, parsed, collected, kernels tied to classes."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from necropsy.audit.cxx import registrations
from necropsy.audit.cxx.collect import Collector
from necropsy.audit.cxx.model import Class, Function, Kernel, RegisteredOp, SourceFile, Trouble, Unit
from necropsy.audit.cxx.preprocess import Expanded, Preprocessor, is_header
from necropsy.errors import InputError, NoInputError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

ENDINGS = (".cc", ".cpp", ".cxx", ".h", ".hpp")
"""Of C++ sources; ``.cu.cc`` is among them."""
LARGEST = 2 << 20
"""Bytes of one file that are analysed; generated code is longer."""
_LARGEST_HEADER = 1 << 20
_BASES = 8
"""How many base classes upwards ``Compute`` is looked for."""


@dataclass(frozen=True)
class BuildFlags:
    """What is known of how a source is compiled."""

    folders: tuple[str, ...] = ()
    """In which headers of the project are looked for."""
    macros: tuple[str, ...] = ()
    """As behind the word ``#define``."""


@dataclass
class Reader:
    """Finds quoted headers: beside the including file, below the folders ``roots``, and where the build has them.

    ``"project/ops/shapes.h"`` is also found from ``project/ops/kernels.cc``: sources of Bazel name headers like that.
    """

    roots: Sequence[str] = ()
    build: BuildFlags = BuildFlags()
    hashes: dict[str, str] = field(default_factory=dict)
    """Of every header that was looked for: its SHA-256, empty where there was no file. For the cache."""

    def find(self, name: str, including: str) -> tuple[str, str] | None:
        """The path and the text of a header, as Latin-1; None where there is none."""
        return self._in([*self._folders(including), *_above(name, including)], name)

    def find_angled(self, name: str) -> tuple[str, str] | None:
        """As ``find``, of ``#include <name>``: only the folders of the build count."""
        return self._in(map(Path, self.build.folders), name)

    def _in(self, folders: Iterable[Path], name: str) -> tuple[str, str] | None:
        for folder in folders:
            path = folder / name
            try:
                raw = path.read_bytes() if path.is_file() else None
            except (OSError, ValueError):
                raw = None
            self.hashes[str(path)] = hashlib.sha256(raw).hexdigest() if raw is not None else ""
            if raw is not None:
                return _plain(path), raw[:_LARGEST_HEADER].decode("latin-1")
        return None

    def _folders(self, including: str) -> list[Path]:
        own = Path(including).parent
        found = [own]
        for root in map(Path, self.roots):
            found += [one for one in (own, *own.parents) if one == root or root in one.parents]
            found.append(root)
        return list(dict.fromkeys([*found, *map(Path, self.build.folders)]))


def _above(name: str, including: str) -> Iterator[Path]:
    """The folders above ``including`` in which the first part of ``name`` leads back to it."""
    first, folder, _ = name.partition("/")
    own = Path(including).parent
    for one in (own.absolute(), *own.absolute().parents) if folder else ():
        if one.name == first:
            yield one.parent if own.is_absolute() else Path(os.path.relpath(one.parent))


def _plain(path: Path) -> str:
    """Without ``folder/..``, so that a header has one name."""
    parts: list[str] = []
    for one in path.parts:
        if one == ".." and parts and parts[-1] not in {"..", path.anchor}:
            parts.pop()
        else:
            parts.append(one)
    return str(Path(*parts))


def load(path: str, reader: Reader | None = None) -> Unit:
    """The unit of the source at ``path``.

    Raises NoInputError where it cannot be read, and InputError where it is no text.
    """
    reader = reader or Reader()
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from None
    if b"\0" in raw[: 1 << 16]:
        raise InputError(f"{path} is not C++: it holds binary data")
    return of_text(path, raw, reader)


def of_text(path: str, raw: bytes, reader: Reader) -> Unit:
    """As ``load``, for bytes that have been read."""
    troubles: list[Trouble] = []
    if len(raw) > LARGEST:
        raw = raw[: raw.rfind(b"\n", 0, LARGEST) + 1] or raw[:LARGEST]
        lines = raw.count(b"\n")
        why = f"it is larger than {LARGEST >> 20} MiB: only its first {lines:,} lines were analysed"
        troubles.append(Trouble(path, why))
    reading = Preprocessor(reader.find, reader.find_angled)
    for text in reader.build.macros:
        reading.define(text)
    reading.read(path, raw.decode("latin-1"))
    troubles += [Trouble(f'header "{name}"', f"not found ({where}:{line})") for name, where, line in reading.missing]
    files = tuple(map(_parsed, reading.files))
    for one in files:
        troubles += _not_understood(one)
    collected = Collector()
    for one in files:
        collected.file(one)
    troubles += [Trouble(f"{where}:{line}", f"not analysed: {why}") for where, line, why in collected.failed]
    unit = Unit(
        path=path,
        files=files,
        functions=tuple(collected.functions),
        classes={name: tuple(several) for name, several in collected.classes.items()},
        constants=collected.constants,
        aliases=collected.aliases,
        ops=tuple(op for one in files for op in registrations.ops(one)),
        troubles=tuple(troubles),
    )
    by_name = {op.name: op for op in unit.ops}
    kernels = [kernel for one in files for kernel in registrations.kernels(one)]
    return replace(unit, kernels=tuple(_tied(unit, one, by_name) for one in dict.fromkeys(kernels)))


@lru_cache(maxsize=1)
def _parser() -> Parser:
    try:
        import tree_sitter
        import tree_sitter_cpp
    except ImportError as error:
        raise InputError(
            f"C++ sources need the package {error.name}, which is not installed: {shlex.quote(sys.executable)} -m pip "
            "install tree-sitter tree-sitter-cpp"
        ) from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def _parsed(one: Expanded) -> SourceFile:
    text = one.text.encode("latin-1")
    return SourceFile(
        path=one.path,
        original=one.original.encode("latin-1"),
        text=text,
        spans=one.spans,
        tree=_parser().parse(text),
        is_header=is_header(one.path),
    )


def _not_understood(file: SourceFile) -> list[Trouble]:
    """One trouble for all syntax errors of a file."""
    if not file.tree.root_node.has_error:
        return []
    lines = sorted({file.place(one).line for one in _errors(file.tree.root_node)})
    if not lines:
        return []
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return [Trouble(file.path, f"syntax not understood at line {lines[0]}{more}; the rest was analysed")]


def _errors(root: Node) -> list[Node]:
    found = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "ERROR" or node.is_missing:
            found.append(node)
        elif node.has_error:
            waiting += node.children
    return found


def _tied(unit: Unit, kernel: Kernel, ops: dict[str, RegisteredOp]) -> Kernel:
    cls = unit.class_named(kernel.class_name)
    op = ops.get(kernel.op_name)
    if cls is None:
        return replace(kernel, op=op)
    constructor = next((one for one in unit.methods(cls) if one.is_constructor), None)
    return replace(kernel, op=op, cls=cls, constructor=constructor, compute=computes(unit, cls))


def computes(unit: Unit, cls: Class) -> Function | None:
    """``Compute`` or ``ComputeAsync`` of the class, or of the nearest base class that has one."""
    waiting, seen = [cls], 0
    while waiting and seen < _BASES:
        one = waiting.pop(0)
        seen += 1
        for name in ("Compute", "ComputeAsync"):
            found = next((each for each in unit.named(name) if each.class_name == one.qualified), None)
            if found is not None:
                return found
        waiting += [base for each in one.bases if (base := unit.class_named(each.name, one.qualified)) is not None]
    return None
