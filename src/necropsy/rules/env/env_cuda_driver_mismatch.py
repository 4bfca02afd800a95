"""The kernel module and the library of NVIDIA's driver are of different versions.

What happened
-------------
NVIDIA's driver has two parts that must be of one version: a kernel module, and the library ``libcuda.so.1``. An update has replaced the library while the
old module is still loaded; or the loader takes another copy of the library, from LD_LIBRARY_PATH or from a container image. No program can use the GPU.

How to be sure
--------------
``cat /proc/driver/nvidia/version`` shows the module, ``ls -l`` the file that ``libcuda.so.1`` is a link to. ``nvidia-smi`` says ``Driver/library version
mismatch``; CUDA returns 803, ``system has unsupported display driver / cuda driver combination``.

How to fix it now
-----------------
Restart the machine (``systemctl reboot``), which loads the new module. If another copy is in the way, take its folder out of LD_LIBRARY_PATH. In a
container, remove the image's own driver packages: the host's library is mounted at the start.

How to prevent it
-----------------
Keep the driver out of automatic updates (``apt-mark hold``), and out of images.

What it is often mistaken for
-----------------------------
A broken GPU. A newer library from a ``cuda-compat`` package is no mistake where the driver accepts it: NVIDIA supports that on GPUs for data centres.

Sources
-------
- https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
- https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
"""

from __future__ import annotations

import os

from necropsy.model import CudaDriver, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule
from necropsy.rules import cuda, libraries

_MISMATCH = {803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}
_NO_DEVICE = 100


def _match(environment: Environment) -> Finding | None:
    driver = cuda.usable(environment)
    # What the driver accepts itself, such as a library of forward compatibility, is no mismatch.
    if driver is None or driver.answer in {0, _NO_DEVICE}:
        return None
    kernel, library = driver.kernel, driver.version
    differ = kernel is not None and library is not None and not cuda.same_version(kernel, library)
    told = _MISMATCH.get(driver.answer) if driver.answer is not None else None
    if told is None and (not differ or "compat" in (driver.library or "")):
        return None
    says = f"CUDA error {driver.answer} ({told or 'it does not start'})" if driver.answer is not None else None
    return Finding(
        evidence=(
            Evidence(claim="the kernel module", seen=kernel or "of an unknown version", where=driver.told_by),
            Evidence(claim="the library", seen=library or "of an unknown version", where=driver.library),
            *((Evidence(claim="what the library answers", seen=says, where="cuInit"),) if says is not None else ()),
        ),
        summary=f"NVIDIA's kernel module is {kernel or 'of another version'}, and the library that programs load is {library or 'not of that version'}: no program can use the GPU.",
        confidence="certain" if driver.answer is not None else "likely",
        about=frozenset({"driver"}),
        fixes=(_fix(environment, driver),),
    )


def _fix(environment: Environment, driver: CudaDriver) -> Fix:
    if driver.by == "LD_LIBRARY_PATH" and driver.library is not None:
        return libraries.without_folder(environment, os.path.dirname(driver.library))  # noqa: PTH120 - a name, not a file
    if driver.container:
        return Fix(
            text="Remove the driver's packages from the image: the host's library is mounted when the container starts.",
            command="apt-get remove --yes 'libnvidia-compute-*' 'cuda-compat-*'",
        )
    return Fix(text="Restart the machine: the module of the new driver is loaded then.", command="systemctl reboot")


RULE = Rule(
    _match,
    needs=("driver",),
    beats=("env-cuda-driver-too-old",),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="the two parts of NVIDIA's driver",
    hit="""
        gpu "NVIDIA L4"
        driver kernel 535.104.05 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 550.54.14 answer 803
    """,
    miss="""
        gpu "NVIDIA H100"
        driver kernel 535.104.05 node /dev/nvidia0 library /usr/local/cuda/compat/libcuda.so.1 version 550.54.14 answer 0
    """,
)
