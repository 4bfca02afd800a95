"""Another copy of a library is loaded than the package's own.

What happened
-------------
A package brings a library and finds it by a search path in its files (RUNPATH). LD_LIBRARY_PATH is searched before that: a library of the same name in one
of its folders is loaded instead, in whatever version it has.

On Windows, a DLL in Python's own folder comes before the folders that packages add with ``os.add_dll_directory``. A DLL that is loaded when it is first
used (a delayed import), or by Python 3.7 and older, is looked for in System32 and on PATH. A DLL of that name which is loaded already is taken before all
of these, so that packages which open theirs by path are not affected.

How to be sure
--------------
``LD_DEBUG=libs python -c 'import NAME'`` shows which file is taken. The finding names both files. On Windows, ``where NAME.dll`` lists the copies on PATH.

How to fix it now
-----------------
Take the folder out of the variable, or ``unset LD_LIBRARY_PATH`` for programs that bring their own libraries. On Windows, put the package's
own folder in front of PATH, or give the copy in Python's folder another name.

How to prevent it
-----------------
Do not set LD_LIBRARY_PATH in a shell's start-up file; set it for the one program that needs it. Do not copy DLLs into System32 or Python's folder.

What it is often mistaken for
-----------------------------
A package with the wrong version of a library: its own copy is right, and is not the one that is used.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://docs.nvidia.com/deeplearning/cudnn/latest/installation/linux.html
- https://learn.microsoft.com/windows/win32/dlls/dynamic-link-library-search-order
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Library, Needed
from necropsy.rule import Finding, Rule, several
from necropsy.rules import libraries, windows_dlls

_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")


def _match(environment: Environment) -> Finding | None:
    return several([*_findings(environment), *windows_dlls.shadowed(environment)])


def _findings(environment: Environment) -> Iterator[Finding]:
    by_folder: dict[str, list[tuple[Library, Needed]]] = {}
    ids = {one.path: one.build_id for one in environment.libraries or ()}
    for one in libraries.own(environment):
        for need in one.needed or ():
            # Of a library of the system, another copy is what LD_LIBRARY_PATH is for; its version is checked elsewhere.
            if (
                need.by != "LD_LIBRARY_PATH"
                or need.path is None
                or not need.otherwise
                or need.otherwise.startswith(_SYSTEM)
            ):
                continue
            if ids.get(need.path) is None or ids.get(need.path) != ids.get(need.otherwise):
                by_folder.setdefault(os.path.dirname(need.path), []).append((one, need))  # noqa: PTH120 - a name, not a file
    for folder, rows in sorted(by_folder.items()):
        yield _finding(environment, folder, rows)


def _finding(environment: Environment, folder: str, rows: list[tuple[Library, Needed]]) -> Finding:
    library, need = rows[0]
    names = sorted({each.name for _, each in rows})
    more = f" and {len(names) - 1} more libraries" if len(names) > 1 else ""
    return Finding(
        evidence=tuple(
            Evidence(
                claim=f"`{each.name}` of {one.path}",
                seen=f"{each.path}, and not {each.otherwise}",
                where="LD_LIBRARY_PATH",
            )
            for one, each in rows[:5]
        ),
        summary=f"LD_LIBRARY_PATH selects `{need.path}`{more}; {libraries.owner(environment, library)} brings `{need.otherwise}`.",
        confidence="certain",
        about=frozenset({f"file {each.path}" for _, each in rows}),
        fixes=(libraries.without_folder(environment, folder),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("libraries or dlls", "variables"),
    checks="copies that come before a package's own",
    hit="""
        variable LD_LIBRARY_PATH /opt/old
        distribution tensorflow 2.20.0 checked
        library /env/lib/python3/site-packages/tensorflow/libtensorflow_cc.so.2 of tensorflow
        needed libcudnn.so.9 /opt/old/libcudnn.so.9 by LD_LIBRARY_PATH otherwise /env/lib/python3/site-packages/nvidia/cudnn/lib/libcudnn.so.9
    """,
    miss="""
        variable LD_LIBRARY_PATH /opt/old
        distribution tensorflow 2.20.0 checked
        library /env/lib/python3/site-packages/tensorflow/libtensorflow_cc.so.2 of tensorflow
        needed libz.so.1 /opt/old/libz.so.1 by LD_LIBRARY_PATH otherwise /usr/lib/libz.so.1
    """,
)
