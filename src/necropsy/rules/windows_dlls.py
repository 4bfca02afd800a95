"""DLLs of packages on Windows that are found nowhere, or of which another copy is taken than the package's own."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Iterator

from necropsy.model import Dll, DllNeed, Environment, Evidence, Fix, Severity
from necropsy.rule import Finding
from necropsy.rules import packages, quoting

_OF_OTHER_RULES = re.compile(
    # Microsoft's C++ runtime, Python's own library, what comes with a GPU's driver, and CUDA's libraries.
    r"(?:msvcp140|vcruntime140|concrt140|vccorlib140|vcomp140|python3\d*t?(?:_d)?\.dll|nvcuda|nvml|nvapi|nvcuvid|nvoptix|opencl"
    r"|vulkan-1|amdhip64|ze_loader|cudart|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nvrtc|nvjitlink|nvtoolsext|nvjpeg"
    r"|nccl|nvinfer|cutensor)"
)
_MEDIA = re.compile(r"(?:mf|mfplat|mfreadwrite|mfcore|evr|avicap32|msvfw32)\.dll")
_OPTIONAL = re.compile(
    r"/plugins?/|/qml/|/sqldrivers/|/tests?/|/(?:_tkinter|_?qt\w*)\.pyd$|plugin\w*\.dll$", re.IGNORECASE
)

Use = tuple[Dll, DllNeed]


def missing(environment: Environment) -> Iterator[Finding]:
    """What is loaded together with a package's file, and lies in none of the folders that are searched."""
    files = _own(environment)
    needed = _with_extensions(environment)
    uses: dict[str, list[Use]] = {}
    for one in files:
        for need in one.imports:
            if _OF_OTHER_RULES.match(need.name) or need.delayed:
                continue
            if need.path is None or (need.by == "PATH" and _is_unreached(environment, one)):
                uses.setdefault(need.name, []).append((one, need))
    for name, rows in sorted(uses.items()):
        yield _missing(environment, name, sorted(rows, key=lambda row: row[0].path), needed)


def _own(environment: Environment) -> tuple[Dll, ...]:
    return tuple(one for one in environment.dlls or () if one.distribution is not None)


def _is_unreached(environment: Environment, one: Dll) -> bool:
    """PATH is not searched for extension modules, except by conda's Python."""
    interpreter = environment.interpreter
    return one.path.lower().endswith(".pyd") and (interpreter is None or not interpreter.conda)


def _with_extensions(environment: Environment) -> frozenset[str]:
    """Files loaded with extension modules other than plugins."""
    known = {one.path: one for one in environment.dlls or ()}
    open_ = [one for one in _own(environment) if one.path.lower().endswith(".pyd") and not _is_optional(one)]
    found = {one.path for one in open_}
    while open_:
        for need in open_.pop().imports:
            if need.path is not None and not need.delayed and need.path not in found and need.path in known:
                found.add(need.path)
                open_.append(known[need.path])
    return frozenset(found)


def _is_optional(one: Dll) -> bool:
    return _OPTIONAL.search(one.path.replace("\\", "/")) is not None


def _missing(environment: Environment, name: str, rows: list[Use], needed: frozenset[str]) -> Finding:
    first, need = rows[0]
    more = f" and {len(rows) - 1} more files" if len(rows) > 1 else ""
    who = f"{_owner(environment, first)} needs it (`{ntpath.basename(first.path)}`{more})"
    if need.path is not None:
        summary = f"`{name}` is only on PATH, where extension modules are not looked for since Python 3.8; {who}."
        severity: Severity = "warning"
    else:
        summary = f"`{name}` cannot be found; {who}."
        severity = _severity(rows, needed)
    return Finding(
        evidence=(
            *(Evidence(claim="what needs it", seen=f"imports {name}", where=one.path) for one, _ in rows[:5]),
            Evidence(
                claim="where it was looked for",
                seen="the file's own folder, Python's, those of packages, System32, and PATH",
                where=need.path,
            ),
        ),
        summary=summary,
        confidence="likely" if need.path is not None else "certain",
        severity=severity,
        about=frozenset({f"library {name}"}),
        fixes=_fixes(environment, name, first, need),
    )


