"""Keeps the calls of a campaign that showed something new, so that the next one begins with them.

The corpus is a folder with a folder for each op, and in it a small file of JSON for each call: the first one with a
message, with a kind of result, and with a kind of death. A call that shows nothing new any more is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from necropsy.errors import NecropsyError
from necropsy.fuzz.checked_recipes import UnfitRecipeError, checked_recipe
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.recipes import Recipe, to_json
from necropsy.model import Gap

MOST_FILES = 500
"""Of one op."""
MOST_BYTES = 1 << 20
"""Of one file."""
MOST_RESULTS = 200
_FILE = re.compile(r"(?:death|message|result)-[0-9a-f]{16}\.json")
_SHOWN = 3

Why = Literal["death", "message", "result"]


@dataclass
class Kept:
    """The calls of a campaign that showed something new, the first one for each."""

    calls: dict[tuple[Why, str], Recipe] = field(default_factory=dict)

    def note(self, why: Why, what: str, recipe: Recipe) -> None:
        """A call died as ``what`` says, or raised that message, or gave that kind of result."""
        if (why, what) in self.calls or (why == "result" and len(self.calls) >= MOST_RESULTS):
            return
        self.calls[why, what] = recipe


def kind_of_result(recipe: Recipe) -> str:
    """The same for accepted calls with the same types, ranks, empty inputs and named choices."""
    tensors = [(one.dtype, len(one.shape), not one.size) for one in recipe.tensors()]
    choices = [(name, one) for name, one in recipe.attributes.items() if isinstance(one, (bool, dict)) or one is None]
    return str((tensors, [(name, one) for name, one in choices if not isinstance(one, dict) or "type" in one]))


class Corpus:
    """The folder. ``gaps`` says which of its files were left out."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, if there is none.

        Raises:
            NecropsyError: it cannot be made.

        """
        self.folder = folder
        self.gaps: list[Gap] = []
        self._files: dict[str, dict[tuple[str, str], Path]] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise NecropsyError(f"cannot make the folder {folder}: {error.strerror or error}") from error

    def recipes(self, op: OpDefinition) -> list[Recipe]:
        """The calls of an op that were kept."""
        found: dict[tuple[str, str], Recipe] = {}
        wrong: list[str] = []
        files = self._files.setdefault(op.name, {})
        for path in self._listed(op):
            try:
                recipe = checked_recipe(_read(path), op)
            except (OSError, ValueError, RecursionError) as error:
                wrong.append(f"{path.name}: {_reason(error)}")
                continue
            found.setdefault(recipe.call, recipe)
            files.setdefault(recipe.call, path)
        if wrong:
            many = f"{len(wrong)} file{'' if len(wrong) == 1 else 's'} of {self._place(op)} left out"
            self.gaps.append(Gap(part=f"{op.name}: {many}", why="; ".join(wrong[:_SHOWN])))
        return list(found.values())

    def keep(self, op: OpDefinition, kept: Kept, unmade: frozenset[tuple[str, str]]) -> None:
        """Write what is new, and remove what is not any more. ``unmade``: kept calls that there was no time for.

        Raises:
            NecropsyError: the folder cannot be written.

        """
        place, files = self._place(op), self._files.get(op.name, {})
        written: set[Path] = set()
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            for (why, _), recipe in kept.calls.items():
                path = place / f"{why}-{hashlib.blake2b(repr(recipe.call).encode(), digest_size=8).hexdigest()}.json"
                written.add(path)
                if not path.exists():
                    _write(path, why, recipe)
            for call, path in files.items():
                if call not in unmade and path not in written:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise NecropsyError(f"cannot write to {place}: {error.strerror or error}") from error

    def _place(self, op: OpDefinition) -> Path:
        plain = re.sub(r"\W", "_", op.name)
        if plain != op.name:
            plain += "-" + hashlib.blake2b(op.name.encode(), digest_size=4).hexdigest()
        return self.folder / plain

    def _listed(self, op: OpDefinition) -> Iterator[Path]:
        place = self._place(op)
        try:
            files = sorted(place.iterdir()) if place.exists() else []
        except OSError as error:
            self.gaps.append(Gap(part=f"{op.name}: the corpus", why=f"cannot read {place}: {error.strerror or error}"))
            return
        files = [path for path in files if _FILE.fullmatch(path.name)]
        if len(files) > MOST_FILES:
            why = f"{place} has {len(files):,} calls; the first {MOST_FILES} by name are read"
            self.gaps.append(Gap(part=f"{op.name}: the corpus", why=why))
        yield from files[:MOST_FILES]


_READ = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Windows has the last one only."""


def _read(path: Path) -> Any:
    """The data of a file, which anyone may have written."""
    handle = os.open(path, _READ)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnfitRecipeError("not a regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UnfitRecipeError(f"larger than {MOST_BYTES:,} bytes")
    return json.loads(data)


def _reason(error: Exception) -> str:
    if isinstance(error, UnfitRecipeError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not JSON"


def _write(path: Path, why: Why, recipe: Recipe) -> None:
    """Write the file at once, readable to its owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_text(why, json.loads(to_json(recipe))))
        part.replace(path)
    except BaseException:
        part.unlink()
        raise


def _text(why: Why, data: Mapping[str, Any]) -> str:
    """JSON with a line for each input."""
    rows: Sequence[str] = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in data["inputs"].items()]
    inputs = "{\n" + ",\n".join(rows) + "\n }" if rows else "{}"
    return (
        f'{{\n "why": {json.dumps(why)},\n "function": {json.dumps(data["function"])},\n "inputs": {inputs},\n'
        f' "attributes": {json.dumps(data["attributes"])}\n}}\n'
    )
