"""A package needs NVIDIA's driver, and there is none.

What happened
-------------
The package was built for CUDA. An NVIDIA GPU is there, but programs cannot reach it: the kernel module is not loaded, the device files are missing,
or ``libcuda.so.1`` is nowhere. Or there is no GPU at all, and the package is one that serves no purpose without one (onnxruntime-gpu).

How to be sure
--------------
``nvidia-smi`` fails or is not there. ``lspci -d 10de:`` lists the cards, ``ls /dev/nvidia*`` the device files, ``ldconfig -p | grep libcuda.so`` the
driver's library, and ``cat /proc/driver/nvidia/version`` the kernel module.

How to fix it now
-----------------
Install NVIDIA's driver and restart. Start a container with ``docker run --gpus all`` (this needs the NVIDIA Container Toolkit on the host). On a machine
without a GPU, install the package for processors: ``onnxruntime`` in place of ``onnxruntime-gpu``.

How to prevent it
-----------------
Pin the driver's package with the kernel's, so that an update brings both. Ask for a GPU in the job's or the pod's specification.

What it is often mistaken for
-----------------------------
A missing CUDA toolkit: the driver is another thing, which pip cannot install. TensorFlow and PyTorch built for CUDA are fine without a GPU.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-installation-guide-linux/
- https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
"""

from __future__ import annotations

from necropsy.model import CudaBuild, CudaDriver, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Found, Occurs, Rule
from necropsy.rules import cuda, packages

_ONLY_FOR_CUDA = "onnxruntime-gpu"


def _match(environment: Environment) -> Finding | None:
    users = cuda.using(environment)
    if not users or cuda.usable(environment) is not None:
        return None
    useless = next((one for one in users if one.distribution == _ONLY_FOR_CUDA), None)
    driver = environment.driver
    if not environment.gpus or driver is None:
        return _without_a_gpu(environment, useless) if useless is not None else None
    # A container that was not given the host's GPU may well be meant to do without.
    meant = driver.kernel is not None and not driver.nodes and useless is None
    what = _what_is_missing(driver)
    return Finding(
        evidence=(*cuda.cards(environment), *_seen(driver), *cuda.seen(users[0])),
        summary=f"There is an NVIDIA GPU, but programs cannot use it: {what}. {cuda.spelled(useless or users[0])} was built for it.",
        confidence="certain",
        severity="note" if meant else "warning",
        about=_about(users),
        fixes=(_driver(driver), *((_for_processors(environment, useless),) if useless is not None else ())),
    )


def _without_a_gpu(environment: Environment, build: CudaBuild) -> Finding:
    gap = environment.gap("driver")
    return Finding(
        evidence=(
            Evidence(claim="no GPU that programs could use", seen=gap.why if gap is not None else "there is none"),
            *cuda.seen(build),
        ),
        summary=f"{cuda.spelled(build)} serves no purpose without an NVIDIA GPU, and there is none: it runs on the processor.",
        confidence="certain",
        about=_about((build,)),
        fixes=(_for_processors(environment, build),),
    )


def _about(users: tuple[CudaBuild, ...]) -> frozenset[str]:
    return frozenset(f"cuda of {one.distribution}" for one in users)


def _what_is_missing(driver: CudaDriver) -> str:
    if driver.kernel is None and not driver.nodes:
        return "the driver's kernel module is not loaded"
    return "it has no device file here" if not driver.nodes else "`libcuda.so.1` cannot be found"


def _seen(driver: CudaDriver) -> Found:
    return (
        Evidence(
            claim="the driver's kernel module",
            seen=driver.kernel or "not loaded",
            where=driver.told_by or "/proc/driver/nvidia/version",
        ),
        Evidence(claim="device files", seen=", ".join(driver.nodes) or "none", where="/dev"),
        Evidence(claim="the driver's library", seen=driver.library or "libcuda.so.1 is nowhere", where=driver.by),
    )


def _driver(driver: CudaDriver) -> Fix:
    if driver.container or (driver.kernel is not None and not driver.nodes):
        return Fix(text="Start the container with its GPU: `docker run --gpus all`, or Docker Compose's `devices`.")
    if driver.nodes:
        return Fix(
            text="Install the user-space part of NVIDIA's driver, in the version of the kernel module.",
            command=f"apt-get install --yes libnvidia-compute-{driver.kernel.partition('.')[0]}"
            if driver.kernel
            else None,
        )
    return Fix(text="Install NVIDIA's driver and restart (Ubuntu).", command="ubuntu-drivers install")


def _for_processors(environment: Environment, build: CudaBuild) -> Fix:
    one = environment.distribution(build.distribution)
    install = packages.install(environment, "onnxruntime", "Install the package for processors in its place.", like=one)
    return Fix(text=install.text, command=f"{packages.uninstall(environment, build.distribution)} && {install.command}")


RULE = Rule(
    _match,
    severity="warning",
    needs=("gpus", "cuda"),
    beats=("env-cuda-library-missing",),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="NVIDIA's driver",
    hit="""
        distribution torch 2.9.0 checked
        gpu "NVIDIA L4"
        driver library /usr/lib/libcuda.so.1
        build torch 12.8
    """,
    miss="""
        distribution torch 2.9.0 checked
        gap driver: no GPU was found
        build torch 12.8
    """,
)
