"""Which installed packages use CUDA, the versions they were built for, and the CUDA libraries they would load.

TensorFlow and PyTorch record their build in a small file; other packages show it by the libraries they need. TensorFlow
opens CUDA libraries by name when it looks for a GPU, through its own libraries' RUNPATH.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from necropsy.data import table
from necropsy.doctor import cudnn
from necropsy.doctor.distributions import Installed, text_of
from necropsy.doctor.loader import Loader, expand
from necropsy.model import CudaBuild, CudaLibrary, Library

TENSORFLOW = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})
_OPENED_BY_TENSORFLOW = ("cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse")
_SAYS_MAJOR = re.compile(r"lib(?:cudart|cublas|cublasLt)\.so\.(\d+)")
_CUDNN = re.compile(r"libcudnn\.so\.\d+")
_ARCHITECTURES = re.compile(rb"(?:(?:sm|compute)_\d+[af]? ){1,40}(?:sm|compute)_\d+[af]?\0|sm_\d+[af]?\0")
_STEP = 4 << 20
"""Bytes of a library to search at a time."""
_LONGEST = 1 << 10


def is_of_cuda(name: str) -> bool:
    """It is a library of CUDA's toolkit, cuDNN or NCCL; not the driver's, nor TensorRT's, which is optional."""
    match = re.match(r"lib([A-Za-z]+)\w*\.so\.", name)
    return match is not None and match[1] in _names()


def _names() -> frozenset[str]:
    return frozenset(row["library"] for row in table("cuda_libraries.toml")["row"]) - {"nvinfer"}


def find(
    checked: Sequence[Installed],
    installed: Mapping[str, Installed],
    libraries: Sequence[Library],
    loader: Loader,
) -> tuple[CudaBuild, ...]:
    """One for each checked distribution that uses CUDA, and for each framework that was built without it."""
    found = []
    for one in checked:
        # NVIDIA's own distributions are what others load.
        if one.name.startswith("nvidia-"):
            continue
        build = _build(one, [library for library in libraries if library.distribution == one.name], loader, installed)
        if build is not None:
            found.append(build)
    return tuple(found)


def _build(
    one: Installed, own: Sequence[Library], loader: Loader, installed: Mapping[str, Installed]
) -> CudaBuild | None:
    needed = tuple(_needed(own))
    cuda, told_by, for_cpu, architectures = None, None, False, None
    if one.name in TENSORFLOW:
        told_by = f"{one.noun.location}/tensorflow/python/platform/build_info.py"
        told = assigned(told_by, "build_info")
        if isinstance(told, dict):
            for_cpu = not told.get("is_cuda_build") and not told.get("is_rocm_build")
            cuda = _text(told.get("cuda_version")) if told.get("is_cuda_build") else None
            architectures = _strings(told.get("cuda_compute_capabilities"))
            if cuda is not None:
                needed += tuple(_opened(own, loader, installed, cuda, _text(told.get("cudnn_version"))))
    elif one.name == "torch":
        told_by = f"{one.noun.location}/torch/version.py"
        told = assigned(told_by, "cuda", "hip")
        if isinstance(told, tuple):
            cuda, for_cpu = _text(told[0]), told[0] is None and told[1] is None
        if cuda is not None:
            architectures = _searched(f"{one.noun.location}/torch/lib/libtorch_python.so")
    elif one.name == "onnxruntime":
        for_cpu = not needed
    elif one.name == "jax":
        for_cpu = not any(re.match(r"jax-(?:cuda|rocm)|jax-metal", name) for name in installed) and not any(
            "cuda" in each.noun.version for name, each in installed.items() if name == "jaxlib"
        )
    if cuda is None:
        majors = {match[1] for each in needed if (match := _SAYS_MAJOR.match(each.name)) is not None}
        # A package with one library for each CUDA takes the one that fits.
        cuda, told_by = (majors.pop(), needed[0].asked_by) if len(majors) == 1 else (None, told_by)
    if not needed and cuda is None and not for_cpu:
        return None
    of_cudnn = next((each for each in needed if _CUDNN.fullmatch(each.name)), None)
    return CudaBuild(
        distribution=one.name,
        version=one.noun.version,
        cuda=cuda,
        told_by=told_by,
        for_cpu=for_cpu,
        architectures=architectures,
        libraries=needed,
        cudnn=cudnn.of(of_cudnn, loader, installed.values()) if of_cudnn is not None else None,
    )


