"""LD_PRELOAD loads something that changes how programs behave.

What happened
-------------
LD_PRELOAD has every program load libraries before all others. A sanitizer makes programs fail that are not built for it, an allocator changes where memory
errors show, and a file that is not there makes each program print a warning.

How to be sure
--------------
``echo $LD_PRELOAD``; the loader says ``object 'X' from LD_PRELOAD cannot be preloaded ... ignored``. LeakSanitizer makes every program with leaks, Python
among them, end with exit code 1.

How to fix it now
-----------------
``unset LD_PRELOAD``, and set it in front of the one command that needs it.

How to prevent it
-----------------
Do not export LD_PRELOAD in a shell's start-up file or an image's environment.

What it is often mistaken for
-----------------------------
Errors of the programs themselves: each program that is started complains in the same way.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://github.com/google/sanitizers/wiki/AddressSanitizerLeakSanitizer
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Preload
from necropsy.rule import NEVER, Finding, Occurs, Rule, several

_SANITIZER = re.compile(r"lib(?:clang_rt\.)?(?:asan|tsan|ubsan|lsan|msan|hwasan)\b")
_ALLOCATOR = re.compile(r"lib(?:tcmalloc|jemalloc|mimalloc|hoard|tbbmalloc|snmalloc|rpmalloc)")


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.preload or ():
        name = one.entry.rsplit("/", 1)[-1]
        if one.path is None:
            yield _finding(
                environment, one, f"LD_PRELOAD names `{one.entry}`, which is not there: every program prints a warning."
            )
        elif _SANITIZER.match(name):
            yield _finding(
                environment,
                one,
                f"LD_PRELOAD loads a sanitizer, `{one.path}`, into every program: those that were not built for it may end with an error.",
            )
        elif _ALLOCATOR.match(name):
            yield _finding(
                environment,
                one,
                f"LD_PRELOAD replaces the memory allocator by `{one.path}`; errors in the use of memory show in other ways.",
            )


def _finding(environment: Environment, one: Preload, summary: str) -> Finding:
    value = (environment.variables or {}).get("LD_PRELOAD", one.entry)
    left = [entry for entry in value.replace(":", " ").split() if entry != one.entry]
    command = f"export LD_PRELOAD={shlex.quote(':'.join(left))}" if left else "unset LD_PRELOAD"
    allocator = _ALLOCATOR.match(one.entry.rsplit("/", 1)[-1]) is not None and one.path is not None
    return Finding(
        evidence=(Evidence(claim="the variable", seen=f"LD_PRELOAD={value}", where="environment"),),
        summary=summary,
        confidence="certain",
        severity="note" if allocator else "warning",
        about=frozenset({f"preload {one.entry}"}),
        fixes=(Fix(text="Take it out of LD_PRELOAD.", command=command),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("preload",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="LD_PRELOAD",
    hit="""
        preload /usr/lib/gcc/libasan.so.8 /usr/lib/gcc/libasan.so.8
    """,
    miss="""
        preload /opt/lib/libmine.so /opt/lib/libmine.so
    """,
)
