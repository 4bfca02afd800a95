"""Two settings contradict each other.

What happened
-------------
Two variables ask for different things, or one asks for something that is not installed. One of them has no effect, or the program ends when it is asked for
what the other has taken away.

How to be sure
--------------
Print both: ``env | grep -E 'OMP|KMP|CUDA|JAX|KERAS|TF_'``. Intel's OpenMP runtime says which of two it ignores.

How to fix it now
-----------------
``unset NAME`` for the one that is not meant, or install what is missing.

How to prevent it
-----------------
Set variables in one place. Start-up files, conda environments and job scripts each add their own.

What it is often mistaken for
-----------------------------
A driver problem: with ``CUDA_VISIBLE_DEVICES=-1`` every framework says that there is no GPU.

Sources
-------
- https://openmp.llvm.org/design/Runtimes.html#environment-variables
- https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
- https://keras.io/getting_started/#configuring-your-backend
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Fix, Severity
from necropsy.rule import Finding, Rule, several
from necropsy.rules import related

_TRUE = frozenset({"1", "true", "True"})


def _match(environment: Environment) -> Finding | None:
    values = environment.variables or {}
    return several([*_between(values), *_not_installed(environment, values), *_repeated_flags(values)])


def _between(values: dict[str, str]) -> Iterator[Finding]:
    hidden = values.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in {"", "-1"} and _asks_for_cuda(values.get("JAX_PLATFORMS", "")):
        yield _finding(
            values,
            ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"),
            "JAX_PLATFORMS asks for a GPU, and CUDA_VISIBLE_DEVICES hides all of them: JAX does not start.",
            "error",
        )
    if {values.get(name) for name in ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT")} == {"1"}:
        yield _finding(
            values,
            ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT"),
            "One variable forbids compiled kernels and the other forbids compiling them: no kernel can be loaded.",
            "error",
        )
    most, wanted = (values.get(name, "").strip() for name in ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS"))
    if most.isdigit() and wanted.isdigit() and 0 < int(most) < int(wanted):
        yield _finding(
            values,
            ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS"),
            f"OMP_NUM_THREADS asks for {wanted} threads, and OMP_THREAD_LIMIT allows {most}.",
        )


def _asks_for_cuda(platforms: str) -> bool:
    names = {one.strip().lower() for one in platforms.split(",") if one.strip()}
    return bool(names) and names <= {"cuda", "gpu", "rocm"}


def _not_installed(environment: Environment, values: dict[str, str]) -> Iterator[Finding]:
    installed = {one.name: one.version for one in environment.distributions or ()}
    framework = next((name for name in ("tensorflow", "tensorflow-cpu") if name in installed), None)
    legacy = values.get("TF_USE_LEGACY_KERAS") in _TRUE and "tf-keras" not in installed
    if framework and legacy and _keras_3(installed[framework]):
        minor = ".".join(installed[framework].split(".")[:2])
        yield _finding(
            values,
            ("TF_USE_LEGACY_KERAS",),
            f"TF_USE_LEGACY_KERAS asks for Keras 2, and tf_keras is not installed: `tf.keras` raises ImportError in {framework} {installed[framework]}.",
            "error",
            _install(environment, f"tf-keras~={minor}.0"),
        )
    backend = values.get("KERAS_BACKEND", "")
    packages = {"jax": ("jax",), "torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu")}.get(backend, ())
    if packages and "keras" in installed and installed["keras"].startswith("3.") and not installed.keys() & {*packages}:
        yield _finding(
            values,
            ("KERAS_BACKEND",),
            f"KERAS_BACKEND asks for {backend}, which is not installed: `import keras` fails.",
            "error",
        )


def _keras_3(version: str) -> bool:
    """TensorFlow from 2.16 on comes with Keras 3."""
    parts = version.split(".")
    return len(parts) > 1 and all(one.isdigit() for one in parts[:2]) and (int(parts[0]), int(parts[1])) >= (2, 16)


def _install(environment: Environment, requirement: str) -> tuple[Fix, ...]:
    command = f"{shlex.quote(environment.executable or 'python')} -m pip install {shlex.quote(requirement)}"
    return (Fix(text="Install it.", command=command),)


def _repeated_flags(values: dict[str, str]) -> Iterator[Finding]:
    for name in ("XLA_FLAGS", "TF_XLA_FLAGS"):
        found: dict[str, str] = {}
        try:
            words = shlex.split(values.get(name, ""))
        except ValueError:
            continue
        for word in words:
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("--") and found.setdefault(flag, value) != value:
                left = [one for one in words if one.partition("=")[0] != flag]
                yield _finding(
                    values,
                    (name,),
                    f"{flag} stands twice in {name}, as {found[flag]} and as {value}.",
                    fixes=(related.export(name, " ".join([*left, word]), "Keep one of them, here the last."),),
                )


def _finding(
    values: dict[str, str],
    names: tuple[str, ...],
    summary: str,
    severity: Severity = "warning",
    fixes: tuple[Fix, ...] = (),
) -> Finding:
    return Finding(
        evidence=tuple(related.evidence(name, values.get(name, "")) for name in names),
        summary=summary,
        confidence="certain",
        severity=severity,
        about=frozenset(f"conflict {name}" for name in names),
        fixes=fixes or (related.unset(names[0], "Unset the one that is not meant, here the first."),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("variables", "distributions"),
    checks="settings that contradict each other",
    hit="""
        variable OMP_NUM_THREADS 8
        variable OMP_THREAD_LIMIT 4
    """,
    miss="""
        variable OMP_NUM_THREADS 4
        variable OMP_THREAD_LIMIT 8
    """,
)
