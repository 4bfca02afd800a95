"""What a wheel was built for, by its tags (PEP 425), against the interpreter that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Fix, Interpreter
from necropsy.rules import packages

_CPYTHON = re.compile(r"cp(\d)(\d+)")


def _split(tags: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Expands compressed sets."""
    for tag in tags:
        parts = tag.split("-")
        if len(parts) == 3:
            yield from (
                (python, abi, platform)
                for python in parts[0].split(".")
                for abi in parts[1].split(".")
                for platform in parts[2].split(".")
            )


def fits_python(tags: tuple[str, ...], interpreter: Interpreter) -> bool:
    """One of the tags is for this interpreter's version and ABI, whatever the platform; or none can be read."""
    split = list(_split(tags))
    return not split or any(_python(python, abi, interpreter) for python, abi, _ in split)


def _python(python: str, abi: str, interpreter: Interpreter) -> bool:
    major, minor = (int(part) for part in interpreter.version.split(".")[:2])
    match = _CPYTHON.fullmatch(python)
    if match is None:
        generic = re.fullmatch(r"py(\d)(\d*)", python)
        if generic is None:
            return interpreter.implementation != "cpython"  # another implementation's own tag: not judged
        wanted = (int(generic[1]), int(generic[2] or 0))
        return wanted[0] == major and wanted[1] <= minor and _abi(abi, interpreter, major, minor)
    if interpreter.implementation != "cpython":
        return False
    built = (int(match[1]), int(match[2]))
    if abi == "abi3":
        return built <= (major, minor) and not interpreter.free_threaded
    if abi == "none":
        return built <= (major, minor)
    return built == (major, minor) and _abi(abi, interpreter, major, minor)


def _abi(abi: str, interpreter: Interpreter, major: int, minor: int) -> bool:
    if abi in {"none", "abi3"}:
        return True
    match = re.fullmatch(rf"cp{major}{minor}([a-z]*)", abi)
    return match is not None and ("t" in match[1]) == interpreter.free_threaded


def fits_platform(tags: tuple[str, ...], interpreter: Interpreter) -> bool:
    """One of the tags is for this system and processor; or none can be read."""
    split = list(_split(tags))
    return not split or any(_platform(platform, interpreter) for _, _, platform in split)


def _platform(platform: str, interpreter: Interpreter) -> bool:
    machine, system = (interpreter.machine or "").lower(), interpreter.system
    if platform == "any" or not machine or system is None:
        return True
    if system == "linux":
        glibc = (interpreter.libc or "").startswith("glibc")
        if platform.startswith("musllinux"):
            return not glibc and platform.endswith(machine)
        return platform.startswith(("manylinux", "linux")) and platform.endswith(machine)
    if system == "win32":
        return platform in {"amd64": {"win_amd64"}, "arm64": {"win_arm64", "win_amd64"}, "x86": {"win32"}}.get(
            machine, {"win32", "win_amd64", "win_arm64"}
        )
    if system == "darwin":
        return platform.startswith("macosx")
    return True


def pythons(tags: tuple[str, ...]) -> str:
    """``CPython 3.9``"""
    names = dict.fromkeys(
        f"CPython {match[1]}.{match[2]}" if (match := _CPYTHON.fullmatch(python)) else python
        for python, _, _ in _split(tags)
    )
    free = any(re.fullmatch(r"cp\d+t", abi) for _, abi, _ in _split(tags))
    return ", ".join(names) + (" without the GIL" if free else "")


def platforms(tags: tuple[str, ...]) -> str:
    """``win_amd64``"""
    return ", ".join(dict.fromkeys(platform for _, _, platform in _split(tags)))


def spelled(interpreter: Interpreter) -> str:
    """``CPython 3.11.7``"""
    name = interpreter.markers.get("platform_python_implementation", "CPython")
    return f"{name} {interpreter.version}{' without the GIL' if interpreter.free_threaded else ''}"


def file_of(one: Distribution) -> str | None:
    """The WHEEL file beside its metadata."""
    return None if one.metadata is None else f"{one.metadata.rpartition('/')[0]}/WHEEL"


def for_this_python(environment: Environment, one: Distribution) -> Fix:
    """Get it out of the way where it comes from PYTHONPATH, else install it again."""
    interpreter = environment.interpreter
    if interpreter is not None and one.location in interpreter.python_path:
        return Fix(
            text="It comes from PYTHONPATH, a folder of another Python's packages: take that folder out of it.",
            command="unset PYTHONPATH",
        )
    return packages.again(environment, one, "Install it for this interpreter.")
