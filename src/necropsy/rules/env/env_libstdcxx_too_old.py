"""The C++ runtime that would be loaded is older than a library needs.

What happened
-------------
A library was compiled with a newer compiler than the ``libstdc++.so.6`` that the loader would take has interfaces for. Often the system has a new one, and
LD_LIBRARY_PATH or conda selects an old one.

How to be sure
--------------
The library needs a version (``GLIBCXX_3.4.30``) that ``strings libstdc++.so.6 | grep GLIBCXX`` does not list. On import: ``version `GLIBCXX_3.4.30' not
found``.

How to fix it now
-----------------
``unset LD_LIBRARY_PATH`` where that selects the old copy; else a newer runtime: ``conda install -c conda-forge 'libstdcxx-ng>=13'``, or a newer system.

How to prevent it
-----------------
Do not put folders with a libstdc++ into LD_LIBRARY_PATH.

What it is often mistaken for
-----------------------------
A missing library: it is there, and too old.

Sources
-------
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
- https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

import os

from necropsy.model import Distribution, Environment, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, libraries, packages, symbol_versions


def _match(environment: Environment) -> Finding | None:
    return several(symbol_versions.too_old(environment, "libstdcxx", _fix))


def _fix(environment: Environment, unmet: libraries.Unmet) -> Fix:
    if unmet.by == "LD_LIBRARY_PATH":
        return libraries.without_folder(environment, os.path.dirname(unmet.path))  # noqa: PTH120 - a name, not a file
    if unmet.path in {one.path for one in environment.preload or ()}:
        return Fix(text="Take that copy out of LD_PRELOAD.", command="unset LD_PRELOAD")
    interpreter = environment.interpreter
    if interpreter is not None and interpreter.conda and interpreter.prefix is not None:
        like = next((one for one in packages.checked(environment) if one.installer == "conda"), None)
        if like is not None:
            return _of_conda(environment, unmet, like)
    return symbol_versions.older_release(
        environment, unmet, "Build it with the compiler of this system, or use a newer system."
    )


def _of_conda(environment: Environment, unmet: libraries.Unmet, like: Distribution) -> Fix:
    """Conda keeps an installed version unless a newer one is requested."""
    text = "Install a newer C++ runtime."
    newest = max(
        (compatibility.version(one.rpartition("_")[2]) or () for one in unmet.versions if "GLIBCXX" in one), default=()
    )
    release = (compatibility.brought_by(f"GLIBCXX_{compatibility.spelled(newest)}") if newest else None) or ""
    if number := release.removeprefix("GCC "):
        return packages.install(environment, f"libstdcxx-ng>={number}", text, like=like)
    return packages.upgrade(environment, ["libstdcxx-ng"], text, like=like)


RULE = Rule(
    _match,
    needs=("libraries",),
    beats=("env-library-shadowed",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="the version of the C++ runtime",
    hit="""
        distribution a 1.0 checked
        library /env/a.so of a
        needs libstdc++.so.6 GLIBCXX_3.4.30
        needed libstdc++.so.6 /usr/lib/libstdc++.so.6 by ld.so.cache
        library /usr/lib/libstdc++.so.6
        defines GLIBCXX_3.4.28
    """,
    miss="""
        distribution a 1.0 checked
        library /env/a.so of a
        needs libstdc++.so.6 GLIBCXX_3.4.30
        needed libstdc++.so.6 /usr/lib/libstdc++.so.6 by ld.so.cache
        library /usr/lib/libstdc++.so.6
        defines GLIBCXX_3.4.30 GLIBCXX_3.4.301
    """,
)
