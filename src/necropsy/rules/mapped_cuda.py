"""CUDA libraries of a dead process, as the environment rules expect them: what was mapped, and for which framework.

Libraries are loaded on first use, so only those that the process itself failed to load count as missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from necropsy.frame_filter import file_name
from necropsy.lazy_re import regex
from necropsy.model import Crash, CudaBuild, CudaLibrary, Cudnn, CudnnPart, Message, Module
from necropsy.predicates import messages
from necropsy.rules import compatibility
from necropsy.rules.log_rules import is_of_other_version

_FRAMEWORKS = (*compatibility.TENSORFLOW, "torch")
_OF_CUDA = regex(r"lib(?:cudart|cublas(?:Lt)?|cufft|curand|cusolver|cusparse|cudnn(?:_\w+)?|nccl)\.so\.\d+(?:\.\d+)*")
_CUDNN = regex(r"libcudnn\.so\.(?P<major>\d+)(?:\.\d+)*")
_PART = regex(r"libcudnn_\w+\.so\.(?P<major>\d+)(?:\.\d+)*")
_INNER = regex(r"(?P<library>[^\s:'\"]+): (?:cannot open|no such)")
_IN_NAME = regex(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")


def builds_of(crash: Crash) -> tuple[CudaBuild, ...] | None:
    """The frameworks that were loaded, with the libraries of CUDA that were; None where none of the latter was."""
    modules = crash.modules or ()
    used = [one for one in modules if _OF_CUDA.fullmatch(file_name(one.path))]
    missing = _missing(crash, {file_name(one.path) for one in used})
    if not used and not missing:
        return None
    found = {one.package: one for one in modules if one.package is not None and one.package in _FRAMEWORKS}
    folders = _library_path(crash)
    return tuple(
        CudaBuild(
            distribution=name,
            version=one.version or "",
            cuda=_cuda(name, one.version or ""),
            told_by="the table of builds",
            libraries=(
                *(CudaLibrary(name=file_name(each.path), path=each.path) for each in used),
                *(CudaLibrary(name=each, asked_by=one.path) for each in missing if not _PART.fullmatch(each)),
            ),
            cudnn=_cudnn(used, [each for each in missing if _PART.fullmatch(each)], folders),
        )
        for name, one in sorted(found.items())
        # Wheels for processors alone say so in their version.
        if not (one.version or "").endswith("+cpu")
    )


def _missing(crash: Crash, mapped: set[str]) -> tuple[str, ...]:
    """Taken from the process's own messages."""
    said = messages(crash, "cudnn-part-missing", "cuda-library", "missing-library")
    names = (file_name(_named(one)) for one in said if not is_of_other_version(one))
    return tuple(dict.fromkeys(name for name in names if _OF_CUDA.fullmatch(name) and name not in mapped))


def _named(message: Message) -> str:
    """The missing library; an existing one may have required it."""
    inner = _INNER.match(message.fields.get("error", ""))
    return inner["library"] if inner is not None else message.fields.get("library", "")


def _cuda(name: str, version: str) -> str | None:
    local = re.search(r"\+cu(\d+)(\d)$", version)
    if local is not None:
        return f"{local[1]}.{local[2]}"
    return compatibility.cuda_of_torch(version) if name == "torch" else compatibility.cuda_of_tensorflow(version)


def _cudnn(used: Sequence[Module], missing: Sequence[str], folders: frozenset[str]) -> Cudnn | None:
    """None if there was none, or more than one."""
    whole = [one for one in used if _CUDNN.fullmatch(file_name(one.path))]
    if len(whole) != 1:
        return None
    (one,) = whole
    parts = (each for each in used if _PART.fullmatch(file_name(each.path)))
    return Cudnn(
        path=one.path,
        by="LD_LIBRARY_PATH" if os.path.dirname(one.path) in folders else None,  # noqa: PTH120 - a name, not a file
        version=_version(one),
        told_by=one.path,
        owner=one.package if (one.package or "").startswith("nvidia-cudnn") else None,
        parts=(
            *(CudnnPart(name=file_name(each.path), path=each.path, version=_version(each)) for each in parts),
            *(CudnnPart(name=each) for each in missing),
        ),
    )


def _version(one: Module) -> str | None:
    """From the file's name, or NVIDIA's package that contains it."""
    match = _IN_NAME.search(one.path)
    if match is not None:
        return match[1]
    version = one.version if (one.package or "").startswith("nvidia-cudnn") or one.package is None else None
    return ".".join(version.split(".")[:3]) if version is not None and "." in version else None


def _library_path(crash: Crash) -> frozenset[str]:
    known = (crash.environment.variables if crash.environment is not None else None) or {}
    return frozenset(os.path.normpath(one) for one in known.get("LD_LIBRARY_PATH", "").split(":") if one)
