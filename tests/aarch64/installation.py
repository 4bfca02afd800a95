"""Builds necropsy's wheel for AArch64 here, and installs it with pip in the emulated machine, which has no network."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import machine_image
from emulated_machine import Machine
from packaging.requirements import Requirement

COMPILER = "aarch64-linux-gnu-gcc"
FOLDER = "/opt/venv"
"""The virtual environment that it is installed in."""
_ROOT = Path(__file__).parents[2]
_WHEELS = "/opt/wheels"
_LIMIT_S = 1500.0
_THERE = {
    "python_version": machine_image.PYTHON,
    "python_full_version": f"{machine_image.PYTHON}.0",
    "platform_machine": "aarch64",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}
"""What markers of requirements ask for: pip would answer for this machine."""


def install(machine: Machine, cache: Path) -> None:
    """Install it there, with what it requires; ``cache`` keeps that from run to run.

    Raises subprocess.CalledProcessError where it cannot be built, or a wheel cannot be had.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = _built(folder)
        required = _required(wheel, cache / "required")
        machine.put({_WHEELS: required, f"{_WHEELS}/{wheel.name}": wheel})
        compiled = f"{sys.version_info.major}.{sys.version_info.minor}" == machine_image.PYTHON
        pip = f"{_WHEELS}/{next(required.glob('pip-*.whl')).name}/pip"
        words = ["install", "--quiet", "--no-index", "--find-links", _WHEELS, *(["--no-compile"] if compiled else [])]
        _done(machine, "/usr/bin/python3", "-m", "venv", "--without-pip", FOLDER)
        _done(machine, f"{FOLDER}/bin/python3", pip, *words, "necropsy")
        if compiled:
            machine.put(_bytecode([wheel, *required.glob("*.whl")], folder / "compiled"))


def _built(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, env={**os.environ, "CC": COMPILER}, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _required(wheel: Path, cache: Path) -> Path:
    """A folder with pip and what the wheel requires there."""
    with zipfile.ZipFile(wheel) as inside:
        name = next(one for one in inside.namelist() if one.endswith(".dist-info/METADATA"))
        declared = email.message_from_bytes(inside.read(name)).get_all("Requires-Dist", [])
    requirements = [Requirement(str(one)) for one in declared]
    wanted = [f"{one.name}{one.specifier}" for one in requirements if not one.marker or one.marker.evaluate(_THERE)]
    mark = cache / "downloaded"
    if not mark.exists() or mark.read_text() != repr(wanted):
        cache.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "download", *machine_image.FOR_AARCH64]
        subprocess.run([*pip, "-d", str(cache), "pip", *wanted], check=True)
        mark.write_text(repr(wanted))
    return cache


def _bytecode(wheels: list[Path], folder: Path) -> dict[str, bytes | Path]:
    """What pip would compile there, where that takes minutes: the bytecode is the same on every processor."""
    for wheel in wheels:
        if not wheel.name.startswith("pip-"):
            with zipfile.ZipFile(wheel) as inside:
                inside.extractall(folder, [one for one in inside.namelist() if one.endswith(".py")])
    installed = f"{FOLDER}/lib/python{machine_image.PYTHON}/site-packages"
    how = ["--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", installed]
    command = [sys.executable, "-m", "compileall", "-q", *how, str(folder)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return {f"{installed}/{one.relative_to(folder)}": one.read_bytes() for one in folder.rglob("*.pyc")}


def _done(machine: Machine, *words: str) -> None:
    ended = machine.run(*words, limit_s=_LIMIT_S)
    if ended.status != 0:
        raise OSError(f"{' '.join(words)} ended with {ended.status}: {ended.err[-2000:]}")
