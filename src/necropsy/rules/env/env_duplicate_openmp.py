"""Two OpenMP runtimes that cannot live in one process.

What happened
-------------
Two packages that are used together bring a copy of Intel's or LLVM's OpenMP runtime (libiomp5, libomp) each. When both are started, the second one ends the
program. Copies of GNU's libgomp do not mind each other.

How to be sure
--------------
The program ends with ``OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.``

How to fix it now
-----------------
Take the packages from one source: ``conda install nomkl``, or all of them from pip. A workaround that only hides it, at the risk of wrong results:
``KMP_DUPLICATE_LIB_OK=TRUE``.

How to prevent it
-----------------
Do not mix conda's and pip's builds of numpy, scikit-learn and torch in one environment.

What it is often mistaken for
-----------------------------
A crash of TensorFlow or PyTorch: it is the combination.

Sources
-------
- https://openmp.llvm.org/design/Runtimes.html
- https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2023-0/avoiding-conflicts-in-the-execution-environment.html
"""

from __future__ import annotations

import re

from necropsy.model import Environment, Evidence, Fix, Library
from necropsy.rule import Finding, Rule
from necropsy.rules import libraries, packages

_RUNTIME = re.compile(r"(?P<kind>libiomp5|libomp)(?:-[0-9a-f]+)?\.so(?:\.[\d.]+)?")
_GNU = re.compile(r"libgomp(?:-[0-9a-f]+)?\.so(?:\.[\d.]+)?")
_WORKAROUND = Fix(
    text="A workaround that only hides it, at the risk of wrong results.", command="export KMP_DUPLICATE_LIB_OK=TRUE"
)


def _match(environment: Environment) -> Finding | None:
    return _loaded(environment) if environment.mapped else _brought(environment)


def _loaded(environment: Environment) -> Finding | None:
    """Two in one process: of Intel's or LLVM's, or one of these and GNU's."""
    every = environment.libraries or ()
    found = [one for one in every if _RUNTIME.fullmatch(one.path.rsplit("/", 1)[-1])]
    if found:
        found += [one for one in every if _GNU.fullmatch(one.path.rsplit("/", 1)[-1])]
    if len(found) < 2:
        return None
    names = list(dict.fromkeys(one.distribution for one in found if one.distribution is not None))
    text = "Install releases of one source that share a runtime."
    return Finding(
        evidence=tuple(Evidence(claim="an OpenMP runtime that is loaded", seen=one.path) for one in found),
        summary=f"Different OpenMP runtimes are loaded into one process: {' and '.join(f'`{one.path}`' for one in found)}.",
        confidence="likely",
        about=frozenset({f"file {one.path}" for one in found}),
        fixes=(packages.upgrade(environment, names, text) if names else Fix(text=text), _WORKAROUND),
    )


def _brought(environment: Environment) -> Finding | None:
    by_owner: dict[str, Library] = {}
    for one in libraries.own(environment):
        if one.distribution is not None and _RUNTIME.fullmatch(one.path.rsplit("/", 1)[-1]):
            by_owner.setdefault(one.distribution, one)
    if len(by_owner) < 2:
        return None
    names = sorted(by_owner)
    return Finding(
        evidence=tuple(Evidence(claim=f"the OpenMP runtime of {name}", seen=by_owner[name].path) for name in names),
        summary=f"{' and '.join(names)} bring an OpenMP runtime each; where both are used in one process, the second one ends it.",
        confidence="likely",
        about=frozenset({f"file {one.path}" for one in by_owner.values()}),
        fixes=(
            packages.upgrade(environment, names, "Install releases of one source that share a runtime."),
            _WORKAROUND,
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("libraries",),
    checks="OpenMP runtimes",
    hit="""
        distribution a 1.0 checked
        distribution b 1.0 checked
        library /env/a/libiomp5.so of a
        library /env/b/libiomp5.so of b
    """,
    miss="""
        distribution a 1.0 checked
        distribution b 1.0 checked
        library /env/a.libs/libgomp-24e2ab19.so.1.0.0 of a
        library /env/b.libs/libgomp-6a29c32d.so.1.0.0 of b
    """,
)