def _needed(own: Iterable[Library]) -> Iterator[CudaLibrary]:
    for library in own:
        for need in library.needed or ():
            if is_of_cuda(need.name):
                yield CudaLibrary(name=need.name, path=need.path, by=need.by, asked_by=library.path)


def _opened(
    own: Sequence[Library], loader: Loader, installed: Mapping[str, Installed], cuda: str, of_cudnn: str | None
) -> Iterator[CudaLibrary]:
    """Libraries TensorFlow opens by name, and where the loader would find them."""
    asking = [one for one in own if re.search(r"/(?:libtensorflow_(?:cc|framework)\.|_pywrap_tensorflow_in)", one.path)]
    folders = tuple(
        dict.fromkeys(
            expand(folder, os.path.dirname(one.path)) for one in asking for folder in (*one.rpath, *one.runpath)
        )
    )
    if not asking:
        return
    names = [name for library in _OPENED_BY_TENSORFLOW if (name := _soname(library, cuda)) is not None]
    names += [f"libcudnn.so.{of_cudnn}"] if of_cudnn is not None and of_cudnn.isdigit() else []
    for name in names:
        place, _ = loader.find(name, "", (), folders)
        yield CudaLibrary(
            name=name,
            path=place.path if place is not None else None,
            by=place.by if place is not None else None,
            asked_by=asking[0].path,
            at_start=False,
            lies_at=next(_copies(name, installed), None) if place is None else None,
        )


def _copies(name: str, installed: Mapping[str, Installed]) -> Iterator[str]:
    """The file's places in NVIDIA's distributions."""
    for location in sorted({one.noun.location for one in installed.values() if one.name.startswith("nvidia-")}):
        top = f"{location}/nvidia"
        for part in sorted(os.listdir(top)) if os.path.isdir(top) else ():
            if os.path.isfile(f"{top}/{part}/lib/{name}"):
                yield f"{top}/{part}/lib/{name}"


def _soname(library: str, cuda: str) -> str | None:
    """Its file name for that CUDA: ``cufft``, ``12.5`` -> ``libcufft.so.11``."""
    match = re.match(r"\d+", cuda)
    major = int(match[0]) if match is not None else 0
    for row in table("cuda_libraries.toml")["row"]:
        numbers = [int(one.partition(".")[0]) for one in re.findall(r"[\d.]+", row["cuda"])]
        if row["library"] == library and numbers and numbers[0] <= major <= numbers[-1] and row["soname"][0]:
            return f"lib{library}.so.{row['soname'][0]}"
    return None


def assigned(path: str, *names: str) -> Any:
    """The literals that a small Python file assigns to these names: one alone, or a tuple for several.

    None if the file is missing or has none of them. ``OrderedDict([...])`` counts as a dictionary.
    """
    text = text_of(path)
    try:
        tree = ast.parse(text) if text is not None else None
    except (SyntaxError, ValueError, RecursionError):
        tree = None
    values: dict[str, Any] = {}
    for statement in tree.body if tree is not None else ():
        targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and target.id in names and value is not None:
                values[target.id] = _literal(value)
    if not values:
        return None
    return values.get(names[0]) if len(names) == 1 else tuple(values.get(name) for name in names)


def _literal(value: ast.expr) -> Any:
    is_dictionary = isinstance(value, ast.Call) and len(value.args) == 1
    try:
        found = ast.literal_eval(value.args[0] if isinstance(value, ast.Call) and is_dictionary else value)
        return dict(found) if is_dictionary else found
    except (ValueError, TypeError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and re.match(r"\d", value) else None


def _strings(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    return tuple(one for one in value if isinstance(one, str))


def _searched(path: str) -> tuple[str, ...] | None:
    """The architectures in PyTorch's Python library, one text such as ``sm_80 sm_90``."""
    try:
        with open(path, "rb") as file:
            kept = b""
            while block := file.read(_STEP):
                match = _ARCHITECTURES.search(kept + block)
                if match is not None:
                    return tuple(match[0].rstrip(b"\0").decode("ascii").split())
                kept = block[-_LONGEST:]
    except OSError:
        return None
    return None
