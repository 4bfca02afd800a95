"""Microsoft's C++ runtime is missing on this Windows, or it is older than a package needs.

What happened
-------------
Compiled packages for Windows use DLLs of the *Visual C++ Redistributable*: ``msvcp140.dll``, ``msvcp140_1.dll``, ``vcruntime140_1.dll``. Python brings
``vcruntime140.dll`` only. The copy that would be loaded is missing, or it lacks functions that a package imports. Or it is older than 14.40, and the package
was built with Visual Studio 2022 17.10 or later. Mutexes of that compiler need no call to be initialised: an older runtime reads a null pointer when it locks one.

How to be sure
--------------
``where msvcp140.dll`` lists the copies; the properties of a file show its version. On import: ``DLL load failed: The specified module could not be found``
or ``The specified procedure could not be found``; or the process dies with 0xC0000005 in ``msvcp140.dll``.

How to fix it now
-----------------
Install the newest Redistributable, of which each version serves all programs since 2015: ``winget install --exact --id Microsoft.VCRedist.2015+.x64``. Where
a package brings the old copy, install a newer release of that package.

How to prevent it
-----------------
Install the Redistributable on each machine and in each image; do not copy ``msvcp140.dll`` into folders.

What it is often mistaken for
-----------------------------
A broken package. A ``vcruntime140.dll`` that is older than the package's compiler is normal and does no harm: Python's own copy mostly is.

Sources
-------
- https://learn.microsoft.com/cpp/windows/latest-supported-vc-redist
- https://learn.microsoft.com/cpp/porting/binary-compat-2015-2017
- https://github.com/microsoft/STL/wiki/Changelog
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.model import Dll, DllNeed, Environment, Evidence, Fix, Severity
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, packages

_CPP = "msvcp140"
_CONSTEXPR_MUTEX = (14, 40)
"""The first runtime that locks a mutex which was initialised at compile time."""
_ARCHITECTURES = {"x86": "x86", "ARM64": "arm64"}


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


@dataclass(frozen=True)
class _Broken:
    """An import that would fail: the file's need and the reason."""

    dll: Dll
    need: DllNeed
    kind: str


def _findings(environment: Environment) -> Iterator[Finding]:
    versions = {one.path: one.version for one in environment.dlls or ()}
    causes: dict[tuple[str, str], list[_Broken]] = {}
    for dll in environment.dlls or ():
        for need in dll.imports if dll.distribution is not None else ():
            kind = _kind(dll, need, versions.get(need.path or ""))
            if kind is not None:
                causes.setdefault((kind, need.path or ""), []).append(_Broken(dll, need, kind))
    for (kind, path), broken in sorted(causes.items()):
        yield _finding(environment, kind, broken, versions.get(path))


def _kind(dll: Dll, need: DllNeed, version: str | None) -> str | None:
    """How the import fails, or None. cuDNN, which is among the imports, has its own rules."""
    if not need.name.startswith((_CPP, "vcruntime140", "concrt140", "vccorlib140", "vcomp140")):
        return None
    if need.path is None:
        return "absent"
    if need.lacking:
        return "lacking"
    have, built = compatibility.version(version or ""), compatibility.version(dll.linker or "")
    if need.name != f"{_CPP}.dll" or have is None or built is None or built[:1] != (14,):
        return None
    if have[:2] < _CONSTEXPR_MUTEX <= built[:2] and _locks_without_initialising(need):
        return "mutex"
    # Of Visual Studio 2015, 2017, 2019; since 2022, only some releases change what older ones do not know.
    return "older" if have[:1] == (14,) and have[1] // 10 < min(built[1] // 10, 3) else None


def _locks_without_initialising(need: DllNeed) -> bool:
    """Code compiled for old runtimes too initialises each mutex by a call."""
    return "_Mtx_lock" in need.functions and "_Mtx_init_in_situ" not in need.functions


_EFFECTS: dict[str, tuple[str, Severity]] = {
    "absent": ("importing it fails", "error"),
    "lacking": ("importing it fails", "error"),
    "mutex": ("a null pointer is read when it locks a mutex (0xC0000005)", "error"),
    "older": ("Microsoft asks for a runtime that is at least as new as the compiler", "note"),
}


