"""A custom op searches for libraries in a folder of the build machine.

What happened
-------------
The library has a search path (RUNPATH or RPATH) with a folder that is not here, that holds temporary files, or that belongs to a build. On another machine
nothing is found there; in a folder that others can write to, they can have their own library loaded.

How to be sure
--------------
``readelf -d op.so | grep -E 'RUNPATH|RPATH'`` prints it.

How to fix it now
-----------------
Take it out: ``patchelf --remove-rpath op.so``, or ``patchelf --set-rpath '$ORIGIN' op.so`` for libraries beside the op. With CMake: install the target, which
removes the build's path.

How to prevent it
-----------------
Link with ``-Wl,-rpath,'$ORIGIN'`` or with no path at all; the framework's libraries are in the process already when an op is loaded.

What it is often mistaken for
-----------------------------
A missing library on the other machine: it may be there, in another folder.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://cmake.org/cmake/help/latest/prop_tgt/BUILD_RPATH.html
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Library
from necropsy.rule import NEVER, Finding, Occurs, Rule, several


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


_TEMPORARY = re.compile(r"/(?:tmp|var/tmp|dev/shm)(?:/|$)")
_OF_A_BUILD = re.compile(
    r"/(?:bazel-out|_bazel_\w+|_solib_\w+|CMakeFiles|pip-(?:build-env|req-build|install)-\w+|build/(?:temp|lib)\.[\w.-]+)(?:/|$)"
)


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.libraries or ():
        if not one.is_op:
            continue
        bad = [(folder, why) for folder in (*one.rpath, *one.runpath) if (why := _why(folder)) is not None]
        if bad:
            yield _finding(one, bad)


def _why(folder: str) -> str | None:
    if folder.startswith("$"):
        return None
    if not folder.startswith("/"):
        return "depends on the working directory"
    if _OF_A_BUILD.search(folder):
        return "belongs to a build"
    if _TEMPORARY.match(folder):
        return "holds temporary files"
    return None if os.path.isdir(folder) else "does not exist here"  # noqa: PTH112 - only asked whether it is there


def _finding(one: Library, bad: list[tuple[str, str]]) -> Finding:
    kind = "RPATH" if one.rpath else "RUNPATH"
    rest = [folder for folder in (*one.rpath, *one.runpath) if folder not in dict(bad)]
    change = ["--set-rpath", ":".join(rest)] if rest else ["--remove-rpath"]
    return Finding(
        evidence=tuple(
            Evidence(claim=f"a folder that {why}", seen=f"{kind} {folder}", where=one.path) for folder, why in bad
        ),
        summary=f"`{one.path}` searches for libraries in `{bad[0][0]}`, which {bad[0][1]}.",
        confidence="certain",
        about=frozenset({f"search path of {one.path}"}),
        fixes=(Fix(text="Take that folder out.", command=shlex.join(["patchelf", *change, one.path])),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("ops", "libraries"),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="search paths of custom ops",
    hit="""
        op /home/u/op.so
        runpath /tmp/build/lib
    """,
    miss="""
        op /home/u/op.so
        runpath $ORIGIN
    """,
)
