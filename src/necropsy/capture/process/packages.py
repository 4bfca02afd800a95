"""The Python package that a library belongs to, by where it lies and by the metadata beside it."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from necropsy.data import table

_SITE = re.compile(r"^(?P<site>.*/(?:site|dist)-packages)/(?P<top>[^/]+)")
_DIST_INFO = re.compile(r"^(?P<name>.+?)-(?P<version>\d[^-]*)\.(?:dist|egg)-info$")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@lru_cache(maxsize=16)
def _published(site: str) -> dict[str, str]:
    try:
        names = os.listdir(site)  # noqa: PTH208 - names, not paths
    except OSError:
        return {}
    return {_normal(match["name"]): match["version"] for name in names if (match := _DIST_INFO.match(name))}


def package_of(path: str) -> tuple[str, str] | None:
    """The Python package that a mapped file belongs to, and its version; by the metadata beside it."""
    match = _SITE.match(path)
    if match is None:
        return None
    top = match["top"].removesuffix(".libs").split(".")[0]
    versions = _published(match["site"])
    for name in (_normal(top), *table("packages.json")["published"].get(top.lower(), ())):
        if name in versions:
            return name, versions[name]
    return None
