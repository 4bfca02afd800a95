"""Which file ``import NAME`` takes, for the modules of checked distributions: not always the installed one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from necropsy.doctor import distributions
from necropsy.doctor.distributions import Installed, rows
from necropsy.model import Interpreter, Shadow

Source = Literal["PYTHONPATH", "user-site", "working-directory", "other"]
_TOP = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:/__init__\.py|\.py|(?:\.[\w-]+)*\.(?:so|pyd))")


def of(one: Installed) -> tuple[str, ...]:
    """Its top-level modules and packages, as RECORD lists them; those that are only a namespace are left out."""
    found = (_TOP.fullmatch(row.path) for row in rows(one) or ())
    return tuple(sorted({match["name"] for match in found if match is not None}))


class Importing:
    """The search that ``import`` makes on ``sys.path``."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._entries = distributions.entries(interpreter)
        self._suffixes = (*(interpreter.suffixes or (".so",)), ".py", ".pyc")
        self._listed: dict[str, frozenset[str]] = {}

    def shadows(self, one: Installed, later: Mapping[str, Installed]) -> Iterator[Shadow]:
        """The modules of ``one`` that come from elsewhere, and those of a copy in a later folder that it hides."""
        for module in one.noun.modules:
            found = self._first(module)
            installed = self._in(one.noun.location, module)
            if found is None or installed is None or found == installed:
                continue
            yield Shadow(module=module, found=found, installed=installed, source=self.source(found))
        hidden = later.get(one.name)
        source = self.source(f"{one.noun.location}/x")
        if hidden is not None and hidden.noun.version != one.noun.version and source in {"PYTHONPATH", "user-site"}:
            for module in one.noun.modules:
                found, installed = self._in(one.noun.location, module), self._in(hidden.noun.location, module)
                if found is not None and installed is not None:
                    yield Shadow(module=module, found=found, installed=installed, source=source)

    def source(self, path: str) -> Source:
        """Why the folder that holds ``path`` is on ``sys.path``."""
        folder = next((one for one in self._entries if path.startswith(one.rstrip("/") + "/")), None)
        at = max((one for one in self._entries if path.startswith(one.rstrip("/") + "/")), key=len, default=folder)
        if at is None:
            return "other"
        if at in map(os.path.normpath, self._interpreter.python_path):
            return "PYTHONPATH"
        if self._interpreter.user_site is not None and at == os.path.normpath(self._interpreter.user_site):
            return "user-site"
        return "working-directory" if at == self._interpreter.working_directory else "other"

    def _first(self, module: str) -> str | None:
        return next((path for entry in self._entries if (path := self._in(entry, module)) is not None), None)

    def _in(self, entry: str, module: str) -> str | None:
        names = self._names(entry)
        if module in names and os.path.isfile(f"{entry}/{module}/__init__.py"):
            return f"{entry}/{module}"
        return next((f"{entry}/{module}{suffix}" for suffix in self._suffixes if module + suffix in names), None)

    def _names(self, entry: str) -> frozenset[str]:
        if entry not in self._listed:
            try:
                self._listed[entry] = frozenset(os.listdir(entry))
            except OSError:
                self._listed[entry] = frozenset()
        return self._listed[entry]
