"""A source -> how it is compiled, from the nearest ``compile_commands.json`` that lists it.

Compilers and options that could run something are never taken from such a file; see ``compilation.py``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec

from necropsy.audit.cxx.known_macros import UNDEFINED
from necropsy.audit.cxx.load import BuildFlags

NAME = "compile_commands.json"
_BUILDS = ("", "build")
"""Where it is, below a folder of the project."""
_LARGEST = 256 << 20
_NOT_OURS = frozenset({"site-packages", "dist-packages", "node_modules"})


class _Entry(msgspec.Struct):
    """As in https://clang.llvm.org/docs/JSONCompilationDatabase.html."""

    directory: str
    file: str
    arguments: list[str] | None = None
    command: str | None = None


@dataclass(frozen=True)
class CompileCommand:
    """How one source is compiled: the words behind the compiler's name, and the folder in which it runs."""

    database: str
    project: Path
    directory: Path
    words: tuple[str, ...]

    @cached_property
    def flags(self) -> BuildFlags:
        """What the reader of sources takes from it: folders of the project in which headers are, and macros."""
        folders, macros = [], []
        for option, value in self.options:
            if option in {"-I", "-iquote"}:
                if self.is_own(value):
                    folders.append(os.path.normpath(self.directory / value))
            elif option == "-D":
                name, _, text = value.partition("=")
                if name.partition("(")[0] not in UNDEFINED:
                    macros.append(f"{name} {text if '=' in value else 1}")
            elif option == "-U":
                macros = [one for one in macros if one.partition(" ")[0] != value]
        return BuildFlags(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(macros)))

    def is_own(self, folder: str) -> bool:
        """The project's headers are in it, not those of what it uses."""
        whole = Path(os.path.normpath(self.directory / folder))
        return self.project in {whole, *whole.parents} and not _NOT_OURS.intersection(whole.parts)

    @property
    def options(self) -> Iterator[tuple[str, str]]:
        """Those with a value, be it in the same word or in the next one: ``-I``, ``-D`` and the like."""
        words = iter(self.words)
        for word in words:
            option = next((one for one in WITH_VALUE if word.startswith(one)), None)
            if option is not None:
                value = word[len(option) :] or next(words, "")
                if value:
                    yield option, value


WITH_VALUE = ("-isystem", "-iquote", "-idirafter", "-include", "-I", "-D", "-U")


@dataclass(frozen=True)
class Database:
    """One file: its commands by source, or why it cannot be read."""

    commands: dict[str, CompileCommand]
    trouble: str | None = None


def of(source: str) -> CompileCommand | None:
    """The command of the nearest database above the source, or in a folder ``build`` there, that lists it."""
    names = {os.path.abspath(source), os.path.realpath(source)}  # noqa: PTH100 - Path.resolve follows links
    for one in _above(source):
        for name in names:
            if name in one.commands:
                return one.commands[name]
    return None


def trouble(source: str) -> str | None:
    """Why a database above the source cannot be read."""
    return next((one.trouble for one in _above(source) if one.trouble is not None), None)


def flags(source: str) -> BuildFlags:
    """What the reader of sources takes from the command of ``source``; nothing where there is none."""
    found = of(source)
    return found.flags if found is not None else BuildFlags()


def _above(source: str) -> Iterator[Database]:
    for folder in Path(source).absolute().parents:
        for build in _BUILDS:
            path = folder / build / NAME
            try:
                stat = path.stat()
            except OSError:
                continue
            yield _read(str(path), str(folder), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _read(path: str, project: str, _changed: int, size: int) -> Database:
    if size > _LARGEST:
        return Database({}, f"{path} is larger than {_LARGEST >> 20} MiB")
    try:
        entries = msgspec.json.decode(Path(path).read_bytes(), type=list[_Entry])
    except OSError as error:
        return Database({}, f"{path} cannot be read: {error.strerror or error}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Database({}, f"{path} is not a compile database")
    found: dict[str, CompileCommand] = {}
    for one in entries:
        folder = Path(path).parent / one.directory
        try:
            words = tuple(one.arguments if one.arguments is not None else shlex.split(one.command or ""))[1:]
        except ValueError:  # a quote that is not closed
            continue
        name = os.path.normpath(folder / one.file)
        found.setdefault(name, CompileCommand(path, Path(project), folder, words))
    return Database(found)
