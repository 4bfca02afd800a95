"""The command that is reduced: an interpreter, and a script or module of the working directory."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from necropsy.errors import CommandNotFoundError, NoInputError, OptionError
from necropsy.reduce.program import Program
from necropsy.reduce.python_source import source_of

_WITH_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})


@dataclass(frozen=True)
class PythonCommand:
    """``interpreter OPTIONS SCRIPT ARGUMENTS`` or ``-m MODULE``; ``script`` is relative to the folder, with ``/``."""

    interpreter: str
    options: tuple[str, ...]
    script: str
    module: str | None
    arguments: tuple[str, ...]

    def words(self, program: Program) -> list[str]:
        """The command line for a program."""
        named = ["-m", self.module] if self.module is not None else [self.script]
        return [self.interpreter, *self.options, *named, *program.arguments]


def understood(words: Sequence[str], folder: Path) -> PythonCommand:
    """The parts of a command that is run in ``folder``.

    Raises:
        OptionError: it does not run a Python script or module.
        CommandNotFoundError: there is no such interpreter.
        NoInputError: there is no such script.

    """
    if not words:
        raise OptionError("what should be reduced? necropsy reduce -- python SCRIPT")
    name = PurePath(words[0]).name
    if not name.startswith(("python", "pypy")):
        raise OptionError(f"{words[0]} is no Python interpreter: reduce cuts programs that are run as python SCRIPT")
    interpreter = shutil.which(words[0])
    if interpreter is None:
        missing = CommandNotFoundError(f"{words[0]}: command not found")
        missing.hint = "name the interpreter that the program runs with: necropsy reduce -- python3 SCRIPT"
        raise missing
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] in {"-c", "-"}:
            raise OptionError("reduce cuts scripts and modules, not code that is given by -c: put it into a file")
        at += 2 if words[at] in _WITH_VALUE else 1
    options = tuple(words[1:at])
    if at >= len(words):
        raise OptionError("no script is in the command: necropsy reduce -- python SCRIPT")
    if words[at] == "-m":
        if at + 1 >= len(words):
            raise OptionError("-m takes the name of a module")
        module = words[at + 1]
        script = _file_of(module, folder)
        return PythonCommand(os.path.abspath(interpreter), options, script, module, tuple(words[at + 2 :]))  # noqa: PTH100 - a venv's python is a link that must not be followed
    path = folder / words[at]
    if not path.is_file():
        raise NoInputError(f"there is no script {words[at]}")
    try:
        script = path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise OptionError(
            f"{words[at]} is not below {folder}: run the command in a folder that has the script and what it reads"
        ) from None
    return PythonCommand(os.path.abspath(interpreter), options, script, None, tuple(words[at + 1 :]))  # noqa: PTH100 - as above


def module_files(module: str) -> tuple[str, str]:
    """The files that ``-m`` may run for a module."""
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__main__.py"


def _file_of(module: str, folder: Path) -> str:
    for name in module_files(module):
        if (folder / name).is_file():
            return name
    raise NoInputError(f"there is no module {module} below {folder}")


def foreign_imports(program: Program) -> list[str]:
    """The modules that the program's files import at their top and that are not the program's own."""
    folders = {"", str(PurePath(program.script).parent)}
    own = {
        PurePath(path).parts[len(PurePath(one).parts) :][0]
        for path in program.files
        for one in folders
        if _is_below(path, one)
    }
    own = {name.removesuffix(".py") for name in own}
    names: dict[str, None] = {}
    for path in program.python_files:
        source = source_of(program.files.get(path, b""))
        for node in source.tree.body if source is not None else ():
            if isinstance(node, ast.Import):
                names.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names[node.module] = None
    return [name for name in names if name.split(".")[0] not in own and name != "__future__"]


def _is_below(path: str, folder: str) -> bool:
    return not folder or folder == "." or path.startswith(f"{folder}/")
