"""No room for a library's thread-local data.

What happened
-------------
A library was loaded at run time that keeps thread-local variables in the fixed block that every thread has (the
static TLS block). That block was sized when the program started; earlier libraries left too little of it.

How to be sure
--------------
``cannot allocate memory in static TLS block`` is the text of the exception that ended the program. The file before it
is the one that found no room. Typical are libgomp, jemalloc and tcmalloc, and machines with AArch64.

How to fix it now
-----------------
Load that library first: import the package that brings it before the others, or name the library in ``LD_PRELOAD``.
Or make the block larger (glibc 2.33 and later): ``GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096``.

How to prevent it
-----------------
Keep the number of OpenMP runtimes and allocators in one environment small; prefer builds from one source.

What it is often mistaken for
-----------------------------
Running out of memory: the machine has plenty. A missing library: the file was found. A broken wheel.

Sources
-------
- https://www.gnu.org/software/libc/manual/html_node/Dynamic-Linking-Tunables.html
- https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import messages, quote
from necropsy.rule import NEVER, Finding, Occurs, Rule, Tried
from necropsy.rules import quoting
from necropsy.rules.experiment_proposals import of_library_path
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "static-tls")
    if not found:
        return None
    message = found[-1]
    confidence = told_of_the_end(crash, message, decisive=False)
    if confidence is None:
        return None
    library = message.fields.get("library")
    return Finding(
        evidence=(quote(message, "the dynamic linker's message"), *exit_evidence(crash)),
        summary=f"{f'`{library}`' if library else 'A library'} could not be loaded: the threads' block of static thread-local data has no room left for it.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="Load that library before all others: import its package first, or preload it.",
                command=f"LD_PRELOAD={quoting.posix(library or '', '/path/of/it.so')} python ...",
            ),
            Fix(
                text="Make the block larger (glibc 2.33 and later).",
                command="GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 python ...",
            ),
        ),
    )


RULE = Rule(
    _match,
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
    experiments=of_library_path,
    occurs=Occurs(windows=NEVER, macos=NEVER),
    tried=Tried(
        advice="Load that library before all others: preload it by the printed line.",
        result="crash gone",
        how="The printed ``LD_PRELOAD=...`` was used unchanged; the library could be loaded.",
        test="tests/rules/test_advice.py::test_static_tls",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: libgomp.so.1: cannot open shared object file: No such file or directory
    """,
)
