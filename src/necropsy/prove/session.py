"""Talks to ``runner.py`` in the interpreter that has TensorFlow: which ops a library has, and how calls of them end."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from necropsy.confirm import address_sanitizer
from necropsy.errors import NecropsyError
from necropsy.json_lines import Answers
from necropsy.prove.outcomes import CallDeath, Survived, death

_START_S = 180.0
_ASAN = address_sanitizer.options(
    handle_abort=1,
    handle_sigfpe=1,
    handle_sigill=1,
    allocator_may_return_null=1,
    max_allocation_size_mb=2048,
    strict_string_checks=1,
)


class OpInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input of an op, as TensorFlow has registered it."""

    name: str
    type: str | None = None
    type_attribute: str | None = None
    number_attribute: str | None = None
    types_attribute: str | None = None


class OpAttribute(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute of an op, as TensorFlow has registered it."""

    name: str
    type: str
    minimum: int | None = None
    allowed: tuple[str, ...] = ()
    default: str | None = None


class OpDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An op with the types that its kernels for the CPU accept."""

    inputs: tuple[OpInput, ...] = ()
    attributes: tuple[OpAttribute, ...] = ()
    kernels: tuple[dict[str, tuple[str, ...]], ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one call may take: bytes of stack and of memory, and seconds."""

    stack: int
    seconds: float = 10.0
    memory: int = 4 << 30


class Session:
    """A process that has loaded one library, until it is closed."""

    def __init__(self, python: str, library: Path, limits: Limits) -> None:
        """Start it; raises ``NecropsyError`` if the interpreter, TensorFlow or the library fails."""
        self._limits = limits
        self._folder = tempfile.TemporaryDirectory(prefix="necropsy-prove-")
        options = {**msgspec.to_builtins(limits), "folder": self._folder.name}
        runner = str(Path(__file__).with_name("runner.py"))
        try:
            self._process = subprocess.Popen(
                [python, runner, str(library), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError as error:
            self._folder.cleanup()
            raise NecropsyError(f"cannot run {python}: {error.strerror}") from error
        self._stdin, self._stdout = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._answers = Answers(self._stdout, "the process that loads the op")
        try:
            self.ops = self._started()
        except NecropsyError:
            self.close()
            raise

    def _started(self) -> dict[str, OpDescription]:
        """The ops of the library; raises ``NecropsyError`` if it cannot be loaded."""
        first = self._answers.next(_START_S)
        if "refused" in first:
            raise NecropsyError(first["refused"])
        return msgspec.convert(first["ops"], dict[str, OpDescription])

    def run(self, calls: Sequence[str]) -> list[Survived | CallDeath]:
        """How each call ended; calls share a process until one dies. Raises ``NecropsyError`` if the process ended."""
        try:
            self._stdin.write(json.dumps(list(calls)).encode() + b"\n")
            self._stdin.flush()
        except OSError as error:
            raise NecropsyError("the process that loads the op ended unexpectedly") from error
        found: list[Survived | CallDeath] = []
        while "done" not in (answer := self._answers.next(self._limits.seconds * 5 + 60)):
            text = calls[answer["call"]]
            if answer["ended"] in {"value", "error"}:
                found.append(Survived(text, answer["ended"] == "value", answer["said"]))
            else:
                found.append(death(text, answer["ended"], answer["code"], answer["log"]))
        return found

    def close(self) -> None:
        """End it, and remove what it left."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def _environment() -> dict[str, str]:
    """Add AddressSanitizer's runtime, if installed, which gives the place of a death."""
    variables = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    runtime = address_sanitizer.runtime()
    if runtime is not None:
        variables |= {"LD_PRELOAD": " ".join(address_sanitizer.preload(runtime)), "ASAN_OPTIONS": _ASAN}
    return variables
