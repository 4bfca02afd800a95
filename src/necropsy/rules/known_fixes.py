"""Crashes that somebody has reported and fixed: whether this one fits, and the version to install.

The facts are in ``data/tensorflow_advisories.json`` (TensorFlow's own security advisories) and ``data/fixed_crashes.toml``
(other packages). A row fits where three things agree: the op or the function that ran, the kind of the verdict, and the
installed version, which has to be older than the fix in its own branch. That is no proof, so the words are *fits*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from necropsy.data import table
from necropsy.frame_filter import file_name, is_interpreter, outside_of_python
from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Diagnosis, Evidence, Fix, Frame
from necropsy.predicates import bare_name

Version = tuple[int, int, int]

_MEMORY = ("segfault", "bounds", "use-after-free")
_HEAP = ("write", "bounds", "double-free", "use-after-free", "segfault")
_VAGUE = ("overflow", "crash")
"""What an advisory says that names no kind: such a fault can end in many ways."""
KINDS: dict[str, tuple[str, ...]] = {
    "null-dereference": ("null", "segfault", "bounds", "read", "write", "use-after-free", *_VAGUE),
    "invalid-read": ("read", *_MEMORY, "uninitialized", *_VAGUE),
    "invalid-write": ("write", *_MEMORY, *_VAGUE),
    "write-to-readonly": ("write",),
    "misaligned-access": ("segfault",),
    "damaged-object": ("use-after-free", "null", "write", *_MEMORY, *_VAGUE),
    "interpreter-bug": ("use-after-free", "null", "read", "write", *_MEMORY, *_VAGUE),
    "invalid-array-view": ("read", "write", *_MEMORY, *_VAGUE),
    "bad-jump": ("use-after-free", "segfault", "write"),
    "heap-corruption": _HEAP,
    "double-free": _HEAP,
    "heap-buffer-overflow": ("bounds", "write", "read", "segfault"),
    "use-after-free": ("use-after-free", "segfault"),
    "check-failed": ("check", "abort", *_VAGUE),
    "assertion-failed": ("check", "abort"),
    "abort": ("abort", "crash"),
    "uncaught-cpp-exception": ("abort", "memory", *_VAGUE),
    "allocation-failed": ("memory", "abort", *_VAGUE),
    "out-of-memory-killed": ("memory",),
    # Where an exception is made on a thread that does not hold the GIL, what raised it is what was reported.
    "python-without-gil": ("segfault", "abort", *_VAGUE),
    "integer-divide-by-zero": ("division", "crash"),
    "stack-overflow-recursion": ("stack-overflow",),
    "stack-overflow-small-stack": ("stack-overflow",),
    "stack-overflow-large-frame": ("stack-overflow",),
    "hang": ("hang",),
}
"""Rule to the kinds of reported faults that can end so, the most telling first. A rule that is not here fits none."""

_BLAMELESS = {"interpreter-bug": "python", "damaged-object": "python", "invalid-array-view": "numpy"}
"""Rules that blame no library, and whose code met the damage: a bug that was mended there may have made it."""
_NEAR = 16
"""Native frames from the innermost one in which a row's function has to be."""
_SHOWN = 3
_MODULES = {
    "tensorflow": regex(r"tensorflow|tflite", re.IGNORECASE),
    "numpy": regex(
        r"^(?:_multiarray_|_umath_linalg|_pocketfft|_simd|mtrand|_mt19937|_generator|_bounded_integers|_common)"
    ),
    "torch": regex(r"^(?:lib)?(?:torch|c10)(?:_|\.|$)|^_C\."),
    "pyarrow": regex(r"^(?:lib)?(?:arrow|parquet|gandiva)|^lib\.|^_(?:parquet|compute|csv|dataset|json|fs|feather)\."),
    "pandas": regex(
        r"^(?:algos|aggregations|arrays|groupby|hashing|hashtable|index|indexers|indexing|internals|interval|join|json|lib|"
        r"missing|ops|pandas_\w+|parsers|properties|reshape|sparse|tslib|writers|base|ccalendar|conversion|dtypes|fields|"
        r"nattype|np_datetime|offsets|parsing|period|strptime|timedeltas|timestamps|timezones|tzconversion|vectorized)\."
    ),
}
"""Package to the names of its libraries."""
_SITE = regex(r"[/\\](?:site|dist)-packages[/\\](?P<top>[^/\\]+)")
_STDLIB = regex(r"^_?(?:asyncio|ctypes|elementtree|io|json|lsprof|lzma|pickle|socket|sqlite3|ssl|datetime|zoneinfo)\.")
"""Extension modules of CPython's own library."""
_PARTS = 2
"""Dots in a version that is known to the patch: ``3.11`` alone may have any fix of its branch."""
_TITLES = {"tensorflow": "TensorFlow", "numpy": "NumPy", "torch": "PyTorch", "python": "CPython"}
_DISTRIBUTIONS = {
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-intel",
        "intel-tensorflow",
        "tensorflow-rocm",
    ),
}
_RELEASE = regex(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.post\d+|\+[\w.]+)?")