def _finding(environment: Environment, kind: str, broken: list[_Broken], version: str | None) -> Finding:
    first = broken[0]
    names = sorted({one.need.name for one in broken})
    effect, severity = _EFFECTS[kind]
    one = environment.distribution(first.dll.distribution or "")
    who = f"{one.name} {one.version}" if one is not None else first.dll.path
    file = f"`{first.need.path}`" + (f" ({version})" if version else "")
    problem = {
        "absent": f"{' and '.join(f'`{name}`' for name in names)} cannot be found, and {who} needs {'it' if len(names) == 1 else 'them'}",
        "lacking": f"{file} is too old for {who}: it lacks `{(first.need.lacking or ('',))[0]}`",
        "mutex": f"{file} is too old for {who}, which was built with {first.dll.linker}",
        "older": f"{file} is older than the compiler of {who} ({first.dll.linker})",
    }[kind]
    return Finding(
        evidence=tuple(_evidence(broken, version)),
        summary=f"{problem}: {effect}.",
        confidence="likely" if kind == "mutex" else "certain",
        severity=severity,
        about=frozenset(
            {f"library {name}" for name in names} | ({f"file {first.need.path}"} if first.need.path else set())
        ),
        fixes=(_fix(environment, first.need),),
    )


def _evidence(broken: list[_Broken], version: str | None) -> Iterator[Evidence]:
    for one in broken[:3]:
        lacking = f" {', '.join(one.need.lacking[:3])} of" if one.need.lacking else ""
        seen = f"imports{lacking} {one.need.name}; built with Microsoft's linker {one.dll.linker}"
        yield Evidence(claim="what needs it", seen=seen, where=one.dll.path)
    need = broken[0].need
    if need.path is None:
        yield Evidence(
            claim="the copy that would be loaded", seen="none in its own folder, Python's, System32 and PATH"
        )
    else:
        yield Evidence(
            claim="the copy that would be loaded",
            seen=f"version {version or 'unknown'}, found in {need.by}",
            where=need.path,
        )


def _fix(environment: Environment, need: DllNeed) -> Fix:
    brings = next((one.distribution for one in environment.dlls or () if one.path == need.path), None)
    if brings is not None:
        one = environment.distribution(brings)
        text = f"{brings} brings the old copy: install its newest release, or remove it."
        return packages.upgrade(environment, [brings], text, like=one)
    interpreter = environment.interpreter
    if interpreter is not None and interpreter.conda and need.by in {"Python's folder", "conda's folder", None}:
        text = "Install conda's newest copy of the runtime."
        command = packages.command(
            environment, ["conda", "update", "--prefix", interpreter.prefix or "", "vs2015_runtime"]
        )
        return Fix(text=text, command=command)
    kind = _ARCHITECTURES.get((interpreter.machine if interpreter is not None else None) or "", "x64")
    text = "Install the newest Visual C++ Redistributable"
    if need.by == "Python's folder":
        text += f", and remove the old copy `{need.path}`"
    return Fix(text=f"{text}.", command=f"winget install --exact --id Microsoft.VCRedist.2015+.{kind}")


RULE = Rule(
    _match,
    title="Microsoft's C++ runtime is missing or too old",
    needs=("dlls",),
    occurs=Occurs(linux=NEVER, macos=NEVER),
    checks="Microsoft's C++ runtime",
    hit="""
        python 3.11.9 AMD64 win32
        distribution onnxruntime 1.22.0 checked
        dll C:/env/Lib/site-packages/onnxruntime/capi/onnxruntime.dll of onnxruntime linker 14.44
        dll-imports msvcp140.dll C:/Windows/System32/msvcp140.dll by System32 functions _Mtx_lock,_Mtx_unlock
        dll C:/Windows/System32/msvcp140.dll version 14.29.30139.0
    """,
    miss="""
        python 3.11.9 AMD64 win32
        distribution onnxruntime 1.22.0 checked
        dll C:/env/Lib/site-packages/onnxruntime/capi/onnxruntime.dll of onnxruntime linker 14.44
        dll-imports msvcp140.dll C:/Windows/System32/msvcp140.dll by System32 functions _Mtx_lock,_Mtx_unlock
        dll-imports vcruntime140.dll C:/Python311/vcruntime140.dll by Python
        dll C:/Windows/System32/msvcp140.dll version 14.42.34433.0
        dll C:/Python311/vcruntime140.dll version 14.38.33126.1
    """,
)
