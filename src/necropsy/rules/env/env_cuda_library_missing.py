"""A library of CUDA's that a package loads cannot be found.

What happened
-------------
The package needs a library of CUDA's toolkit, cuDNN or NCCL, and the dynamic loader finds it nowhere. Some packages need it to be imported at all
(PyTorch); others look for it when they look for a GPU, and then go on without one (TensorFlow, ONNX Runtime).

How to be sure
--------------
PyTorch says ``libcudart.so.12: cannot open shared object file``. TensorFlow says ``Cannot dlopen some GPU libraries`` and lists no GPU. ONNX Runtime says
``Failed to create CUDAExecutionProvider``.

How to fix it now
-----------------
Install the libraries with pip: ``pip install 'tensorflow[and-cuda]'``, ``pip install 'onnxruntime-gpu[cuda,cudnn]'``, or the wheel that the finding names.

How to prevent it
-----------------
Install the framework with what it requires: not with ``--no-deps``.

What it is often mistaken for
-----------------------------
A missing driver: ``libcuda.so.1`` is the driver's, all others come with CUDA's toolkit or with pip. A CUDA build of TensorFlow on a machine without a GPU is
fine without them.

Sources
-------
- https://www.tensorflow.org/install/pip
- https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from necropsy.model import CudaBuild, CudaLibrary, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    # A process that died has looked for what it said was missing.
    works = environment.mapped or cuda.working(environment) is not None
    for build in cuda.using(environment):
        missing = [one for one in build.libraries if one.path is None]
        at_start = _of_those_that_count(build, [one for one in missing if one.at_start])
        # What only serves a GPU is no loss without one. PyTorch cannot be imported either way.
        at_start = at_start if works or build.distribution == "torch" else []
        opened = [one for one in missing if not one.at_start] if works else []
        if at_start or opened:
            yield _finding(environment, build, at_start or opened)


def _of_those_that_count(build: CudaBuild, missing: list[CudaLibrary]) -> list[CudaLibrary]:
    """Without alternatives: a package with one file per CUDA does not need those that do not fit."""
    has = {one.asked_by for one in build.libraries} - {one.asked_by for one in missing}
    if not has or build.cuda is not None:
        return missing
    return []


def _finding(environment: Environment, build: CudaBuild, missing: list[CudaLibrary]) -> Finding:
    names = list(dict.fromkeys(one.name for one in missing))
    listed = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    fails = missing[0].at_start and build.distribution == "torch"
    effect = "it cannot be imported" if fails else "it cannot use the GPU"
    return Finding(
        evidence=(
            *(
                Evidence(claim="what needs it" if one.at_start else "what opens it", seen=one.name, where=one.asked_by)
                for one in missing[:5]
            ),
            *(
                Evidence(claim="a copy where the loader does not look", seen=one.lies_at)
                for one in missing[:1]
                if one.lies_at
            ),
            *cuda.seen(build),
        ),
        summary=f"{listed} cannot be found; {cuda.spelled(build)} needs {'it' if len(names) == 1 else 'them'}: {effect}.",
        confidence="certain",
        severity="error" if fails else "warning",
        about=frozenset({f"cuda of {build.distribution}", *(f"library {name}" for name in names)}),
        fixes=_fixes(environment, build, missing),
    )


def _fixes(environment: Environment, build: CudaBuild, missing: list[CudaLibrary]) -> tuple[Fix, ...]:
    folders = list(dict.fromkeys(os.path.dirname(one.lies_at) for one in missing if one.lies_at))  # noqa: PTH120 - names
    if folders and all(one.lies_at for one in missing):
        before = [one for one in (environment.variables or {}).get("LD_LIBRARY_PATH", "").split(":") if one]
        value = shlex.quote(":".join([*folders, *before]))
        text = "They are installed, but this build does not look there: add their folders to LD_LIBRARY_PATH."
        return (Fix(text=text, command=f"export LD_LIBRARY_PATH={value}"),)
    whole = cuda.with_cuda(environment, build, "Install the package with CUDA's libraries.")
    if whole is not None:
        return (whole,)
    wheels = list(dict.fromkeys(wheel for one in missing if (wheel := _wheel(one.name)) is not None))
    one = environment.distribution(build.distribution)
    if wheels:
        return (packages.upgrade(environment, wheels, "Install CUDA's libraries.", like=one),)
    return (Fix(text=f"Install the CUDA toolkit that brings `{missing[0].name}`."),)


def _wheel(name: str) -> str | None:
    row = compatibility.wheel_of(name)
    return row[0] if row is not None else None


RULE = Rule(
    _match,
    needs=("cuda",),
    beats=("env-file-missing",),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="CUDA's libraries",
    hit="""
        distribution torch 2.9.0 checked
        gap driver: no GPU was found
        build torch 12.8
        loads libcudart.so.12 /usr/local/cuda/lib64/libcudart.so.12 by ld.so.cache
        loads libcudnn.so.9
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        gap driver: no GPU was found
        build tensorflow 12.5.1
        loads libcudnn.so.9 opened yes
    """,
)