@dataclass(frozen=True)
class Known:
    """One reported fault that fits: its names, where it is told, what was installed, and where it is fixed."""

    row: dict[str, Any]
    package: str
    distribution: str
    installed: str
    version: Version
    """Of the installed package."""
    rank: int
    """How telling its kind is for the verdict; 0 is best."""
    fixed: tuple[Version, ...]


def with_known_fixes(diagnosis: Diagnosis, crash: Crash) -> Diagnosis:
    """The diagnosis, with one piece of evidence and one of advice more where a known and fixed crash fits it."""
    found = known_fixes(crash, diagnosis)
    if not found:
        return diagnosis
    return msgspec.structs.replace(
        diagnosis,
        evidence=(*diagnosis.evidence, _evidence(found)),
        fixes=(_advice(found), *diagnosis.fixes),
        references=(*diagnosis.references, *(one.row["url"] for one in found)),
    )


def known_fixes(crash: Crash, diagnosis: Diagnosis) -> tuple[Known, ...]:
    """The reported faults that fit, the best first and at most three; empty where none does."""
    kinds, culprit = KINDS.get(diagnosis.rule), diagnosis.culprit or Culprit()
    if not kinds:
        return ()
    package = _BLAMELESS.get(diagnosis.rule) or _package(culprit, crash)
    installed = _installed(crash, package) if package is not None else None
    version = released(installed[1]) if installed is not None else None
    if package is None or installed is None or version is None:
        return ()
    fitting = []
    for row in _rows(package):
        fixed = tuple(one for one in map(released, row.get("fixed", ())) if one is not None)
        ranks = [kinds.index(kind) for kind in row.get("kinds", ()) if kind in kinds]
        if not ranks or not is_affected(version, fixed, released(row.get("since", "0.0"))):
            continue
        if _names_fit(row, culprit, crash, package):
            fitting.append(Known(row, package, *installed, version, min(ranks), fixed))
    # Of two that tell as much, the one that needs the newer version first: it has to be installed anyway.
    best = sorted(fitting, key=lambda one: (one.rank, _negative(max(one.fixed))))
    told = [one for one in best if kinds[one.rank] not in _VAGUE]
    return tuple(told or best)[:_SHOWN]


def is_affected(installed: Version, fixed: Sequence[Version], since: Version | None = None) -> bool:
    """Whether a version lacks the fix: it is older than the fix in its own branch, or its branch never got one.

    >>> is_affected((2, 3, 0), ((2, 3, 3), (2, 5, 0)))
    True
    >>> is_affected((2, 4, 4), ((2, 3, 3), (2, 4, 2)))
    False
    """
    if since is not None and installed < since:
        return False
    branch = [one for one in fixed if one[:2] == installed[:2]]
    return installed < min(branch) if branch else any(one > installed for one in fixed)


def released(text: str) -> Version | None:
    """``2.11`` and ``2.1.0+cpu`` as three numbers; None for a pre-release: it may have the fix or not."""
    match = _RELEASE.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def _rows(package: str) -> Iterable[dict[str, Any]]:
    if package != "tensorflow":
        return [row for row in table("fixed_crashes.toml")["row"] if row["package"] == package]
    found = table("tensorflow_advisories.json")
    return ({**row, "url": f"{found['source']}/{row['id'].lower()}.md"} for row in found["advisories"])


def _package(culprit: Culprit, crash: Crash) -> str | None:
    if culprit.module is None:
        return None
    name = file_name(culprit.module)
    paths = [one.path for one in crash.modules or () if file_name(one.path) == name]
    tops = {match["top"].removesuffix(".libs") for path in paths if (match := _SITE.search(path))}
    fitting = [
        package
        for package in (*_MODULES, "python")
        # Several packages have a library called lib.so: where its folder is known, that decides.
        if (package in tops if tops else _is_of(name, package)) and _installed(crash, package) is not None
    ]
    return fitting[0] if len(fitting) == 1 else None


def _installed(crash: Crash, package: str) -> tuple[str, str] | None:
    """The distribution's name and version; None if unknown or not a release."""
    found = {**(crash.libraries or {}), **((crash.environment.packages if crash.environment else None) or {})}
    if package == "python":
        found = {"python": crash.environment.python} if crash.environment and crash.environment.python else {}
    names = [name for name in _DISTRIBUTIONS.get(package, (package,)) if name in found]
    if len({found[name] for name in names}) != 1:
        return None
    version = found[names[0]]
    return (names[0], version) if version.count(".") >= _PARTS and released(version) is not None else None


