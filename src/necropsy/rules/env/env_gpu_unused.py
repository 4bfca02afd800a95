"""A GPU is there, and the framework was built for processors only.

What happened
-------------
The machine has an NVIDIA GPU with a driver that works, and the installed build of the framework cannot use it: ``tensorflow-cpu``, a PyTorch of the
``cpu`` index, ``onnxruntime`` or a ``jax`` without its plugin for CUDA. Programs run, only slowly.

How to be sure
--------------
``tf.config.list_physical_devices('GPU')`` is empty, ``torch.version.cuda`` is None, ``onnxruntime.get_available_providers()`` has no CUDA.

How to fix it now
-----------------
Nothing needs to be fixed if the processor is meant to do the work. Else install the build for CUDA: ``pip install 'tensorflow[and-cuda]'``, ``pip install
'jax[cuda12]'``, ``pip install onnxruntime-gpu`` in place of ``onnxruntime``.

How to prevent it
-----------------
Check for the GPU at the program's start, and end there if it must have one.

What it is often mistaken for
-----------------------------
A driver that does not work: no driver helps a build without CUDA.

Sources
-------
- https://www.tensorflow.org/install/pip
- https://pytorch.org/get-started/locally/
- https://docs.jax.dev/en/latest/installation.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import CudaBuild, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    driver = cuda.working(environment)
    if driver is None:
        return
    for build in environment.cuda or ():
        if not build.for_cpu:
            continue
        yield Finding(
            evidence=(
                *cuda.cards(environment),
                Evidence(claim="the driver", seen=driver.version or driver.kernel or "there", where=driver.library),
                Evidence(claim=f"{cuda.spelled(build)} was built", seen="without CUDA", where=build.told_by),
            ),
            summary=f"There is an NVIDIA GPU, and {cuda.spelled(build)} cannot use it: it was built without CUDA.",
            confidence="certain",
            about=frozenset({f"cuda of {build.distribution}"}),
            fixes=_fixes(environment, build),
        )


def _fixes(environment: Environment, build: CudaBuild) -> tuple[Fix, ...]:
    one = environment.distribution(build.distribution)
    if one is None:
        return ()
    text = "If the GPU is to be used, install the build for CUDA."
    if one.installer == "conda":  # its builds for CUDA have the same name and version
        wanted = {"jax": "jaxlib"}.get(one.name, one.name)
        return (packages.install(environment, f"{wanted}={one.version}=*cuda*", text, like=one),)
    remove = packages.uninstall(environment, build.distribution)
    if build.distribution == "torch":
        # Both builds have one version, so that pip would keep the one that is there; NVIDIA's libraries are required too.
        fix = cuda.index(packages.install(environment, "torch", text, like=one), _index(environment))
        return (Fix(text=text, command=f"{remove} && {fix.command}"),)
    names = {"jax": f"jax[cuda12]=={build.version}", "onnxruntime": "onnxruntime-gpu"}
    what = names.get(build.distribution, f"tensorflow[and-cuda]=={build.version}")
    fix = packages.install(environment, what, text, like=one)
    if build.distribution in {"onnxruntime", "tensorflow-cpu"}:
        return (Fix(text=text, command=f"{remove} && {fix.command}"),)
    return (fix,)


def _index(environment: Environment) -> str:
    """PyTorch's package index for a CUDA that the driver supports."""
    highest = compatibility.version((environment.driver and environment.driver.supports) or "")
    known = compatibility.torch_for_cuda(highest) if highest is not None else None
    return known.command.rpartition(" ")[2] if known is not None and known.command else f"{compatibility.INDEX}/cu128"


RULE = Rule(
    _match,
    severity="note",
    needs=("driver", "cuda"),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="builds without CUDA",
    hit="""
        distribution tensorflow-cpu 2.20.0 checked
        gpu "NVIDIA L4" 8.9
        driver kernel 570.124.06 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 570.124.06 answer 0
        build tensorflow-cpu cpu
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        gpu "NVIDIA L4" 8.9
        driver kernel 570.124.06 node /dev/nvidia0 library /usr/lib/libcuda.so.1 version 570.124.06 answer 0
        build tensorflow 12.5.1 sm_60 sm_70 sm_80 sm_89 compute_90
    """,
)
