"""NVIDIA's driver is older than a package's CUDA needs.

What happened
-------------
The package was built with a CUDA that the installed driver does not support. It cannot use the GPU: PyTorch raises an exception, TensorFlow goes on with
the processor alone.

How to be sure
--------------
CUDA 11 needs the driver 450.80.02 or later, CUDA 12 needs 525.60.13, CUDA 13 needs 580.65.06. ``cat /proc/driver/nvidia/version`` and ``nvidia-smi`` show
the driver. The CUDA version that ``nvidia-smi`` prints is the newest that the driver supports, not one that is installed.

How to fix it now
-----------------
Update the driver: a newer one runs older programs too. Or install a build for an older CUDA, such as PyTorch from
``https://download.pytorch.org/whl/cu126``.

How to prevent it
-----------------
Look at the oldest driver of all the machines before choosing the CUDA version.

What it is often mistaken for
-----------------------------
A missing CUDA toolkit: the wheels bring it.

Sources
-------
- https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import CudaBuild, CudaDriver, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    driver = cuda.usable(environment)
    have = (driver.version or driver.kernel) if driver is not None else None
    if driver is None or have is None:
        return
    for build in cuda.using(environment):
        needed = compatibility.driver_for(build.cuda) if build.cuda is not None else None
        if needed is None or build.cuda is None or not _is_too_old(driver, have, build.cuda, needed[0]):
            continue
        told = driver.library if driver.version is not None else driver.told_by
        says = f" and supports CUDA up to {driver.supports}" if driver.supports is not None else ""
        yield Finding(
            evidence=(
                Evidence(claim="the driver", seen=f"{have}{says}", where=told),
                Evidence(claim=f"CUDA {build.cuda} needs", seen=f"{needed[0]} or later", where="the table of builds"),
                *cuda.seen(build),
            ),
            summary=f"{cuda.spelled(build)} was built with CUDA {build.cuda}, which needs NVIDIA's driver {needed[0]} or later, and {have} is installed.",
            confidence="certain",
            about=frozenset({"driver", f"cuda of {build.distribution}"}),
            fixes=(*_older_build(environment, build, driver, have), _update(needed[0])),
        )


def _is_too_old(driver: CudaDriver, have: str, built: str, needed: str) -> bool:
    """By the driver's own answer, or else by its version."""
    supported = compatibility.version(driver.supports) if driver.supports is not None else None
    wanted = compatibility.version(built) or ()
    if supported is not None:
        # From CUDA 11 on, any driver for a major version runs programs of all its minor ones.
        return supported[:1] < wanted[:1] if wanted[:1] >= (11,) else supported[:2] < wanted[:2]
    return cuda.is_older(have, needed)


def _update(needed: str) -> Fix:
    return Fix(
        text=f"Or update NVIDIA's driver to {needed} or later, and restart (Ubuntu).", command="ubuntu-drivers install"
    )


def _older_build(environment: Environment, build: CudaBuild, driver: CudaDriver, have: str) -> tuple[Fix, ...]:
    highest = (
        compatibility.version(driver.supports) if driver.supports is not None else compatibility.cuda_of_driver(have)
    )
    if highest is None:
        return ()
    if build.distribution == "torch":
        known = compatibility.torch_for_cuda(highest)
        one = environment.distribution("torch")
        if known is None or known.command is None or one is None:
            return ()
        plain = packages.install(environment, "torch", "Install a PyTorch that this driver runs.", like=one, force=True)
        # Everything from that index: the libraries of another CUDA are among what it requires.
        command = f"{(plain.command or '').replace(' --no-deps', '')} {known.command.partition('torch ')[2]}"
        return (Fix(text=plain.text, command=command),)
    if build.distribution in compatibility.TENSORFLOW:
        fix = compatibility.tensorflow_for_cuda(highest)
        if fix is not None:
            text = f"Install a TensorFlow that this driver runs: {fix.text.removeprefix('Or install ')}"
            return (packages.for_interpreter(environment, Fix(text=text, command=fix.command)),)
    return ()


RULE = Rule(
    _match,
    needs=("driver", "cuda"),
    beats=("env-cuda-library-missing",),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="the version of NVIDIA's driver",
    hit="""
        distribution torch 2.12.0 checked
        gpu "NVIDIA L4"
        driver kernel 535.104.05 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 535.104.05
        build torch 13.0
    """,
    miss="""
        distribution torch 2.9.0 checked
        gpu "NVIDIA L4"
        driver kernel 535.104.05 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 535.104.05
        build torch 12.8
    """,
)
