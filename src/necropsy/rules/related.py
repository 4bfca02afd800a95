"""Which findings on the environment of a dead process could explain its death.

A broken environment is not the cause of each death in it. Which finding may explain what is in the tables below, by the
names of the rules: a finding that says why the verdict holds (``SAME``); one on a library, where that library is at
fault (``AT_FAULT``); one on a variable that the process's own words name (``SETTINGS``). Rules that are in none of
these tables are not asked about a death. A name may stand here before there is a rule of that name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from necropsy.data import table
from necropsy.frame_filter import file_name, is_interpreter, is_system
from necropsy.model import Crash, Diagnosis, Environment, Evidence, Fix
from necropsy.predicates import frames_of
from necropsy.rule import Finding

_HEAP = ("heap-corruption", "double-free", "use-after-free", "heap-buffer-overflow")
_FAULTS = (
    *_HEAP,
    *("invalid-read", "invalid-write", "null-dereference", "write-to-readonly", "bad-jump", "misaligned-access"),
    *("damaged-object", "interpreter-bug", "pure-virtual-call"),
)
_STACK = ("stack-overflow-small-stack", "stack-overflow-large-frame", "stack-overflow-recursion")

SAME: dict[str, tuple[str, ...]] = {
    "env-cudnn-version-mismatch": ("cudnn-version-mismatch",),
    "env-cudnn-incomplete": ("cudnn-version-mismatch", "cuda-library-missing"),
    "env-cuda-library-missing": ("cuda-library-missing",),
    "env-cuda-library-mixed": ("cudnn-version-mismatch",),
    "env-cuda-driver-missing": ("cuda-driver-too-old",),
    "env-cuda-driver-too-old": ("cuda-driver-too-old",),
    "env-cuda-driver-mismatch": ("cuda-driver-too-old",),
    "env-gpu-arch-unsupported": ("gpu-arch-unsupported",),
    "env-duplicate-openmp": ("duplicate-openmp",),
    "env-numpy-abi-mismatch": ("numpy-abi-mismatch",),
    "env-protobuf-mismatch": ("protobuf-mismatch",),
    "env-static-tls": ("static-tls-exhausted",),
    "env-libstdcxx-too-old": ("libstdcxx-too-old",),
    "env-glibc-too-old": ("libstdcxx-too-old",),
    "op-libstdcxx-too-new": ("libstdcxx-too-old",),
    "op-abi-mismatch": ("op-abi-mismatch",),
    "env-preload": (*_HEAP, "conflicting-libraries", "sanitizer-report"),
    "env-stack-too-small": _STACK,
    "env-address-space-limit": ("allocation-failed", "thread-limit"),
    "env-memory-limit": ("allocation-failed", "out-of-memory-killed"),
    "env-process-limit": ("thread-limit",),
    "env-shared-memory-small": ("shared-memory-exhausted",),
}
"""A rule on environments, and the verdicts that its findings give the reason of, or may give it."""

AT_FAULT: dict[str, tuple[tuple[str, ...], str]] = {
    "env-duplicate-openmp": (_FAULTS, r"/lib(?:gomp|iomp5|omp)[-.]"),
    "env-library-duplicate": ((*_FAULTS, "conflicting-libraries"), r"/lib[^/]+\.so\.\d[^/]*$"),
    "env-cuda-library-mixed": ((*_FAULTS, "conflicting-libraries"), r"/lib(?:cu|nv|nccl)[^/]*$"),
    "env-cudnn-version-mismatch": (_FAULTS, r"/libcudnn[^/]*$"),
    "env-cudnn-incomplete": (_FAULTS, r"/libcudnn[^/]*$"),
    "env-numpy-abi-mismatch": (_FAULTS, r"[/\\](?:site|dist)-packages[/\\]"),
    "env-cpu-features": (("illegal-instruction",), ""),
    "op-cpu-features": (("illegal-instruction",), ""),
}
"""The same, where the finding is on the library at fault, whose path is like this, or on the package that brings it."""

SETTINGS = ("env-variable-misspelt", "env-variable-invalid", "env-variable-conflict", "env-variable-risky")
"""Rules on variables: they may explain any death whose verdict quotes words that name the variable."""

_NEAR = 16
"""Native frames in which the library at fault has to be."""
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def asked_about(crash: Crash, verdict: Diagnosis) -> tuple[str, ...]:
    """The rules on environments that the verdict leaves room for: no others need be loaded."""
    found = [name for name, verdicts in SAME.items() if verdict.rule in verdicts]
    if "LD_PRELOAD" not in _variables(crash):
        found = [name for name in found if name != "env-preload"]
    paths = at_fault(crash, verdict)
    found += [
        name
        for name, (verdicts, pattern) in AT_FAULT.items()
        if verdict.rule in verdicts and any(re.search(pattern, path) for path in paths)
    ]
    return tuple(dict.fromkeys([*found, *(SETTINGS if _named_variables(crash, verdict) else ())]))


def explains(rule: str, finding: Finding, crash: Crash, environment: Environment, verdict: Diagnosis) -> bool:
    """Whether a finding of ``rule`` on the environment could explain the death that ``verdict`` is on."""
    if verdict.rule in SAME.get(rule, ()):
        return True
    texts = (*finding.about, *(text for one in finding.evidence for text in (one.seen, one.where or "")))
    if rule in SETTINGS:
        return any(name in text for name in _named_variables(crash, verdict) for text in texts)
    verdicts, _ = AT_FAULT.get(rule, ((), ""))
    return verdict.rule in verdicts and _is_on(at_fault(crash, verdict), texts, environment, finding.about)


def at_fault(crash: Crash, verdict: Diagnosis) -> tuple[str, ...]:
    """Paths of the blamed or crashed library and its caller, except the C and C++ libraries and the interpreter."""
    modules = crash.modules or ()
    found: list[str] = []
    blamed = verdict.culprit.module if verdict.culprit is not None and not verdict.culprit.nearest else None
    for frame in frames_of(crash)[:_NEAR]:
        if frame.module is None or frame.found_by == "scan" or is_interpreter(frame):
            continue
        if is_system(frame) and frame.module != blamed:
            continue
        name, address = file_name(frame.module), frame.address
        fitting = [one.path for one in modules if file_name(one.path) == name]
        exact = [one.path for one in modules if address is not None and one.low <= address < one.high]
        path = (exact or fitting or [frame.module])[0]
        if path not in found and (exact or len(fitting) < 2):
            found.append(path)
    return tuple(found[:2])


def _is_on(paths: tuple[str, ...], texts: tuple[str, ...], environment: Environment, about: frozenset[str]) -> bool:
    """The finding is on the first of ``paths``, or on a package that contains it.

    A package that others were built for (the finding's subject) is at fault only if one of these called it.
    """
    owners = {one.path: one.distribution for one in environment.libraries or ()}
    for path in paths:
        if any(path in text.split() or f"file {path}" == text for text in texts):
            return True
        package = owners.get(path)
        if package not in about:
            return package is not None and any(text.split()[:1] == [package] for text in texts)
    return False


def _variables(crash: Crash) -> set[str]:
    known = crash.environment.variables if crash.environment is not None else None
    return set(known or ())


def _named_variables(crash: Crash, verdict: Diagnosis) -> set[str]:
    words = "\n".join(one.seen for one in verdict.evidence)
    return _variables(crash) & set(_VARIABLE.findall(words))


def known(environment: Environment) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows of the table whose variable is set, each with its value; an empty value counts as not set."""
    for row in table("variables.toml")["variable"]:
        value = (environment.variables or {}).get(row["name"], "")
        if value.strip():
            yield row, value


def fits(pattern: str, value: str, row: dict[str, Any]) -> bool:
    """The pattern matches the whole value."""
    return re.fullmatch(pattern, value, 0 if row.get("exact") else re.IGNORECASE) is not None


def evidence(name: str, value: str) -> Evidence:
    """The variable as it is set. Only for variables of the table: none of them holds a secret."""
    return Evidence(claim="the variable", seen=f"{name}={value}", where="environment")


def unset(name: str, text: str) -> Fix:
    """Take it out of the shell's environment."""
    return Fix(text=text, command=f"unset {name}")


def export(name: str, value: str, text: str) -> Fix:
    """Give it another value."""
    return Fix(text=text, command=f"export {name}={shlex.quote(value)}")
