"""What the rules on imports share: what a failed import may have in common with findings of other rules, and advice."""

from __future__ import annotations

import re
import shlex

from necropsy.model import Environment, Evidence, Fix, Import
from necropsy.rule import Found

_LIBRARY = re.compile(r"(?P<path>(?:/[^\s:'\"]+/)?)(?P<name>[\w+.-]+\.so(?:\.[\w.-]+)?)")
_WORD = re.compile(r"[A-Za-z_]\w*")


def causes(environment: Environment, one: Import) -> frozenset[str]:
    """Keys of what its text and its place speak of: other rules give the same ones where they know the cause."""
    text = f"{one.text or ''} {one.summary or ''}"
    found = set()
    for match in _LIBRARY.finditer(f"{text} {one.place or ''}"):
        path = match["path"] + match["name"]
        found |= {f"library {match['name']}", f"file {path}", f"symbols of {path}"}
    words = {word.lower() for word in _WORD.findall(text)}
    place = one.place or ""
    for each in environment.distributions or ():
        if not each.checked:
            continue
        own = {name.lower() for name in (*each.modules, each.name.replace("-", "_"))}
        within = any(f"/{name}/" in place.lower() or place.lower().endswith(f"/{name}.py") for name in own)
        if own & words or within or each.name == one.distribution:
            found |= {each.name, f"build of {each.name}"}
    for library in environment.libraries or ():
        if one.place and library.path.rsplit("/", 1)[-1] == one.place.rsplit("/", 1)[-1]:
            found |= {f"file {library.path}", f"symbols of {library.path}"}
    while place.count("/") > 1:
        place = place.rpartition("/")[0]
        found.add(f"folder {place}")
    return frozenset(found)


def spelled(environment: Environment, one: Import) -> str:
    """``tensorflow 2.20.0``."""
    distribution = environment.distribution(one.distribution)
    return f"{one.distribution} {distribution.version}" if distribution is not None else one.distribution


def verdict(one: Import) -> Found:
    """What the rule on crashes says, with its name."""
    if one.rule is None or one.summary is None:
        return ()
    return (
        Evidence(claim=f"the cause, by the rule {one.rule}", seen=one.summary, where="the process that imported it"),
    )


def advice(one: Import) -> tuple[Fix, ...]:
    """The fixes of that rule."""
    return tuple(Fix(text=text, command=command or None) for text, command in one.advice.items())


def supervised(environment: Environment, one: Import) -> str:
    """The command that imports it again under the supervisor."""
    executable = environment.executable or "python"
    return shlex.join(["necropsy", "run", executable, "-c", f"import {one.module or one.distribution}"])
