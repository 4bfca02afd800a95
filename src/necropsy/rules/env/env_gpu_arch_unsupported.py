"""A package has no code for this GPU.

What happened
-------------
A package for CUDA brings GPU code for some generations of GPUs (``sm_80``), and perhaps code that the driver can translate for newer ones (``compute_90``).
For the GPU of this machine it has neither: it is too new for the build, or so old that newer builds have dropped it.

How to be sure
--------------
``nvidia-smi --query-gpu=name,compute_cap --format=csv`` shows the GPU's compute capability, ``torch.cuda.get_arch_list()`` and
``tf.sysconfig.get_build_info()`` what the build has code for. At run time: ``no kernel image is available for execution on the device``.

How to fix it now
-----------------
Install a build with code for this GPU: the newest for a new GPU (``pip install --upgrade torch``), one for CUDA 12.6 or older for Maxwell, Pascal and Volta
(``--index-url https://download.pytorch.org/whl/cu126``).

How to prevent it
-----------------
Compare the list with the GPU before choosing the version.

What it is often mistaken for
-----------------------------
An old driver. A first start that takes minutes is another thing: there the driver translates the code.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation
- https://developer.nvidia.com/cuda-gpus
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import CudaBuild, Environment, Evidence, Fix, Gpu
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    known = [one for one in environment.gpus or () if one.capability is not None]
    for build in cuda.using(environment):
        without = [one for one in known if not _has_code(build, one)]
        if without:
            yield _finding(environment, build, without, every=len(without) == len(known))


def _has_code(build: CudaBuild, gpu: Gpu) -> bool:
    card = compatibility.capability(gpu.capability or "")
    if card is None:
        return True
    if build.architectures is not None:
        return any(_serves(one, card) for one in build.architectures)
    # Without a list, only what the compiler of that CUDA does not know is sure: cards that it has dropped.
    oldest = compatibility.oldest_card(build.cuda) if build.cuda is not None else None
    return oldest is None or card >= (compatibility.capability(oldest) or ())


def _serves(architecture: str, card: compatibility.Version) -> bool:
    """``sm_80`` runs on 8.0 to 8.9, ``sm_90a`` on 9.0 alone, ``compute_90`` can be translated for all from 9.0 on."""
    match = re.fullmatch(r"(sm|compute)_(\d{1,2})(\d)([af]?)", architecture)
    if match is None:
        return True
    built = int(match[2]), int(match[3])
    if match[4] == "a":
        return built == card
    if match[1] == "compute" and not match[4]:
        return built <= card
    return built[0] == card[0] and built <= card


def _finding(environment: Environment, build: CudaBuild, gpus: list[Gpu], *, every: bool) -> Finding:
    first = gpus[0]
    has = f"for {', '.join(build.architectures)}" if build.architectures else f"of CUDA {build.cuda}"
    return Finding(
        evidence=(
            *(Evidence(claim="a GPU", seen=cuda.name_of(one), where="libcuda.so.1") for one in gpus),
            Evidence(claim=f"the code that {cuda.spelled(build)} has", seen=has, where=build.told_by),
        ),
        summary=f"{cuda.spelled(build)} has no code for this GPU, {cuda.name_of(first)}: it was built {has}.",
        confidence="certain",
        severity="error" if every else "warning",
        about=frozenset({f"architecture of {build.distribution}"}),
        fixes=_fixes(environment, build, first),
    )


def _fixes(environment: Environment, build: CudaBuild, gpu: Gpu) -> tuple[Fix, ...]:
    card = compatibility.capability(gpu.capability or "")
    known = compatibility.cuda_for_card(card) if card is not None else None
    one = environment.distribution(build.distribution)
    if known is None or one is None:
        return ()
    first, dropped = known
    if build.distribution == "torch":
        tag = "cu126" if dropped == "13.0" else "cu118" if dropped == "12.0" else "cu128"
        fix = packages.install(
            environment, "torch", "Install the PyTorch that has code for this GPU.", like=one, force=True
        )
        whole = Fix(text=fix.text, command=(fix.command or "").replace(" --no-deps", ""))
        return (cuda.index(whole, f"{compatibility.INDEX}/{tag}"),)
    if build.distribution == "tensorflow" and dropped is None:
        text = f"Install a TensorFlow that was built with CUDA {first} or later."
        return (packages.upgrade(environment, ["tensorflow[and-cuda]"], text, like=one),)
    text = f"Install a release that was built with CUDA {first} or later{f', and before {dropped}' if dropped else ''}."
    return (Fix(text=text),)


RULE = Rule(
    _match,
    needs=("driver", "gpus", "cuda"),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="the GPUs that packages have code for",
    hit="""
        distribution torch 2.6.0 checked
        gpu "NVIDIA GeForce RTX 5090" 12.0
        driver kernel 570.124.06 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 570.124.06 answer 0 supports 12.8
        build torch 12.4 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90
    """,
    miss="""
        distribution torch 2.6.0 checked
        gpu "NVIDIA L4" 8.9
        driver kernel 570.124.06 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 570.124.06 answer 0 supports 12.8
        build torch 12.4 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90
    """,
)