def _names_fit(row: dict[str, Any], culprit: Culprit, crash: Crash, package: str) -> bool:
    operation = crash.operation
    lite = operation is not None and operation.framework == "tflite"
    if bool(row.get("lite")) != lite:
        return False
    op = operation.op if operation is not None else culprit.op
    kernel = operation.kernel if operation is not None else culprit.kernel
    wanted = {_plain(name) for name in (op, *_without_op(kernel)) if name}
    names = [*row.get("ops", ()), *(row.get("functions", ()) if lite else ())]
    if wanted & {_plain(name) for name in names}:
        return True
    wanted |= {re.sub(r"v\d+$", "", name) for name in wanted}
    if any(fnmatchcase(one, name) for api in row.get("apis", ()) for name in _ops_of(api) for one in wanted):
        return True
    return not lite and any(
        _is_function(frame, name, package) for name in row.get("functions", ()) for frame in _near(crash)
    )


def _plain(name: str) -> str:
    """``aten::add``, ``tf.strings.substr`` and ``Substr`` without namespaces, in lower case."""
    return re.split(r"::|\.", name)[-1].replace("_", "").lower()


def _ops_of(api: str) -> tuple[str, str]:
    """Possible op names: ``tf.strings.substr`` runs Substr, ``tf.sparse.cross`` SparseCrossV2."""
    return _plain(api), "".join(api.split(".")[-2:]).replace("_", "").lower()


def _without_op(kernel: str | None) -> Iterator[str]:
    """The op in a kernel class's name: ``QuantizedMulOp<...>`` of ``QuantizedMul``."""
    if kernel:
        name = bare_name(kernel).split("::")[-1]
        yield name.removesuffix("Op")


def _near(crash: Crash) -> tuple[Frame, ...]:
    thread = crash.crashed_thread
    return outside_of_python((thread.frames or ())[:_NEAR]) if thread is not None else ()


def _is_function(frame: Frame, name: str, package: str) -> bool:
    """``name`` may lack namespaces; ``*`` matches any letters."""
    if frame.function is None or frame.module is None or frame.found_by == "scan" or not _is_of(frame.module, package):
        return False
    parts = bare_name(frame.function).split("::")
    return fnmatchcase("::".join(parts[-1 - name.count("::") :]), name)


def _is_of(module: str, package: str) -> bool:
    name = file_name(module)
    if package == "python":
        return is_interpreter(Frame(index=0, kind="native", module=name)) or _STDLIB.search(name) is not None
    return _MODULES[package].search(name) is not None


def _evidence(found: Sequence[Known]) -> Evidence:
    first = found[0]
    told = [
        f"{_called(one)}, fixed in {_title(first)} {_listed([_spelled(version) for version in one.fixed])}"
        for one in found
    ]
    return Evidence(
        claim="reported and fixed elsewhere",
        seen=f"this fits {'; and '.join(told)}; installed: {first.installed}",
        where="TensorFlow's security advisories"
        if first.package == "tensorflow"
        else f"{_title(first)}'s issue tracker",
    )


def _advice(found: Sequence[Known]) -> Fix:
    first = found[0]
    newest = max(max(one.fixed) for one in found)
    least = _least(found)
    version = f"{_spelled(newest)} or later"
    if least != newest:
        version = f"{_spelled(least)} or a later {least[0]}.{least[1]}.x, or {version}"
    names = _listed([str(one.row["id"]) for one in found])
    text = f"Install {_title(first)} {version}: it has the fix of {names}, which this crash fits."
    if first.package == "python":
        return Fix(text=text)
    condition = f"~={_spelled(least)}" if least != newest else f">={_spelled(newest)}"
    return Fix(text=text, command=f"pip install '{first.distribution}{condition}'")


def _least(found: Sequence[Known]) -> Version:
    """The smallest upgrade with every fix, mostly a patch release of the installed branch."""
    some = sorted({version for one in found for version in one.fixed if version > found[0].version})
    return next(version for version in some if not any(is_affected(version, one.fixed) for one in found))


def _called(one: Known) -> str:
    return f"{one.row['id']} ({one.row['cve']})" if one.row.get("cve") else str(one.row["id"])


def _title(one: Known) -> str:
    return _TITLES.get(one.package, one.package)


def _spelled(version: Version) -> str:
    return ".".join(map(str, version))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _negative(version: Version) -> tuple[int, ...]:
    return tuple(-part for part in version)
