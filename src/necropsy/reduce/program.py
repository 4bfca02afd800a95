"""A program as files, arguments and variables, and how passes propose smaller ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Program:
    """What a trial runs. ``files`` has contents by relative path; ``script`` is the path of the one that is started.

    ``environment`` has the variables that may be left out; the others of the user's stay as they are.
    """

    files: Mapping[str, bytes]
    script: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_file(self, path: str, content: bytes) -> Program:
        """The same with other contents of one file."""
        return replace(self, files={**self.files, path: content})

    def with_files(self, changed: Mapping[str, bytes]) -> Program:
        """The same with other contents of some files."""
        return replace(self, files={**self.files, **changed})

    def without_file(self, path: str) -> Program:
        """The same without one file."""
        return replace(self, files={name: data for name, data in self.files.items() if name != path})

    def without_files(self, paths: Collection[str]) -> Program:
        """The same without some files; the script stays."""
        gone = set(paths) - {self.script}
        return replace(self, files={name: data for name, data in self.files.items() if name not in gone})

    @property
    def python_files(self) -> tuple[str, ...]:
        """Paths of the Python files: the script last, since what uses a name comes after what defines it."""
        names = sorted(name for name in self.files if name.endswith(".py") and name != self.script)
        return (*names, self.script)

    @property
    def data_files(self) -> tuple[str, ...]:
        """Paths of the other files, the largest first."""
        python = set(self.python_files)
        return tuple(
            sorted((name for name in self.files if name not in python), key=lambda name: -len(self.files[name]))
        )

    @property
    def size(self) -> int:
        """The bytes of all files, arguments and variables."""
        values = (*self.arguments, *self.environment, *self.environment.values())
        return sum(map(len, self.files.values())) + sum(map(len, values))

    def digest(self) -> bytes:
        """The same for the same program."""
        made = hashlib.sha256()
        for part in (
            *(
                piece
                for name in sorted(self.files)
                for piece in (name.encode("utf-8", "surrogateescape"), self.files[name])
            ),
            *(word.encode("utf-8", "surrogateescape") for word in (self.script, "", *self.arguments, "")),
            *(f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in sorted(self.environment.items())),
        ):
            made.update(len(part).to_bytes(8, "big") + part)
        return made.digest()


Steps = Generator[Program, bool, Program]
"""Proposes one smaller program after the other; ``send`` says whether the last one was accepted. Returns the last one
that was."""
Pass = Callable[[Program], Steps]
Search = Callable[[int], Generator[tuple[int, int], bool, None]]


def search(program: Program, things: Sequence[Thing], ranges: Search, make: Callable[[list[Thing]], Program]) -> Steps:
    """Leave out as many of ``things`` as possible; ``make`` gives the program without some of them."""
    gone: list[Thing] = []
    asked = ranges(len(things))
    try:
        low, high = next(asked)
        while True:
            candidate = make([*gone, *things[low:high]])
            accepted = yield candidate
            if accepted:
                program = candidate
                gone += things[low:high]
            low, high = asked.send(accepted)
    except StopIteration:
        return program


def from_the_end(count: int) -> Generator[tuple[int, int], bool, None]:
    """Ranges of ``count`` things to leave out, from the last one on, doubled while that succeeds.

    What uses a name comes after what defines it, so the end goes first. Half of the trials of ddmin.
    """
    end, step = count, 1
    while end > 0:
        step = min(step, end)
        if (yield end - step, end):
            end -= step
            step *= 2
        elif step > 1:
            step = max(1, step // 4)
        else:
            end -= 1


def in_parts(count: int) -> Generator[tuple[int, int], bool, None]:
    """Ranges of ``count`` things to leave out: all, then halves, quarters and so on.

    For things of which most can go, or that do not depend on each other.
    """
    waiting = [(0, count)] if count else []
    while waiting:
        low, high = waiting.pop()
        if not (yield low, high) and high - low > 1:
            middle = (low + high) // 2
            waiting += [(low, middle), (middle, high)]  # the last one is taken next
