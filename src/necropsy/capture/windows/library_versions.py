"""Versions of what is loaded: by what each file carries in itself, and of packages that are installed here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.capture.process.owning_package import package_of
from necropsy.capture.windows.modules import ModuleImages
from necropsy.formats.minidump_records import ModuleRecord
from necropsy.formats.windows_exits import python_version
from necropsy.model import Address, Module

_TELLING = re.compile(
    r"(?:cud\w+|cublas\w*|cufft\w*|curand\w*|cusolver\w*|cusparse\w*|nvrtc[\w-]*|nvinfer\w*|nvcuda|zlibwapi"
    r"|libiomp5md|libomp\w*|vcomp\d+\w*|mkl_\w+|tbb\w*|msvcp\d+\w*|vcruntime\d+\w*|concrt\d+\w*|ucrtbase\w*|protobuf\w*)"
    r"\.dll",
    re.IGNORECASE,
)
"""Libraries of which several versions exist, and not all go together."""
_NUMBERED = re.compile(r"(?P<name>[A-Za-z]+)64_(?P<version>\d{1,3})\.dll", re.IGNORECASE)
"""NVIDIA's: ``cudart64_110.dll`` is of 11.0, ``cudnn64_8.dll`` of 8."""
_PYTHON = re.compile(r"python(?P<major>3)(?P<minor>\d{1,2})(?:_d|t)?\.dll", re.IGNORECASE)


def python_of(modules: Sequence[ModuleRecord]) -> str | None:
    """``3.11.9``, from the version of python311.dll or python.exe; ``3.11`` from a name where that is all there is."""
    for one in modules:
        known = python_version(one.name, one.version) if one.version is not None else None
        if known is not None:
            return known
    matches = (_PYTHON.fullmatch(one.name) for one in modules)
    match = next((one for one in matches if one is not None), None)
    return f"{match['major']}.{match['minor']}" if match is not None else None


def version_of(one: ModuleRecord) -> str | None:
    """The version of one file; of NVIDIA's the number in the name where it carries none."""
    if one.version is not None:
        return one.version
    match = _NUMBERED.fullmatch(one.name)
    if match is None:
        return None
    digits = match["version"]
    return f"{digits[:-1]}.{digits[-1]}" if len(digits) == 3 else digits


def packages(images: ModuleImages) -> dict[str, str]:
    """The packages of this machine that files of the process belong to: those files that are the very same here."""
    # An image is looked for only where something asked for it.
    used = (one.file for one in images.modules if "image" in vars(one) and one.file is not None)
    found = (package_of(path.as_posix()) for path in used)
    return dict(sorted({one for one in found if one is not None}))


def libraries(modules: Sequence[ModuleRecord], found: dict[str, str]) -> dict[str, str]:
    """Name to version of what tells something: ``found`` packages, and the libraries that come in many versions."""
    telling = ((one.name, version_of(one)) for one in modules if _TELLING.fullmatch(one.name))
    return dict(sorted({name.lower(): version for name, version in telling if version is not None}.items())) | found


def module_of(one: ModuleRecord) -> Module:
    """The module in the model's words."""
    return Module(
        path=one.path,
        low=Address(one.base),
        high=Address(one.base + one.size),
        build_id=one.codeview.identity.lower() if one.codeview is not None else None,
        version=version_of(one),
    )
