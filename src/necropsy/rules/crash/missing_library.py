"""A shared library was not found.

What happened
-------------
The dynamic linker was asked to load a library and did not find its file: one that is imported, or, more often, one that *it* needs. The program ended with that exception.

How to be sure
--------------
``libX.so.N: cannot open shared object file`` is the text of the exception that ended the program, or the linker itself ended it with exit code 127. The name is exactly what is missing; the
number behind ``.so`` counts: libcudart.so.11.0 does not serve for libcudart.so.12. On Windows ``DLL load failed`` names the importing module, not what is missing. As exit codes: 0xC0000135
(-1073741515) a DLL that was not found at the start, 0xC06D007E (-1066598274) one that was not found when it was first used, 0xC000007B (-1073741701) a 32-bit file in a 64-bit process or a damaged one.

How to fix it now
-----------------
``ldd FILE | grep 'not found'`` shows all that is missing at once. Install the package that has it (CUDA's: ``pip install 'tensorflow[and-cuda]'``), or name its folder in ``LD_LIBRARY_PATH`` before
Python starts. Ops of your own: link with ``-Wl,-rpath,...`` (``tf.sysconfig.get_link_flags()``).

How to prevent it
-----------------
Pin the versions that belong together; test the import in a clean container.

What it is often mistaken for
-----------------------------
The file that is imported being absent: it is there, something that it needs is not. A warning about an optional library that the program survives.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://www.tensorflow.org/install/pip
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Fix, Message
from necropsy.questions import messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.causes import causes_of
from necropsy.rules.loading import ended_by
from necropsy.rules.python import exit_evidence, python_culprit
from necropsy.rules.windows import ended_with


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "missing-library", "bad-library-file")
    if not found:
        return _refused(crash)
    # What the loader itself says of the start counts before what it tells an import.
    message = next((one for one in reversed(found) if "loader" in one.fields), found[-1])
    confidence = ended_by(crash, message.text)
    if confidence is None:
        return None
    library = message.fields.get("library")
    if message.kind == "bad-library-file":
        what = f"The library `{library}`" if library else "A library of the program"
        summary = f"{what} could not be loaded: {message.fields['text'].rstrip('.')}."
    elif library and _IS_FILE.search(library):
        summary = f"The shared library `{library}` is needed and was not found."
    else:
        summary = (
            f"A library that {library or 'an extension'} needs was not found: {message.fields['text'].rstrip('.')}."
        )
    return Finding(
        evidence=(quote(message, "the dynamic linker's words"), *exit_evidence(crash)),
        summary=summary,
        confidence=confidence,
        culprit=python_culprit(crash),
        fixes=_fixes(message),
    )


_NOT_FOUND, _DELAYED, _HRESULT = 0xC0000135, 0xC06D007E, 0x8007007E
_BAD_IMAGE, _BAD_IMAGE_HRESULT = 0xC000007B, 0x800700C1


def _refused(crash: Crash) -> Finding | None:
    """The status of Windows' loader, which does not name the library."""
    claim = "the loader of Windows gave up"
    missing = ended_with(crash, _NOT_FOUND, _DELAYED, _HRESULT, claim=claim)
    bad = ended_with(crash, _BAD_IMAGE, _BAD_IMAGE_HRESULT, claim=claim)
    if not missing and not bad:
        return None
    if bad:
        summary = "A DLL that the program needs is none for it: 32 and 64 bits were mixed, or the file is damaged."
    elif ended_with(crash, _DELAYED, claim=claim):
        summary = "A DLL that is loaded only when it is first used was not found; the status does not say which."
    else:
        summary = "A DLL that the program needs was not found, and so it did not start; the status does not say which."
    first = Fix(
        text="Install Microsoft's Visual C++ Redistributable for 2015 to 2022: most often its DLLs are missing."
    )
    fixes = (first, Fix(text="See all that is missing at once.", command="dumpbin /dependents FILE.pyd"))
    if bad:
        install = Fix(
            text="Install the package anew for the processor that this Python is built for, without the cache.",
            command="pip install --force-reinstall --no-cache-dir PACKAGE",
        )
        fixes = (install, fixes[1])
    return Finding(evidence=missing + bad, summary=summary, confidence="likely", fixes=fixes, possible=causes_of(crash))


_IS_FILE = re.compile(r"\.(?:so|dll|dylib|pyd)\b", re.IGNORECASE)


def _fixes(message: Message) -> tuple[Fix, ...]:
    library, loader = (message.fields.get("library") or "").lower(), message.fields.get("loader")
    if loader == "windows" or library.endswith((".dll", ".pyd")):
        runtime = re.match(r"(?:vcruntime|msvcp|concrt|vcomp)\d", library)
        first = (
            "Install Microsoft's Visual C++ Redistributable for 2015 to 2022: the library is a part of it."
            if runtime
            else "Install the package that holds it, or put its folder on PATH; Python from 3.8 on asks for "
            "os.add_dll_directory() in the program where an extension needs it."
        )
        return (Fix(text=first), Fix(text="See all that is missing at once.", command="dumpbin /dependents FILE.pyd"))
    if loader == "dyld" or library.endswith(".dylib"):
        return (
            Fix(
                text="Install the library for the processor that this Python is built for (arm64 or x86_64), or reinstall the package that needs it."
            ),
            Fix(text="See what it needs and where it looks.", command="otool -L FILE.so; file $(which python)"),
        )
    return (
        Fix(
            text="Install the package that holds it, or name its folder before Python starts.",
            command="export LD_LIBRARY_PATH=/folder/of/it:$LD_LIBRARY_PATH",
        ),
        Fix(text="See all that is missing at once.", command="ldd FILE.so | grep 'not found'"),
    )


RULE = Rule(
    name="missing-library",
    subject=Crash,
    title="A shared library was not found",
    match=_match,
    page=__doc__ or "",
    beats=("python-exception", "exit-status-only", "abort", "killed-by-signal"),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 1, in <module>
        log ImportError: libGL.so.1: cannot open shared object file: No such file or directory
    """,
    miss="""
        exit 1
        log W tensorflow/stream_executor/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 9, in <module>
        log ValueError: no data
    """,
    references=("https://man7.org/linux/man-pages/man8/ld.so.8.html",),
)
