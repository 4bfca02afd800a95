"""The Python package that a library belongs to, by where it lies and by the metadata beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
    names = (_normal(top), *table("packages.json")["published"].get(top.lower(), ()))
    if top == "nvidia":
        names = _of_nvidia(path[match.end() :], versions)
    return next(((name, versions[name]) for name in names if name in versions), None)


def _of_nvidia(path: str, versions: Iterable[str]) -> tuple[str, ...]:
    """NVIDIA's packages share one folder: ``/cudnn/lib/libcudnn.so.9`` is of ``nvidia-cudnn-cu12``.

    Those for CUDA 13 share a folder within it, and are not told apart.
    """
    part = path.split("/")[1] if path.count("/") > 1 else ""
    return tuple(name for name in versions if re.fullmatch(rf"nvidia-{re.escape(_normal(part))}(?:-cu\d+)?", name))