def _severity(rows: list[Use], needed: frozenset[str]) -> Severity:
    if any(one.path in needed for one, _ in rows):
        return "error"
    # A DLL that no extension module loads may be one that the package opens where it fits.
    return "note" if all(_is_optional(one) for one, _ in rows) else "warning"


def _fixes(environment: Environment, name: str, first: Dll, need: DllNeed) -> tuple[Fix, ...]:
    folder = ntpath.dirname(first.path)
    if need.path is not None:
        return (
            Fix(
                text=f"Copy it beside `{ntpath.basename(first.path)}`; DLLs that it needs itself have to come along.",
                command=packages.command(environment, ["copy", need.path, folder]),
            ),
            Fix(
                text=f"Or, before the package is imported, call os.add_dll_directory({ntpath.dirname(need.path)!r}) in the program."
            ),
        )
    if _MEDIA.fullmatch(name):
        return (
            Fix(
                text="This Windows lacks its media features. Install them: on Windows Server by this command; on an N edition, "
                "the Media Feature Pack under Settings, Optional features.",
                command='powershell -Command "Install-WindowsFeature Server-Media-Foundation"',
            ),
        )
    return (
        Fix(
            text=f"Install the program that brings it, then copy it to {folder}. Look whether it is there already.",
            command=f'where /R "%ProgramFiles%" {quoting.windows(name, "DLL")}',
        ),
    )


def shadowed(environment: Environment) -> Iterator[Finding]:
    """A file is taken from PATH, from Python's folder or from Windows', though the package brings its own."""
    rows: dict[str, list[Use]] = {}
    for one in _own(environment):
        for need in one.imports:
            if need.otherwise is not None and need.path is not None:
                rows.setdefault(ntpath.dirname(need.path).lower(), []).append((one, need))
    for _, uses in sorted(rows.items()):
        yield _shadowed(environment, uses)


def _shadowed(environment: Environment, uses: list[Use]) -> Finding:
    first, need = uses[0]
    names = sorted({each.name for _, each in uses})
    more = f" and {len(names) - 1} more DLLs" if len(names) > 1 else ""
    versions = {one.path: one.version for one in environment.dlls or ()}

    def told(path: str | None) -> str:
        version = versions.get(path or "")
        return f"{path}" + (f" ({version})" if version else "")

    selects = f"PATH selects `{need.path}`" if need.by == "PATH" else f"`{need.path}`, in {need.by}, is found first"
    return Finding(
        evidence=tuple(
            Evidence(
                claim=f"`{each.name}` of {one.path}" + (", when it is used first" if each.delayed else ""),
                seen=f"{told(each.path)}, and not {told(each.otherwise)}",
                where=each.by,
            )
            for one, each in uses[:5]
        ),
        summary=f"{selects}{more}; {_owner(environment, first)} brings `{need.otherwise}`.",
        confidence="likely",
        about=frozenset({f"file {each.path}" for _, each in uses}),
        fixes=tuple(_unshadow(environment, uses)),
    )


def _unshadow(environment: Environment, uses: list[Use]) -> Iterator[Fix]:
    need = uses[0][1]
    if need.by == "PATH":
        known = {name.upper(): value for name, value in (environment.variables or {}).items()}
        # To remove the other folder would not do: the package's own is not searched for what is found by PATH.
        value = ";".join(
            [*dict.fromkeys(ntpath.dirname(each.otherwise or "") for _, each in uses), known.get("PATH", "")]
        )
        yield Fix(
            text="Put the package's own folder in front of PATH for this program (cmd.exe).",
            command=f'set "PATH={value}"' if not set(value) & set('%"^!') else None,
        )
    elif any(each.delayed for _, each in uses):
        yield Fix(
            text=f"Open the package's own copy before it is used, which is then taken: ctypes.CDLL({need.otherwise!r})."
        )
    else:
        for one in sorted({each.path or "" for _, each in uses}):
            admin = " (as administrator)" if need.by != "Python's folder" else ""
            yield Fix(
                text=f"Give the copy in {need.by} another name{admin}, unless another program needs it.",
                command=packages.command(environment, ["ren", one, f"{ntpath.basename(one)}.off"]),
            )


def _owner(environment: Environment, dll: Dll) -> str:
    one = environment.distribution(dll.distribution or "")
    return f"{one.name} {one.version}" if one is not None else f"`{dll.path}`"
