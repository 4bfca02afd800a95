"""The cuDNN that a package would load is older than the one that it was built with, or has another major version.

What happened
-------------
cuDNN is loaded at run time, and the first copy that is found counts: of LD_LIBRARY_PATH, then of the folders that the framework knows, then of the system.
That copy has another major version than the one that the framework was built with, or a lower minor version.

How to be sure
--------------
TensorFlow says ``Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0``, PyTorch ``cuDNN version incompatibility``, as soon as cuDNN is
used.

How to fix it now
-----------------
Take the folder with the old copy out of LD_LIBRARY_PATH, or install a newer cuDNN with pip: ``pip install 'nvidia-cudnn-cu12>=9.3,<10'``.

How to prevent it
-----------------
No CUDA in LD_LIBRARY_PATH; one framework for each environment.

What it is often mistaken for
-----------------------------
Several copies on one machine, which are normal: only the one that is found first counts. A newer minor version is fine.

Sources
-------
- https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
- https://www.tensorflow.org/install/source#gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import CudaBuild, Cudnn, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, libraries, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for build in cuda.using(environment):
        found = build.cudnn
        loaded = compatibility.version(found.version) if found is not None and found.version is not None else None
        wanted = cuda.cudnn_wanted(environment, build)
        if (
            found is None
            or loaded is None
            or wanted is None
            or len(loaded) < 2
            or compatibility.fits(loaded, wanted[0])
        ):
            continue
        built, source = wanted
        why = "another major version" if loaded[0] != built[0] else "older"
        yield Finding(
            evidence=(
                Evidence(
                    claim=f"the cuDNN that it {cuda.loads(environment)}",
                    seen=f"{found.version}, found by {found.by}" if found.by else found.version or "",
                    where=found.path,
                ),
                *(
                    (Evidence(claim="its version", seen=found.version or "", where=found.told_by),)
                    if found.told_by
                    else ()
                ),
                source,
            ),
            summary=f"{cuda.spelled(build)} was built with cuDNN {compatibility.spelled(built)}, and {cuda.loads(environment)} cuDNN {found.version}, which is {why}: `{found.path}`.",
            confidence="certain",
            about=frozenset(
                {f"cudnn of {build.distribution}", f"file {found.path}", *((found.owner,) if found.owner else ())}
            ),
            fixes=(_fix(environment, build, found, built),),
        )


def _fix(environment: Environment, build: CudaBuild, found: Cudnn, built: compatibility.Version) -> Fix:
    if found.by == "LD_LIBRARY_PATH":
        return libraries.without_folder(environment, found.path.rpartition("/")[0])
    one = environment.distribution(build.distribution)
    if found.owner is not None:
        minor = built[1] if len(built) > 1 else 0
        what = f"{found.owner}>={built[0]}.{minor},<{built[0] + 1}"
        return packages.install(environment, what, "Install a cuDNN that fits.", like=one)
    return packages.for_interpreter(environment, compatibility.cudnn_for(built))


RULE = Rule(
    _match,
    title="The cuDNN that a package would load does not fit",
    needs=("cuda",),
    beats=("env-library-shadowed", "env-package-conflict"),
    occurs=Occurs(windows=X86_64, macos=NEVER),
    checks="the version of cuDNN",
    hit="""
        distribution tensorflow 2.20.0 checked
        build tensorflow 12.5.1
        variable LD_LIBRARY_PATH /opt/cuda/lib
        loads libcudnn.so.9 /opt/cuda/lib/libcudnn.so.9 by LD_LIBRARY_PATH opened yes
        cudnn /opt/cuda/lib/libcudnn.so.9 9.1.0 by LD_LIBRARY_PATH
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        build tensorflow 12.5.1
        variable LD_LIBRARY_PATH /opt/cuda/lib
        loads libcudnn.so.9 /opt/cuda/lib/libcudnn.so.9 by LD_LIBRARY_PATH opened yes
        cudnn /opt/cuda/lib/libcudnn.so.9 9.10.0 by LD_LIBRARY_PATH
    """,
)
