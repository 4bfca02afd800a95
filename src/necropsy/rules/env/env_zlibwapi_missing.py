"""cuDNN 8 for Windows needs zlibwapi.dll, and it cannot be found.

What happened
-------------
The DLLs of cuDNN 8.3 to 8.9 for Windows open ``zlibwapi.dll`` by name. It comes neither with cuDNN nor with Windows. Without it the process ends as soon as
a convolution runs.

How to be sure
--------------
The process writes ``Could not locate zlibwapi.dll. Please make sure it is in your library path!`` and ends with 0xC0000409. ``where zlibwapi.dll`` finds
nothing.

How to fix it now
-----------------
Put the 64-bit ``zlibwapi.dll`` that NVIDIA's installation guide for cuDNN 8 names beside ``cudnn64_8.dll``, or into a folder of PATH. With conda:
``conda install -c conda-forge libzlib-wapi``.

How to prevent it
-----------------
Use a build for cuDNN 9, which has zlib in it. PyTorch's wheels bring a copy.

What it is often mistaken for
-----------------------------
A crash of the framework, or a stack overrun, because of the number 0xC0000409. ``zlib1.dll`` is another build of zlib and does not help.

Sources
-------
- https://docs.nvidia.com/deeplearning/cudnn/archives/cudnn-897/install-guide/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Dll, Environment, Evidence, Fix
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, several
from necropsy.rules import packages

_DRIVER = "nvcuda.dll"


def _match(environment: Environment) -> Finding | None:
    # Without NVIDIA's driver cuDNN is not used.
    driver = next((one for one in environment.dlls or () if one.path.lower().endswith(_DRIVER)), None)
    return several(_findings(environment, driver)) if driver is not None else None


def _findings(environment: Environment, driver: Dll) -> Iterator[Finding]:
    for one in environment.dlls or ():
        missing = next((need for need in one.opens if need.path is None), None)
        if missing is None:
            continue
        version = f" {one.version}" if one.version else ""
        yield Finding(
            evidence=(
                Evidence(
                    claim="what opens it",
                    seen=f"the name {missing.name}; version{version or ' unknown'}",
                    where=one.path,
                ),
                Evidence(
                    claim=f"copies of {missing.name}", seen="none beside it, in Python's folder, System32 and PATH"
                ),
                Evidence(
                    claim="NVIDIA's driver is there, so cuDNN is used",
                    seen=driver.version or "found",
                    where=driver.path,
                ),
            ),
            summary=f"`{missing.name}` cannot be found, and cuDNN{version} needs it: the process ends when a convolution runs on the GPU (`{one.path}`).",
            confidence="certain",
            about=frozenset({f"library {missing.name}"}),
            fixes=(_fix(environment, one),),
        )


def _fix(environment: Environment, cudnn: Dll) -> Fix:
    interpreter = environment.interpreter
    if interpreter is not None and interpreter.conda and interpreter.prefix is not None:
        words = ["conda", "install", "--prefix", interpreter.prefix, "--channel", "conda-forge", "libzlib-wapi"]
        return Fix(text="Install conda-forge's copy.", command=packages.command(environment, words))
    folder = cudnn.path.replace("\\", "/").rpartition("/")[0]
    return Fix(
        text=f"Put the 64-bit zlibwapi.dll that NVIDIA's installation guide for cuDNN 8 names into {folder}, or into a folder of PATH."
    )


RULE = Rule(
    _match,
    title="cuDNN 8 needs zlibwapi.dll, and it cannot be found",
    needs=("dlls",),
    occurs=Occurs(linux=NEVER, windows=X86_64, macos=NEVER),
    checks="zlib for cuDNN 8",
    hit="""
        python 3.10.11 AMD64 win32
        distribution onnxruntime-gpu 1.16.3 checked
        dll C:/cudnn/bin/cudnn64_8.dll version 8.9.5.29
        dll-opens zlibwapi.dll
        dll C:/Windows/System32/nvcuda.dll version 31.0.15.3623
    """,
    miss="""
        python 3.10.11 AMD64 win32
        distribution onnxruntime-gpu 1.16.3 checked
        dll C:/cudnn/bin/cudnn64_8.dll version 8.9.5.29
        dll-opens zlibwapi.dll C:/cudnn/bin/zlibwapi.dll by own
        dll C:/Windows/System32/nvcuda.dll version 31.0.15.3623
    """,
)
