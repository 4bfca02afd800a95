"""A shared library was not found.

What happened
-------------
The dynamic linker was asked to load a library and did not find its file: one that is imported, or, more often, one that *it* needs. The program ended with that exception.

How to be sure
--------------
``libX.so.N: cannot open shared object file`` is the text of the exception that ended the program, or the linker itself ended it with exit code 127. The name is exactly what is missing; the
number behind ``.so`` counts: libcudart.so.11.0 does not serve for libcudart.so.12. On Windows ``DLL load failed`` names the importing module, not what is missing.

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

from necropsy.model import Crash, Fix
from necropsy.questions import messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.loading import ended_by
from necropsy.rules.python import exit_evidence, python_culprit


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "missing-library", "bad-library-file")
    if not found:
        return None
    message = found[-1]
    confidence = ended_by(crash, message.text)
    if confidence is None:
        return None
    library = message.fields.get("library")
    if message.kind == "bad-library-file":
        summary = f"The library `{library}` could not be loaded: {message.fields['text']}."
    elif library and ".so" in library:
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
        fixes=(
            Fix(
                text="Install the package that holds it, or name its folder before Python starts.",
                command="export LD_LIBRARY_PATH=/folder/of/it:$LD_LIBRARY_PATH",
            ),
            Fix(text="See all that is missing at once.", command="ldd FILE.so | grep 'not found'"),
        ),
    )


RULE = Rule(
    name="missing-library",
    subject=Crash,
    title="A shared library was not found",
    match=_match,
    page=__doc__ or "",
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
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
