"""Parts of cuDNN are missing, or of another version than the rest.

What happened
-------------
cuDNN 8 and 9 consist of several libraries: ``libcudnn.so.9`` opens ``libcudnn_ops.so.9``, ``libcudnn_cnn.so.9`` and others by their names. One of them is
missing, or the loader takes it from another installation of another version. cuDNN 8 ends the process when a part is missing.

How to be sure
--------------
``ls`` the folder of ``libcudnn.so.9``. At run time: ``Could not load library libcudnn_cnn_infer.so.8``, ``Invalid handle. Cannot load symbol
cudnnCreate``, or CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH.

How to fix it now
-----------------
Install cuDNN's package again (``pip install --force-reinstall --no-deps nvidia-cudnn-cu12``), or take the folder with the other copy out of
LD_LIBRARY_PATH.

How to prevent it
-----------------
Copy all files of cuDNN or none: do not pick single ones into an image.

What it is often mistaken for
-----------------------------
An old driver, or a GPU without free memory: both show as CUDNN_STATUS_NOT_INITIALIZED or CUDNN_STATUS_INTERNAL_ERROR.

Sources
-------
- https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import CudaBuild, Cudnn, CudnnPart, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, libraries, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for build in cuda.using(environment):
        found = build.cudnn
        if found is None:
            continue
        missing = [one for one in found.parts if one.path is None]
        # Only where both say their version: files without a number in their name are of the same installation.
        other = [
            one
            for one in found.parts
            if one.version and found.version and not cuda.same_version(one.version, found.version)
        ]
        if missing and (environment.mapped or len(missing) < len(found.parts)):
            what = "could not be loaded" if environment.mapped else "{verb} missing"
            yield _finding(environment, build, found, missing, what)
        elif other:
            yield _finding(environment, build, found, other, "{verb} of another version")


def _finding(environment: Environment, build: CudaBuild, found: Cudnn, parts: list[CudnnPart], what: str) -> Finding:
    listed = ", ".join(f"`{one.name}`" for one in parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
    trains_only = all("_train." in one.name for one in parts)
    absent = "not loaded" if environment.mapped else "not there"
    verb = "is" if len(parts) == 1 else "are"
    return Finding(
        evidence=(
            Evidence(
                claim="the cuDNN that was loaded" if environment.mapped else "the cuDNN that would be loaded",
                seen=found.version or "of an unknown version",
                where=found.path,
            ),
            *(
                Evidence(claim="a part of it", seen=f"{one.name}: {one.version or absent}", where=one.path)
                for one in parts[:6]
            ),
        ),
        summary=f"The cuDNN that {cuda.spelled(build)} {cuda.loads(environment)} is not whole: {listed} {what.format(verb=verb)}.",
        confidence="certain",
        severity="warning" if trains_only else "error",
        about=frozenset(
            {
                f"cudnn of {build.distribution}",
                *(f"library {one.name}" for one in parts),
                *(f"file {one.path}" for one in parts if one.path is not None),
                *((found.owner,) if found.owner else ()),
            }
        ),
        fixes=(_fix(environment, found, parts),),
    )


def _fix(environment: Environment, found: Cudnn, parts: list[CudnnPart]) -> Fix:
    folders = [one.rpartition("/")[0] for one in (found.path, *(part.path for part in parts if part.path is not None))]
    listed = libraries.folders_of(environment)
    selected = next((folder for folder in reversed(folders) if folder in listed), None)
    if selected is not None:
        return libraries.without_folder(environment, selected)
    one = environment.distribution(found.owner) if found.owner is not None else None
    if one is not None:
        return packages.again(environment, one, "Install cuDNN's package again.")
    version = compatibility.version(found.version or found.path.rpartition(".")[2]) or (9,)
    return packages.for_interpreter(environment, compatibility.cudnn_for(version))


RULE = Rule(
    _match,
    title="Parts of cuDNN are missing, or of another version",
    needs=("cuda",),
    beats=("env-file-missing", "env-library-missing", "env-library-shadowed", "env-cuda-library-missing"),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="the parts of cuDNN",
    hit="""
        distribution torch 2.9.0 checked
        distribution nvidia-cudnn-cu12 9.10.2.21 checked
        build torch 12.8
        cudnn /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 9.10.2 by RUNPATH of nvidia-cudnn-cu12
        part libcudnn_graph.so.9 /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn_graph.so.9 9.10.2
        part libcudnn_cnn.so.9
    """,
    miss="""
        distribution torch 2.9.0 checked
        distribution nvidia-cudnn-cu12 9.10.2.21 checked
        build torch 12.8
        cudnn /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9 9.10.2 by RUNPATH of nvidia-cudnn-cu12
        part libcudnn_graph.so.9 /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn_graph.so.9 9.10.2
        part libcudnn_cnn.so.9 /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn_cnn.so.9 9.10.2
    """,
)
