"""A custom op was built with a newer compiler than the C++ runtime supports.

What happened
-------------
The library was compiled with a newer g++ than the ``libstdc++.so.6`` that the loader would take comes from, and uses interfaces that this one does not have.

How to be sure
--------------
Loading the op raises ``version `GLIBCXX_3.4.30' not found``. ``strings libstdc++.so.6 | grep GLIBCXX`` lists what the runtime has.

How to fix it now
-----------------
Build the op with the compiler of the oldest system that it runs on, or link with ``-static-libstdc++ -static-libgcc``. If LD_LIBRARY_PATH selects an old
copy: ``unset LD_LIBRARY_PATH``.

How to prevent it
-----------------
Build in the manylinux image that the framework itself was built in.

What it is often mistaken for
-----------------------------
A missing library: it is there, and older than the compiler.

Sources
-------
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from necropsy.model import Environment, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, libraries


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for unmet in libraries.unmet_versions(environment):
        needing = [one for one in unmet.needing if one.is_op]
        # Where packages need it too, it is the runtime that is too old.
        if unmet.kind != "libstdcxx" or len(needing) != len(unmet.needing):
            continue
        since = compatibility.brought_by(unmet.highest)
        by_path = unmet.by == "LD_LIBRARY_PATH"
        folder = os.path.dirname(unmet.path)  # noqa: PTH120 - a name, not a file
        yield Finding(
            evidence=libraries.versions_seen(unmet),
            summary=f"`{needing[0].path}` needs {unmet.highest}{f' ({since})' if since else ''}, and `{unmet.path}` is older.",
            confidence="certain",
            about=frozenset({f"file {unmet.path}"}),
            fixes=(
                *((libraries.without_folder(environment, folder),) if by_path else ()),
                Fix(
                    text="Build it with the compiler of this system, or link it with -static-libstdc++ -static-libgcc."
                ),
            ),
        )


RULE = Rule(
    _match,
    needs=("ops", "libraries"),
    beats=("env-libstdcxx-too-old", "env-library-shadowed"),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="the compiler of custom ops",
    hit="""
        op /home/u/op.so
        needs libstdc++.so.6 GLIBCXX_3.4.32
        needed libstdc++.so.6 /usr/lib/libstdc++.so.6 by ld.so.cache
        library /usr/lib/libstdc++.so.6
        defines GLIBCXX_3.4.30
    """,
    miss="""
        op /home/u/op.so
        needs libstdc++.so.6 GLIBCXX_3.4.30
        needed libstdc++.so.6 /usr/lib/libstdc++.so.6 by ld.so.cache
        library /usr/lib/libstdc++.so.6
        defines GLIBCXX_3.4.30
    """,
)
