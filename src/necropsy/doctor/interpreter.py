"""Asks the examined interpreter to describe itself, by a small script with a time limit.

It starts as the user's program would (``site``, ``.pth`` files, PYTHONPATH), for the same ``sys.path``, but without
LD_PRELOAD and LD_LIBRARY_PATH, which may prevent its start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from necropsy.errors import InputError, NecropsyError, NoInputError
from necropsy.model import Gap, Interpreter

TIMEOUT_S = 30.0
_MARK = "necropsy-interpreter:"
_LEFT_OUT = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONINSPECT", "PYTHONVERBOSE", "PYTHONPROFILEIMPORTTIME")
_SCRIPT = Path(__file__).with_name("describe_python.py")


def find(named: str | None) -> str:
    """The path of interpreter ``named``, by default ``python`` on PATH; raises ``NoInputError`` or ``InputError``."""
    wanted = (named,) if named is not None else ("python", "python3")
    for one in wanted:
        found = shutil.which(one)
        if found is not None:
            return str(Path(found).absolute())
    if named is None:
        raise NoInputError("there is no `python` on PATH: name the interpreter with --python EXE")
    try:
        there = Path(named).exists()
    except (OSError, ValueError) as error:
        raise NoInputError(f"cannot read {named}: {error}") from None
    if there:
        raise InputError(f"{named} is not an executable program, so it cannot be a Python interpreter")
    raise NoInputError(f"there is no {named}")


def describe(executable: str, environment: Mapping[str, str]) -> tuple[Interpreter, tuple[Gap, ...]]:
    """Its description and gaps for variables that prevent it; raises ``InputError`` (not 3.6+) or ``NecropsyError``."""
    variables = {name: value for name, value in environment.items() if name not in _LEFT_OUT}
    said = _ask(executable, (), variables)
    answer = _answer(said)
    gaps: tuple[Gap, ...] = ()
    if answer is None:
        # A module in PYTHONPATH or in the user's site-packages may end each interpreter.
        answer = _answer(_ask(executable, ("-I",), variables))
        why = f"the interpreter starts only without PYTHONPATH and the user's site-packages: {_complaint(said)}"
        gaps = (Gap(part="sys.path", why=why),)
    if answer is None:
        raise InputError(f"{executable} does not start as a Python of version 3.6 or later: {_complaint(said)}")
    return msgspec.structs.replace(answer, executable=answer.executable or executable), gaps


def _ask(executable: str, flags: tuple[str, ...], variables: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    script = _SCRIPT.read_text(encoding="utf-8").replace("@MARK@", _MARK)
    try:
        return subprocess.run(
            (executable, *flags, "-c", script),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**variables, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"},
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NecropsyError(f"{executable} did not say anything about itself within {TIMEOUT_S:g} s") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{executable} cannot be run: {error}") from None


def _answer(done: subprocess.CompletedProcess[bytes]) -> Interpreter | None:
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(_MARK):
            try:
                return msgspec.json.decode(line[len(_MARK) :].encode(), type=_Answer).interpreter()
            except msgspec.MsgspecError:
                return None
    return None


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with {done.returncode} and said nothing"


class _Answer(msgspec.Struct):
    executable: str | None
    version: str
    implementation: str
    prefix: str
    base_prefix: str
    machine: str
    system: str
    libc: str | None
    soabi: str | None
    suffixes: list[str] | None
    free_threaded: bool
    path: list[str]
    python_path: list[str]
    user_site: str | None
    working_directory: str | None
    conda: bool
    externally_managed: bool
    markers: dict[str, str]

    def interpreter(self) -> Interpreter:
        """An empty entry of ``sys.path`` becomes the working directory."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values["executable"] = self.executable or ""
        values["path"] = tuple(self.path)
        values["python_path"] = tuple(_absolute(one, self.working_directory) for one in self.python_path)
        values["suffixes"] = tuple(self.suffixes) if self.suffixes is not None else None
        return Interpreter(**values)


def _absolute(entry: str, working: str | None) -> str:
    return os.path.normpath(os.path.join(working, entry)) if working is not None else entry  # noqa: PTH118 - as site does
