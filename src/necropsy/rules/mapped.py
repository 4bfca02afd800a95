"""The environment of a dead process as shown by its crash: mapped libraries, variables, limits.

Nothing is read here. Parts that only files have (requirements, file ownership) are missing, and rules that need them
are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Distribution, Environment, Library, Module, Preload
from necropsy.rules.mapped_cuda import builds_of

_SITE = re.compile(r"(?P<site>(?P<prefix>.+)/lib(?:64)?/python3(?:\.\d+)?/(?P<kind>site|dist)-packages)/")


def environment_of(crash: Crash) -> Environment | None:
    """The environment that ``crash`` died in; None where neither its libraries nor its variables are known."""
    known = crash.environment or Environment()
    if crash.modules is None and known.variables is None and known.limits is None and known.ops is None:
        return None
    modules = crash.modules or ()
    facts = {one.path: one for one in known.libraries or ()}
    paths = [one.path for one in modules] or [*facts]
    return msgspec.structs.replace(
        known,
        executable=_interpreter(paths),
        distributions=tuple(_distributions(modules)) if crash.modules is not None else None,
        libraries=tuple(_library(one, facts.get(one.path)) for one in modules)
        if crash.modules is not None
        else known.libraries,
        preload=_preload(known, modules) if known.variables is not None and crash.modules is not None else None,
        cuda=builds_of(crash),
        mapped=True,
        gaps=crash.gaps,
    )


def _interpreter(paths: list[str]) -> str:
    """The interpreter to install packages for; virtual environments may share the mapped file."""
    for one in paths:
        match = _SITE.match(one)
        if match is not None and match["kind"] == "site":
            return f"{match['prefix']}/bin/python"
    return "python"


def _distributions(modules: tuple[Module, ...]) -> Iterator[Distribution]:
    found: dict[str, Module] = {}
    for one in modules:
        if one.package is not None and one.version is not None:
            found.setdefault(one.package, one)
    for name, one in sorted(found.items()):
        match = _SITE.match(one.path)
        location = match["site"] if match is not None else one.path
        yield Distribution(name=name, version=one.version or "", location=location, checked=True)


def _library(one: Module, facts: Library | None) -> Library:
    known = facts or Library(path=one.path)
    return msgspec.structs.replace(
        known,
        distribution=one.package,
        build_id=one.build_id,
        soname=known.soname or file_name(one.path),
    )


def _preload(known: Environment, modules: tuple[Module, ...]) -> tuple[Preload, ...]:
    """Loaded entries of LD_PRELOAD; an entry may link to the mapped file, so names must agree up to the version."""
    found = []
    for entry in (known.variables or {}).get("LD_PRELOAD", "").replace(":", " ").split():
        stem = file_name(entry).partition(".so")[0]
        path = next((one.path for one in modules if file_name(one.path).partition(".so")[0] == stem), None)
        if path is not None:
            found.append(Preload(entry=entry, path=path))
    return tuple(found)
