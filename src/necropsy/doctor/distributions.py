"""The installed distributions, found on ``sys.path`` as ``importlib.metadata`` finds them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from necropsy.doctor import metadata
from necropsy.model import Distribution, Interpreter, Requirement

FRAMEWORKS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "torch", "jax", "onnxruntime", "onnxruntime-gpu")
_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?P<kind>dist|egg)-info")
_LARGEST = 32 << 20
"""Bytes of a metadata file; a RECORD of 100,000 files has 12 MB."""


@dataclass
class Installed:
    """A distribution with what only the collectors need of it."""

    noun: Distribution
    folder: str
    """The metadata's folder, or the file of an egg-info without one."""
    lines: list[str] = field(default_factory=list)
    rows: tuple[metadata.RecordRow, ...] | None = None

    @property
    def name(self) -> str:
        """Its normalised name."""
        return self.noun.name


def entries(interpreter: Interpreter) -> tuple[str, ...]:
    """The folders on ``sys.path``, each once; the empty entry is the working directory."""
    found = []
    for entry in interpreter.path or ():
        place = entry or interpreter.working_directory
        if place is not None and os.path.isdir(place):
            found.append(os.path.normpath(place))
    return tuple(dict.fromkeys(found))


def read(interpreter: Interpreter) -> tuple[dict[str, Installed], list[tuple[Installed, Installed]]]:
    """The distributions by name (the first on ``sys.path`` counts), and pairs of different installed versions."""
    found: dict[str, Installed] = {}
    twice: list[tuple[Installed, Installed]] = []
    for entry in entries(interpreter):
        for one in _in(entry):
            first = found.setdefault(one.name, one)
            if first is not one and first.noun.version != one.noun.version:
                twice.append((first, one))
    return found, twice


def _in(entry: str) -> Iterator[Installed]:
    try:
        names = sorted(os.listdir(entry))
    except OSError:
        return
    for name in names:
        match = _INFO.fullmatch(name) if name.endswith("-info") else None
        if match is None:
            continue
        one = _read(entry, os.path.join(entry, name), match["name"], match["version"])
        if one is not None:
            yield one


def _read(entry: str, folder: str, name: str, version: str) -> Installed | None:
    egg = folder.endswith(".egg-info")
    files = ("PKG-INFO", "") if egg else ("METADATA",)
    path, text = "", None
    for one in files:
        path = f"{folder}/{one}" if one else folder
        text = text_of(path)
        if text is not None:
            break
    if text is None:
        return None
    told = metadata.headers(text)
    lines = told.get("requires-dist", [])
    if egg:
        lines = lines or list(metadata.egg_requirements(text_of(f"{folder}/requires.txt") or ""))
    wheel = metadata.headers(text_of(f"{folder}/WHEEL") or "")
    installer = (text_of(f"{folder}/INSTALLER") or "").strip() or None
    noun = Distribution(
        name=metadata.normalised((told.get("name") or [name])[0]),
        version=(told.get("version") or [version])[0],
        location=entry,
        metadata=path,
        installer=installer,
        requires_python=next(iter(told.get("requires-python", ())), None),
        tags=tuple(wheel.get("tag", ())),
    )
    return Installed(noun, folder, lines)


def text_of(path: str) -> str | None:
    """The text of a file of metadata; None where it cannot be read or is far too long."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError:
        return None
    return data.decode("utf-8", "replace") if len(data) <= _LARGEST else None


def conda_package(one: Installed, interpreter: Interpreter) -> str | None:
    """The conda package with this distribution, or None; only records of its name or version are read, of hundreds."""
    if not interpreter.conda or interpreter.prefix is None or one.noun.installer not in {"conda", None}:
        return None
    wanted = f"-packages/{os.path.basename(one.folder)}".encode()
    folder = os.path.join(interpreter.prefix, "conda-meta")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    for name in names:
        # NAME-VERSION-BUILD.json
        parts = name.removesuffix(".json").rsplit("-", 2)
        if name.endswith(".json") and len(parts) == 3 and parts[1] == one.noun.version:
            text = text_of(os.path.join(folder, name))
            if text is not None and wanted in text.encode():
                return parts[0]
    return None


def rows(one: Installed) -> tuple[metadata.RecordRow, ...] | None:
    """What its RECORD lists; None where it has none."""
    if one.rows is None:
        text = text_of(f"{one.folder}/RECORD")
        if text is not None:
            one.rows = tuple(metadata.record(text))
    return one.rows


def checked(
    found: dict[str, Installed], named: Sequence[Requirement], interpreter: Interpreter
) -> dict[str, tuple[str, ...]]:
    """Frameworks, those named, and all that these require: by name, with the extras that were asked for."""
    extras: dict[str, set[str]] = {}
    open_: list[tuple[str, Iterable[str]]] = [(name, ()) for name in FRAMEWORKS]
    open_ += [(one.name, one.extras) for one in named]
    while open_:
        name, asked = open_.pop()
        one = found.get(name)
        if one is None or (name in extras and set(asked) <= extras[name]):
            continue
        extras.setdefault(name, set()).update(asked)
        wanted = tuple(sorted(extras[name]))
        for requirement in metadata.requirements(one.lines, interpreter.markers, wanted):
            if requirement.applies:
                open_.append((requirement.name, requirement.extras))
    return {name: tuple(sorted(asked)) for name, asked in extras.items()}


_VERSION = re.compile(rb"^# Protobuf Python Version: (\d+\.\d+\.\d+)", re.MULTILINE)
BEFORE_3_20 = "3.19"
"""Code without a version that builds its own descriptors: generated before 3.20, rejected from 4 on."""
_BUILDS_DESCRIPTORS = b"_descriptor.FieldDescriptor("
_HEAD = 4096
_MOST = 2000


def protobuf_generated_by(one: Installed) -> str | None:
    """The newest version that its generated code names; ``3.19`` for code of before 3.20; None where there is none."""
    newest: tuple[int, ...] = ()
    old = False
    paths = [row.path for row in rows(one) or () if row.path.endswith("_pb2.py")][:_MOST]
    for path in paths:
        try:
            with open(f"{one.noun.location}/{path}", "rb", buffering=0) as file:
                head = file.read(_HEAD)
        except OSError:
            continue
        match = _VERSION.search(head)
        if match is not None:
            newest = max(newest, tuple(int(part) for part in match[1].split(b".")))
        elif not old:
            old = _BUILDS_DESCRIPTORS in head
    if newest:
        return ".".join(map(str, newest))
    return BEFORE_3_20 if old else None
