"""The C++ or C runtime is older than a library needs.

What happened
-------------
A library was compiled with a newer compiler or on a newer system than the one it runs on: it asks ``libstdc++.so.6``
or ``libc.so.6`` for a version of its interface that the loaded one lacks. Often a new enough one *is* installed, but
another copy was loaded first. That is the system's copy under conda, MATLAB's, or one from ``LD_LIBRARY_PATH``.

How to be sure
--------------
``version `GLIBCXX_3.4.30' not found (required by FILE)`` is the text of the exception that ended the program. It
names the loaded copy, what it lacks, and the file that needs it.

How to fix it now
-----------------
GLIBCXX and CXXABI: ``conda install -c conda-forge libstdcxx-ng``, or remove the wrong copy from ``LD_LIBRARY_PATH``,
or load the right one first (``LD_PRELOAD=$CONDA_PREFIX/lib/libstdc++.so.6``). GLIBCXX_3.4.29 came with GCC 11, 3.4.30
with 12, 3.4.32 with 13, 3.4.33 with 14. ``strings libstdc++.so.6 | grep GLIBCXX`` lists what a copy has. GLIBC cannot
be replaced: 2.28 is RHEL 8, 2.31 Ubuntu 20.04, 2.34 RHEL 9, 2.35 Ubuntu 22.04. Use a newer system, a container, or a
wheel built for an older one (manylinux).

How to prevent it
-----------------
Build on the oldest system that you support, or in the manylinux image.

What it is often mistaken for
-----------------------------
A missing library: the library is there, it is too old.

Sources
-------
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
- https://github.com/pypa/manylinux
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Fix
from necropsy.predicates import messages, quote
from necropsy.rule import NEVER, Finding, Occurs, Rule, Tried
from necropsy.rules import compatibility
from necropsy.rules.experiment_proposals import of_library_path
from necropsy.rules.loading import ended_by
from necropsy.rules.python import exit_evidence, python_culprit


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "symbol-version")
    if not found:
        return None
    graded = [(one, grade) for one in found if (grade := ended_by(crash, one.text)) is not None]
    if not graded:
        return None
    message, confidence = graded[0]
    version, by = message.fields["version"], message.fields["by"]
    first = compatibility.brought_by(version)
    if version.startswith("GLIBC_"):
        what = "the system's C library"
        first = f" ({first} and later have it)" if first else ""
        fixes: tuple[Fix, ...] = (
            Fix(
                text=f"Use a newer system or container{first}, or a wheel that was built for an older one; the C library itself cannot be replaced.",
                command="ldd --version; pip install --only-binary=:all: --upgrade PACKAGE",
            ),
        )
    else:
        what = "the C++ runtime that was loaded"
        since = f" of {first} or later" if first else ""
        loaded = _OTHER_COPY.search(message.text)
        fixes = (
            *(_without(loaded["path"]) if loaded is not None else ()),
            Fix(
                text=f"Load a newer C++ runtime{since}, or remove the old copy from LD_LIBRARY_PATH.",
                command="conda install -c conda-forge libstdcxx-ng",
            ),
            Fix(
                text="Or load conda's copy before the system's, for one run.",
                command="LD_PRELOAD=$CONDA_PREFIX/lib/libstdc++.so.6 python ...",
            ),
        )
    return Finding(
        evidence=(quote(message, "the dynamic linker's message"), *exit_evidence(crash)),
        summary=f"`{by.rsplit('/', 1)[-1]}` needs {version}, and {what} is older than that.",
        confidence=confidence,
        culprit=python_culprit(crash),
        fixes=fixes,
    )


_OTHER_COPY = re.compile(r"(?P<path>/(?!lib|usr/lib)\S*libstdc\+\+\.so[\w.]*): version")
"""A copy of the runtime that is not the system's."""


def _without(path: str) -> tuple[Fix, ...]:
    return (
        Fix(
            text=f"The copy that was loaded is {path}, not the system's: remove its folder from LD_LIBRARY_PATH.",
            command="unset LD_LIBRARY_PATH",
        ),
    )


RULE = Rule(
    _match,
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
    experiments=of_library_path,
    occurs=Occurs(windows=NEVER, macos=NEVER),
    tried=Tried(
        advice="Remove the folder of the old copy from LD_LIBRARY_PATH.",
        result="crash gone",
        how=(
            "The printed ``unset LD_LIBRARY_PATH``; the system's runtime was loaded, and the import worked. "
            "Where the system's own copy is too old, the advice is to load a newer one, which was judged "
            "only."
        ),
        test="tests/rules/test_advice.py::test_an_old_runtime_on_the_path",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /tmp/op.so)
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: libstdc++.so.6: cannot open shared object file: No such file or directory
    """,
)
