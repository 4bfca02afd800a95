"""What installed packages need and find: the processor, GPUs and their driver, CUDA, the DLLs of Windows."""

from __future__ import annotations

from necropsy.model.base import Noun


class Gpu(Noun, frozen=True, kw_only=True):
    """One NVIDIA GPU that this machine shows."""

    bus: str | None = None
    """Its address: ``0000:01:00.0``"""
    name: str | None = None
    """``NVIDIA H200``"""
    capability: str | None = None
    """Its compute capability, as the driver's own library says: ``9.0``"""


class CudaDriver(Noun, frozen=True, kw_only=True):
    """NVIDIA's driver: a kernel module, and the library ``libcuda.so.1`` that programs load."""

    kernel: str | None = None
    """The version of the kernel module that is loaded: ``550.54.14``"""
    told_by: str | None = None
    """The file that says so."""
    nodes: tuple[str, ...] = ()
    """The device files of GPUs: ``/dev/nvidia0``"""
    container: bool = False
    """This is a container, which sees only the GPUs that it was given."""
    library: str | None = None
    """The ``libcuda.so.1`` that the loader would take."""
    by: str | None = None
    """What it is found by, as in ``Needed``."""
    version: str | None = None
    """The version of that library, by its file name."""
    answer: int | None = None
    """What its ``cuInit`` returned; 0 is success. None: it was not asked, or did not answer."""
    supports: str | None = None
    """The newest CUDA that it supports, as it says itself: ``12.4``"""


class CudnnPart(Noun, frozen=True, kw_only=True):
    """A library that cuDNN loads by its name."""

    name: str
    path: str | None = None
    """None: it would not be found."""
    version: str | None = None


class Cudnn(Noun, frozen=True, kw_only=True):
    """The cuDNN that a package would load."""

    path: str
    by: str | None = None
    version: str | None = None
    """``9.3.0``"""
    told_by: str | None = None
    """What says so: a file's name, a distribution, a header."""
    owner: str | None = None
    """The distribution that brings it."""
    parts: tuple[CudnnPart, ...] = ()


class CudaLibrary(Noun, frozen=True, kw_only=True):
    """A library of CUDA's that a package would load."""

    name: str
    """``libcudart.so.12``"""
    path: str | None = None
    """None: it would not be found."""
    by: str | None = None
    """What it is found by, as in ``Needed``."""
    asked_by: str = ""
    """The file that loads it."""
    at_start: bool = True
    """That file cannot be loaded without it; otherwise the package looks for it when it looks for a GPU."""
    lies_at: str | None = None
    """A copy that is installed, where the loader does not look."""


class CudaBuild(Noun, frozen=True, kw_only=True):
    """An installed package that uses CUDA, or a framework that was built without it."""

    distribution: str
    version: str
    cuda: str | None = None
    """The CUDA that it was built with: ``12.5.1``, or only ``12``. None: it does not say."""
    told_by: str | None = None
    """The file that says so."""
    for_cpu: bool = False
    """It was built without CUDA."""
    architectures: tuple[str, ...] | None = None
    """What its GPU code was compiled for: ``sm_80``, and ``compute_90`` for code that the driver translates."""
    libraries: tuple[CudaLibrary, ...] = ()
    cudnn: Cudnn | None = None


class Processor(Noun, frozen=True, kw_only=True):
    """The machine's processor."""

    name: str | None = None
    flags: tuple[str, ...] = ()
    """As in /proc/cpuinfo: ``avx2``"""
    told_by: str = "/proc/cpuinfo"


class CpuNeed(Noun, frozen=True, kw_only=True):
    """An instruction of a library that this processor does not have."""

    feature: str
    """``AVX-512F``"""
    flag: str
    """As ``/proc/cpuinfo`` calls it."""
    text: str
    """The first such instruction."""
    where: str
    """The function that contains it, or its address in the file."""
    functions: int = 1
    """How many functions have such instructions."""


class DllNeed(Noun, frozen=True, kw_only=True):
    """A DLL that another one imports, or opens by its name, and the file that Windows would take."""

    name: str
    """In small letters: ``msvcp140.dll``"""
    path: str | None = None
    """None: it would not be found."""
    by: str | None = None
    """Where it is found: ``own folder``, ``Python's folder``, ``conda's folder``, ``System32``, ``Windows' folder``,
    ``PATH``. What an extension module imports is not looked for on PATH since Python 3.8; ``PATH`` then says that it
    lies there.

    ``package``: a package of the same installation brings it, and adds its folder or loads it before.
    """
    otherwise: str | None = None
    """The package's own file of that name, where another one with other contents is taken."""
    delayed: bool = False
    """It is loaded when it is used first."""
    functions: tuple[str, ...] = ()
    """Functions of the C++ runtime that it imports."""
    lacking: tuple[str, ...] = ()
    """Of these, the ones that the file does not have."""


class Dll(Noun, frozen=True, kw_only=True):
    """A compiled file of a checked distribution (``.dll``, ``.pyd``), or one that these load from elsewhere."""

    path: str
    distribution: str | None = None
    """Who brings it; None for a file of the system, of Python or of another program."""
    version: str | None = None
    """The ``FileVersion`` of its version resource: ``14.29.30153.0``"""
    linker: str | None = None
    """The version of the linker: ``14.29`` is Microsoft's of Visual Studio 2019."""
    imports: tuple[DllNeed, ...] = ()
    """What it imports, API sets apart; of a file that no distribution brings, only the C++ runtime and cuDNN."""
    opens: tuple[DllNeed, ...] = ()
    """What it opens by name when it is used."""
