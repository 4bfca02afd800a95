"""One package would load CUDA libraries of two major versions.

What happened
-------------
Libraries that are loaded together come from two major versions of CUDA: a cuDNN or NCCL for CUDA 12 was installed beside a framework for CUDA 13, or one
file needs ``libcudart.so.11.0`` and, through another library, ``libcudart.so.12``. The two share names of functions and the GPU, but no data.

How to be sure
--------------
``ldd FILE | grep libcu`` shows two version numbers, or ``pip list | grep nvidia`` shows names that end in ``-cu12`` and others for CUDA 13.

How to fix it now
-----------------
Remove the library for the other CUDA, and install the one for the CUDA that the framework was built with: ``pip uninstall nvidia-cudnn-cu12``, then
``pip install --force-reinstall --no-deps nvidia-cudnn-cu13``.

How to prevent it
-----------------
Let the framework's own requirements choose NVIDIA's packages; do not name them yourself.

What it is often mistaken for
-----------------------------
Two frameworks in one environment, each with a CUDA of its own: their files have different names, and that works.

Sources
-------
- https://docs.nvidia.com/deploy/cuda-compatibility/
- https://docs.nvidia.com/deeplearning/cudnn/installation/latest/linux.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import CudaBuild, Environment, Evidence, Fix, Library
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import cuda, libraries, packages

_SAYS_MAJOR = re.compile(r"lib(?:cudart|cublas|cublasLt)\.so\.(\d+)")


def _match(environment: Environment) -> Finding | None:
    return several((*_two_in_one_process(environment), *_cudnn_for_another_cuda(environment)))


def _two_in_one_process(environment: Environment) -> Iterator[Finding]:
    """A library requires two of them; one file per CUDA in a package is only a choice."""
    if environment.mapped:
        yield from _mapped_together(environment)
    users = {one.distribution for one in cuda.using(environment)}
    known = {one.path: one for one in environment.libraries or ()}
    told: set[str] = set()
    for one in environment.libraries or ():
        if one.distribution not in users or one.distribution in told:
            continue
        every = [one, *(known[path] for path in libraries.closure(environment, one) if path in known)]
        found: dict[str, tuple[str, Library]] = {}
        for each in every:
            for need in each.needed or ():
                if (match := _SAYS_MAJOR.match(need.name)) is not None:
                    found.setdefault(match[1], (need.name, each))
        if len(found) > 1:
            told.add(one.distribution)
            yield _of_closure(environment, one, found)


def _mapped_together(environment: Environment) -> Iterator[Finding]:
    """A dead process had loaded libraries of two CUDAs."""
    found: dict[str, Library] = {}
    for one in environment.libraries or ():
        if (match := _SAYS_MAJOR.match(one.soname or "")) is not None:
            found.setdefault(match[1], one)
    if len(found) > 1:
        rows = [found[major] for major in sorted(found, key=int)]
        yield Finding(
            evidence=tuple(Evidence(claim="a library that was loaded", seen=one.path) for one in rows),
            summary=f"Libraries of CUDA {' and CUDA '.join(sorted(found, key=int))} were in this process: {', '.join(f'`{one.soname}`' for one in rows)}.",
            confidence="certain",
            severity="warning",
            about=frozenset(f"file {one.path}" for one in rows),
            fixes=(
                Fix(
                    text="Take the packages that use CUDA from one source, built for one major version of CUDA, and clear LD_LIBRARY_PATH.",
                    command="pip list | grep -i -e cuda -e nvidia -e torch -e tensorflow; echo $LD_LIBRARY_PATH",
                ),
            ),
        )


def _of_closure(environment: Environment, library: Library, found: dict[str, tuple[str, Library]]) -> Finding:
    rows = [found[major] for major in sorted(found, key=int)]
    one = environment.distribution(library.distribution or "")
    fix = packages.again(environment, one, "Install it again with what it requires.", alone=False) if one else None
    selected = next(
        (
            need.path
            for _, each in rows
            for need in each.needed or ()
            if need.by == "LD_LIBRARY_PATH" and need.path is not None
        ),
        None,
    )
    if selected is not None:
        fix = libraries.without_folder(environment, selected.rpartition("/")[0])
    return Finding(
        evidence=tuple(Evidence(claim="what needs it", seen=name, where=each.path) for name, each in rows),
        summary=f"{libraries.owner(environment, library)} would load CUDA {' and CUDA '.join(sorted(found, key=int))} into one process: {', '.join(f'`{name}`' for name, _ in rows)}.",
        confidence="certain",
        severity="warning",
        about=frozenset(
            {
                f"cuda of {library.distribution}",
                *(f"file {need.path}" for _, each in rows for need in each.needed or () if need.path is not None),
            }
        ),
        fixes=(fix,) if fix is not None else (),
    )


def _cudnn_for_another_cuda(environment: Environment) -> Iterator[Finding]:
    """NVIDIA's wheels name their CUDA; two versions' files have the same names."""
    for build in cuda.using(environment):
        found = build.cudnn
        match = re.search(r"-cu(\d+)$", found.owner or "") if found is not None else None
        if found is None or match is None or build.cuda is None:
            continue
        major = build.cuda.partition(".")[0]
        if match[1] == major:
            continue
        yield Finding(
            evidence=(
                Evidence(
                    claim=f"the cuDNN that it {cuda.loads(environment)}",
                    seen=f"{found.path}, of {found.owner}",
                    where=found.by,
                ),
                *cuda.seen(build),
            ),
            summary=f"{cuda.spelled(build)} was built with CUDA {build.cuda}, and {cuda.loads(environment)} a cuDNN for CUDA {match[1]} ({found.owner}).",
            confidence="certain",
            severity="warning",
            about=frozenset({f"cudnn of {build.distribution}", f"file {found.path}", found.owner or ""}),
            fixes=(_other_cudnn(environment, build, found.owner or "", major),),
        )


def _other_cudnn(environment: Environment, build: CudaBuild, owner: str, major: str) -> Fix:
    like = environment.distribution(build.distribution)
    wanted = cuda.cudnn_wanted(environment, build)
    name = f"nvidia-cudnn-cu{major}"
    if wanted is not None:
        number = wanted[0]
        name += f">={number[0]}.{number[1] if len(number) > 1 else 0},<{number[0] + 1}"
    install = packages.install(
        environment, name, f"Install the cuDNN for CUDA {major} in its place.", like=like, force=True
    )
    return Fix(text=install.text, command=f"{packages.uninstall(environment, owner)} && {install.command}")


RULE = Rule(
    _match,
    severity="warning",
    needs=("cuda", "libraries"),
    beats=("env-duplicate-distribution", "env-library-duplicate", "env-library-shadowed"),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="versions of CUDA's libraries",
    hit="""
        distribution torch 2.12.0 checked
        distribution nvidia-cudnn-cu12 9.10.2.21
        build torch 13.0
        loads libcudnn.so.9 /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 by RUNPATH
        cudnn /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 9.10.2 by RUNPATH of nvidia-cudnn-cu12
    """,
    miss="""
        distribution torch 2.12.0 checked
        distribution nvidia-cudnn-cu13 9.20.0.48
        build torch 13.0
        loads libcudnn.so.9 /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 by RUNPATH
        cudnn /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 9.20.0 by RUNPATH of nvidia-cudnn-cu13
    """,
)
