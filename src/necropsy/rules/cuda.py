"""What the rules on GPUs share: which GPU a program may use, and what a package was built for."""

from __future__ import annotations

import re
import shlex

from necropsy.model import CudaBuild, CudaDriver, Environment, Evidence, Fix, Gpu
from necropsy.rule import Found
from necropsy.rules import compatibility, packages


def usable(environment: Environment) -> CudaDriver | None:
    """The driver, where programs can reach a GPU through it; whether that works is another question."""
    driver = environment.driver
    return driver if driver is not None and driver.nodes and driver.library is not None else None


def working(environment: Environment) -> CudaDriver | None:
    """The driver, where nothing is known against it."""
    driver = usable(environment)
    return driver if driver is not None and driver.answer in {None, 0} else None


def using(environment: Environment) -> tuple[CudaBuild, ...]:
    """The packages that use CUDA."""
    return tuple(one for one in environment.cuda or () if not one.for_cpu)


def spelled(build: CudaBuild) -> str:
    """``torch 2.9.0``"""
    return f"{build.distribution} {build.version}"


def loads(environment: Environment) -> str:
    """``would load``; of a process that died, ``had loaded``."""
    return "had loaded" if environment.mapped else "would load"


def seen(build: CudaBuild) -> Found:
    """The CUDA that it was built with, and what says so."""
    if build.cuda is None:
        return ()
    return (Evidence(claim=f"{spelled(build)} was built with", seen=f"CUDA {build.cuda}", where=build.told_by),)


def cards(environment: Environment) -> Found:
    """The GPUs that are there."""
    return tuple(Evidence(claim="a GPU", seen=name_of(one), where=one.bus) for one in (environment.gpus or ())[:4])


def name_of(gpu: Gpu) -> str:
    """``NVIDIA H200``, with its compute capability where that is known."""
    name = gpu.name or "an NVIDIA GPU"
    return f"{name} (compute capability {gpu.capability})" if gpu.capability else name


def same_version(one: str, other: str) -> bool:
    """The versions agree as far as both of them go: 550.54 and 550.54.14."""
    first, second = compatibility.version(one) or (), compatibility.version(other) or ()
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def is_older(one: str, other: str) -> bool:
    """``one`` is an older version, as far as both of them go."""
    first, second = compatibility.version(one) or (), compatibility.version(other) or ()
    length = min(len(first), len(second))
    return first[:length] < second[:length]


def cudnn_wanted(environment: Environment, build: CudaBuild) -> tuple[compatibility.Version, Evidence] | None:
    """The cuDNN that it was built with, and what says so: what it requires, else the table of builds."""
    one = environment.distribution(build.distribution)
    for requirement in one.requires if one is not None else ():
        match = re.match(r"(?:==|>=|~=)(\d[\d.]*)", requirement.specifier)
        if build.distribution == "torch" and requirement.name.startswith("nvidia-cudnn-") and match is not None:
            version = compatibility.version(match[1])
            return (version, packages.quoted(one, requirement)) if version is not None else None
    if one is None:
        return None
    told = None
    if build.distribution in compatibility.TENSORFLOW:
        told = compatibility.cudnn_of_tensorflow(build.version)
    elif build.distribution == "torch" and environment.mapped:  # what it requires is not known then
        told = compatibility.cudnn_of_torch(build.version)
    version = compatibility.version(told) if told is not None else None
    if version is None:
        return None
    claim = f"{spelled(build)} was built with"
    return version, Evidence(claim=claim, seen=f"cuDNN {told}", where="the table of builds")


def with_cuda(environment: Environment, build: CudaBuild, text: str) -> Fix | None:
    """Install what CUDA's libraries a framework loads, in versions that fit to it."""
    one = environment.distribution(build.distribution)
    if build.distribution == "tensorflow" and not is_older(build.version, "2.14"):
        return packages.install(environment, f"tensorflow[and-cuda]=={build.version}", text, like=one)
    if build.distribution == "onnxruntime-gpu" and not is_older(build.version, "1.21"):
        return packages.install(environment, f"onnxruntime-gpu[cuda,cudnn]=={build.version}", text, like=one)
    return packages.again(environment, one, text, alone=False) if build.distribution == "torch" and one else None


def index(fix: Fix, url: str) -> Fix:
    """The same with packages from another index."""
    return Fix(text=fix.text, command=f"{fix.command} --index-url {shlex.quote(url)}")
