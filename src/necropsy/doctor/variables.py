"""Variables and flags that nothing reads, searched by name in the checked packages' libraries and sources.

XLA's flags differ between releases, so its libraries are searched instead of a table. Only variables with a name close
to a known one are checked, because most belong to other programs.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from necropsy.data import table
from necropsy.doctor.distributions import Installed
from necropsy.model import Library, UnreadSetting

FLAG_VARIABLES = {
    "XLA_FLAGS": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "jaxlib"),
    "TF_XLA_FLAGS": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
}
"""Variables that hold XLA flags, and the distributions whose libraries define them."""
_PLUGIN = "jax-"
_FLAG = re.compile(r"--([A-Za-z]\w*)")
_CHUNK = 8 << 20
_LARGEST_SOURCE = 8 << 20
_CLOSE = 0.9
"""Minimum ``difflib`` ratio of close names: one or two letters of twenty differ."""


def flags_in(value: str) -> list[str]:
    """Words of flags, or of their file, as ``SetArgvFromEnv`` reads them (XLA's parse_flags_from_env.cc), if it can."""
    text = value.strip()
    if text and not text.startswith("-"):
        try:
            text = Path(text).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return []
    try:
        return shlex.split(text)
    except ValueError:
        return []


def unread(
    variables: Mapping[str, str], libraries: Sequence[Library], checked: Sequence[Installed], sources: Iterable[str]
) -> tuple[UnreadSetting, ...]:
    """Unknown flags and misspelt variables; ``sources``: Python files, opened only if a name is in question."""
    return (*_flags(variables, libraries, checked), *_misspelt(variables, libraries, checked, sources))


# ---------------------------------------------------------------- flags


def _flags(
    variables: Mapping[str, str], libraries: Sequence[Library], checked: Sequence[Installed]
) -> Iterator[UnreadSetting]:
    for variable, readers in FLAG_VARIABLES.items():
        value = variables.get(variable, "").strip()
        is_file = bool(value) and not value.startswith("-")
        words = {match[1]: word for word in flags_in(variables.get(variable, "")) if (match := _FLAG.match(word))}
        for reader in readers if words or is_file else ():
            own = [
                one.path
                for one in libraries
                if one.distribution == reader or (reader == "jaxlib" and (one.distribution or "").startswith(_PLUGIN))
            ]
            if not own:
                continue
            if is_file and not os.access(value, os.R_OK):
                yield UnreadSetting(variable=variable, searched=_names(checked, reader))
                continue
            missing = _absent([f"{name}\0".encode() for name in words], _largest_first(own))
            for name, word in words.items():
                if f"{name}\0".encode() in missing:
                    yield UnreadSetting(variable=variable, flag=word, searched=_names(checked, reader))


# ---------------------------------------------------------------- names


def _misspelt(
    variables: Mapping[str, str],
    libraries: Sequence[Library],
    checked: Sequence[Installed],
    sources: Iterable[str],
) -> Iterator[UnreadSetting]:
    meant = {name: known for name in variables if (known := close_to(name)) is not None}
    if not meant:
        return
    files = [*_largest_first(one.path for one in libraries), *sources]
    missing = _absent([name.encode() for name in meant], files)
    for name, known in meant.items():
        if name.encode() in missing:
            yield UnreadSetting(variable=name, meant=known, searched=_names(checked))


def close_to(name: str) -> str | None:
    """The known name that an unknown one is close to; None if it is known, or like none."""
    known = known_names()
    # Scripts name variables of their own PYTHON_PATH and the like: Python's have no such prefix.
    if name in known or len(name) < 8 or name.startswith("PYTHON_") or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return None
    plain = _plain(name)
    for one in known:
        if _plain(one) == plain:
            return one
    if name.upper() != name or any(_is_longer(name, one) or _is_longer(one, name) for one in known):
        return None  # with a word more it is a name of its own: LD_LIBRARY_PATH_64
    found = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    if not found or _digits(name) != _digits(found[0]):
        return None
    # Its first word has to be spelt right: another one belongs to another program.
    first, other = name.partition("_")[0], found[0].partition("_")[0]
    return found[0] if first == other or (first == name and name.startswith("PYTHON")) else None


def known_names() -> frozenset[str]:
    """The names of the table, judged or not."""
    rows = table("variables.toml")
    return frozenset(
        [*(one["name"] for one in rows["variable"]), *(name for one in rows["names"] for name in one["names"])]
    )


def _plain(name: str) -> str:
    return name.upper().replace("_", "")


def _is_longer(name: str, one: str) -> bool:
    return name.startswith(f"{one}_") or name.endswith(f"_{one}")


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


# ---------------------------------------------------------------- files


def _absent(needles: Iterable[bytes], paths: Iterable[str]) -> set[bytes]:
    """Names that occur in no file, read in pieces, because libraries may have half a gigabyte."""
    left = set(needles)
    if not left:
        return left
    overlap = max(map(len, left)) - 1
    for path in paths:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - thousands of them
                tail = b""
                while left and (piece := file.read(_CHUNK)):
                    window = tail + piece
                    left = {needle for needle in left if needle not in window}
                    tail = window[-overlap:]
        except OSError:
            continue
        if not left:
            break
    return left


def _largest_first(paths: Iterable[str]) -> list[str]:
    def size(path: str) -> int:
        file = Path(path)
        return file.stat().st_size if file.is_file() else 0

    return sorted(dict.fromkeys(paths), key=size, reverse=True)


def _names(checked: Sequence[Installed], only: str | None = None) -> tuple[str, ...]:
    return tuple(f"{one.noun.name} {one.noun.version}" for one in checked if only in {None, one.noun.name})


def sources(folders: Iterable[tuple[str, Iterable[str]]], working_directory: str | None) -> Iterator[str]:
    """Python files: those of these folders by their paths below them, and those in the working directory."""
    for folder, names in folders:
        for name in names:
            if name.endswith(".py"):
                yield f"{folder}/{name}"
    if working_directory is not None and Path(working_directory).is_dir():
        with os.scandir(working_directory) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".sh", ".ipynb")) and entry.stat().st_size < _LARGEST_SOURCE:
                    yield entry.path
