"""What the rules on libraries share: whose a library is, what it would load, and versions of symbols that are not there."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from necropsy.model import Environment, Evidence, Fix, Library
from necropsy.rule import Found
from necropsy.rules import compatibility

_DRIVER = re.compile(
    r"lib(?:cuda|nvidia-[\w-]+|nvcuvid|nvoptix|nvinfer\w*|nvonnxparser|hsa-runtime64|amdhip64|ze_loader)\.so"
)
_CUDA = re.compile(
    r"lib(?:cudart|cublas(?:Lt)?|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse(?:Lt)?|cupti|cufile\w*|nccl"
    r"|nvrtc\w*|nvJitLink|nvToolsExt|nvshmem\w*|nvjpeg|cudss\w*|cutensor\w*)\.so"
)
_OPTIONAL = re.compile(
    # Nothing imports a name with a number, nor is one without ``lib`` linked: its package opens it where it fits.
    r"/(?!lib)[^/]+\.so\.\d[^/]*$|/plugins?/|/qml/|plugin\.so$|/sqldrivers/|/(?:tbb|omp)pool\.|/(?:_?tkinter|_tk|_gtk\w*|_qt\w*|_wx\w*)\.|/mpi4py/|/tests?/"
)


def own(environment: Environment) -> tuple[Library, ...]:
    """The libraries of the distributions that are checked, and those that were named with ``--op``."""
    return tuple(one for one in environment.libraries or () if one.distribution is not None or one.is_op)


def at(environment: Environment, path: str) -> Library | None:
    """The library at ``path``."""
    return next((one for one in environment.libraries or () if one.path == path), None)


def distribution_of(environment: Environment, path: str) -> str | None:
    """The distribution that brings the library at ``path``."""
    one = at(environment, path)
    return None if one is None else one.distribution


def owner(environment: Environment, library: Library) -> str:
    """``numpy 2.1.0``, or the library's own path."""
    one = environment.distribution(library.distribution) if library.distribution is not None else None
    return f"{one.name} {one.version}" if one is not None else f"`{library.path}`"


def is_of_the_driver(name: str) -> bool:
    """It comes with a GPU's driver, is optional, or is one of CUDA's, which have rules of their own."""
    return _DRIVER.match(name) is not None or _CUDA.match(name) is not None


def is_optional(library: Library) -> bool:
    """It is a plugin, loaded only where somebody asks for what it brings."""
    return _OPTIONAL.search(library.path) is not None


def closure(environment: Environment, start: Library) -> dict[str, str]:
    """The paths of all that would be loaded with ``start``, each with the path of what needs it."""
    known = {one.path: one for one in environment.libraries or ()}
    found: dict[str, str] = {}
    open_ = [start]
    while open_:
        one = open_.pop(0)
        for need in one.needed or ():
            if need.path is not None and need.path not in found and need.path != start.path:
                found[need.path] = one.path
                if need.path in known:
                    open_.append(known[need.path])
    return found


@dataclass(frozen=True)
class Unmet:
    """Versions of symbols that libraries need of the file at ``path``, and that it does not have."""

    library: str
    path: str
    by: str | None
    kind: Literal["libstdcxx", "glibc", "other"]
    versions: tuple[str, ...]
    needing: tuple[Library, ...]

    @property
    def highest(self) -> str:
        """The newest of these versions."""
        return max(self.versions, key=lambda one: compatibility.version(one.rpartition("_")[2]) or ())

    @property
    def of_runtime(self) -> bool:
        """It is the C or C++ runtime."""
        return self.kind != "other"


def unmet_versions(environment: Environment) -> Iterator[Unmet]:
    """What would make the loader say *version not found*, by the file that lacks it."""
    known = {one.path: one for one in environment.libraries or ()}
    rows: dict[tuple[str, str, str], tuple[str | None, set[str], list[Library]]] = {}
    for one in own(environment):
        paths = {need.name: need for need in one.needed or ()}
        for wanted in one.needs or ():
            need = paths.get(wanted.library)
            target = known.get(need.path) if need is not None and need.path is not None else None
            # A file without any versions is accepted, with a warning at the most.
            if need is None or target is None or not target.defines:
                continue
            missing = set(wanted.versions) - set(target.defines)
            for version in missing:
                key = (wanted.library, target.path, _kind(wanted.library, version))
                row = rows.setdefault(key, (need.by, set(), []))
                row[1].add(version)
                if one not in row[2]:
                    row[2].append(one)
    for (library, path, kind), (by, versions, needing) in sorted(rows.items()):
        yield Unmet(library, path, by, _KINDS[kind], tuple(sorted(versions)), tuple(needing))


_KINDS: dict[str, Literal["libstdcxx", "glibc", "other"]] = {
    "libstdcxx": "libstdcxx",
    "glibc": "glibc",
    "other": "other",
}


def _kind(library: str, version: str) -> str:
    if version.startswith(("GLIBCXX_", "CXXABI_")) or (library.startswith("libgcc_s") and version.startswith("GCC_")):
        return "libstdcxx"
    return "glibc" if version.startswith("GLIBC_") else "other"


def versions_seen(unmet: Unmet) -> Found:
    """What is needed, by whom, and the file that lacks it."""
    return (
        *(
            Evidence(claim=f"what it needs of {unmet.library}", seen=unmet.highest, where=one.path)
            for one in unmet.needing[:3]
        ),
        Evidence(
            claim="the file that would be loaded", seen=unmet.path, where=f"found by {unmet.by}" if unmet.by else None
        ),
    )


def without_folder(environment: Environment, folder: str) -> Fix:
    """LD_LIBRARY_PATH without one of its folders."""
    value = (environment.variables or {}).get("LD_LIBRARY_PATH", "")
    left = [one for one in value.split(":") if one and os.path.normpath(one) != os.path.normpath(folder)]
    command = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(left))}" if left else "unset LD_LIBRARY_PATH"
    return Fix(text="Remove that folder from LD_LIBRARY_PATH.", command=command)


def folders_of(environment: Environment) -> frozenset[str]:
    """The folders of LD_LIBRARY_PATH."""
    value = (environment.variables or {}).get("LD_LIBRARY_PATH", "")
    return frozenset(os.path.normpath(one) for one in value.split(":") if one)
