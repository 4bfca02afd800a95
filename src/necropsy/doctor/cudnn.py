"""The cuDNN that a package would load: its version and its parts, by the names of files, metadata and headers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from necropsy.doctor.distributions import Installed
from necropsy.doctor.loader import Loader
from necropsy.model import CudaLibrary, Cudnn, CudnnPart

_PARTS = {
    "8": ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    # engines_precompiled is left out: the variant nvidia-cudnn-jit does without it.
    "9": ("graph", "ops", "cnn", "adv", "heuristic", "engines_runtime_compiled"),
}
_IN_NAME = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")
_HEADERS = ("include/cudnn_version.h", "include/cudnn_version_v9.h", "include/cudnn_version_v8.h")


def of(library: CudaLibrary, loader: Loader, installed: Iterable[Installed]) -> Cudnn | None:
    """What is known of ``libcudnn.so.N``; None where it would not be found."""
    if library.path is None:
        return None
    every = list(installed)
    owner = _owner(library.path, every)
    version, told_by = _version(library.path, owner)
    folder = os.path.dirname(library.path)
    major = library.name.rpartition(".")[2]
    parts = []
    for stem in _PARTS.get(major, ()):
        name = f"libcudnn_{stem}.so.{major}"
        # It is opened by its name, so LD_LIBRARY_PATH may direct it elsewhere; cuDNN looks next to itself too.
        place, _ = loader.find(name, folder, (), (folder,))
        path = place.path if place is not None else None
        of_part = _version(path, _owner(path, every))[0] if path is not None else None
        parts.append(CudnnPart(name=name, path=path, version=of_part))
    return Cudnn(
        path=library.path,
        by=library.by,
        version=version,
        told_by=told_by,
        owner=owner.name if owner is not None else None,
        parts=tuple(parts),
    )


def _owner(path: str, installed: Iterable[Installed]) -> Installed | None:
    """None without an owner, or if two distributions own that folder."""
    owners = [
        one
        for one in installed
        if one.name.startswith("nvidia-cudnn") and path.startswith(f"{one.noun.location}/nvidia/cudnn/")
    ]
    return owners[0] if len(owners) == 1 else None


def _version(path: str, owner: Installed | None) -> tuple[str | None, str | None]:
    real = os.path.realpath(path)
    match = _IN_NAME.search(real)
    if match is not None:
        return match[1], real
    if owner is not None:
        return ".".join(owner.noun.version.split(".")[:3]), owner.noun.metadata
    for header in _HEADERS:
        name = os.path.join(os.path.dirname(os.path.dirname(real)), header)
        version = _of_header(name)
        if version is not None:
            return version, name
    return None, None


def _of_header(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:
        return None
    numbers = [re.search(rf"#define\s+CUDNN_{part}\w*\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCHLEVEL")]
    found = [number[1] for number in numbers if number is not None]
    return ".".join(found) if len(found) == len(numbers) else None
