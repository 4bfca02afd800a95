"""A CPython that is linked with musl, built from Debian's sources on an x86-64 machine; with necropsy installed by pip.

What it needs of others (zlib, libffi) is built too; both, and this Python, see musl's headers and the kernel's only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from debian_packages import apt_options

PLACE = "NECROPSY_MUSL"
"""The environment variable with the folder to build in; ``make test-musl`` sets it."""
VERSION = "3.11"
_SUITE = "bookworm"
_SOURCES = ("zlib", "libffi", f"python{VERSION}")
_HEADERS = {"linux": "linux", "asm-generic": "asm-generic", "asm": "x86_64-linux-gnu/asm"}
_WRAPPER = """#!/bin/sh
case "$*" in *-print-multiarch*) echo x86_64-linux-musl; exit;; esac
exec musl-gcc "$@" -idirafter {headers}
"""
_FLAGS = {"zlib": ["--static"], "libffi": ["--disable-shared", "--disable-docs", "--disable-multi-os-directory"]}
_FOR_MUSL = (
    *("--python-version", VERSION, "--implementation", "cp", "--only-binary=:all:"),
    *("--platform", "musllinux_1_2_x86_64", "--platform", "musllinux_1_1_x86_64"),
)
_ROOT = Path(__file__).parents[2]


def made() -> Path:
    """The interpreter, built unless it is there already. Raises subprocess.CalledProcessError where that fails."""
    folder = Path(os.environ[PLACE])
    python = folder / "python/bin/python3"
    if not python.exists():
        folder.mkdir(parents=True, exist_ok=True)
        compiler = _compiler(folder)
        libraries = folder / "libraries"
        with tempfile.TemporaryDirectory(dir=folder) as name:
            sources = _unpacked(folder, Path(name))
            for library, flags in _FLAGS.items():
                _build(sources[library], [f"--prefix={libraries}", *flags], {"CC": compiler, "CFLAGS": "-O2 -fPIC"})
            environment = {
                "CC": compiler,
                "CPPFLAGS": f"-I{libraries}/include",
                "LDFLAGS": f"-L{libraries}/lib",
                "PKG_CONFIG_PATH": f"{libraries}/lib/pkgconfig",
            }
            _build(sources[_SOURCES[-1]], [f"--prefix={python.parents[1]}", "--without-ensurepip"], environment)
    return python


def _compiler(folder: Path) -> str:
    headers = folder / "headers"
    headers.mkdir(exist_ok=True)
    for name, target in _HEADERS.items():
        if not (headers / name).exists():
            (headers / name).symlink_to(f"/usr/include/{target}")
    wrapper = folder / "cc"
    wrapper.write_text(_WRAPPER.format(headers=headers))
    wrapper.chmod(0o755)
    return str(wrapper)


def _unpacked(folder: Path, target: Path) -> dict[str, Path]:
    options = apt_options(folder / "apt", _SUITE, kind="deb-src")
    subprocess.run(["apt-get", "-q", *options, "update"], check=True)
    found = {}
    for name in _SOURCES:
        place = target / name
        place.mkdir()
        subprocess.run(["apt-get", "-q", *options, "--download-only", "source", name], check=True, cwd=place)
        archive = next(one for one in place.glob("*.orig.tar.*") if one.suffix != ".asc")
        subprocess.run(["tar", "-x", "-f", archive], check=True, cwd=place)
        found[name] = next(one for one in place.iterdir() if one.is_dir())
    return found


def _build(source: Path, flags: list[str], environment: dict[str, str]) -> None:
    words = [["./configure", *flags], ["make", "-s", f"-j{os.cpu_count()}"], ["make", "-s", "install"]]
    for command in words:
        log = source / "log"
        with log.open("ab") as output:
            done = subprocess.run(
                command, cwd=source, env={**os.environ, **environment}, stdout=output, stderr=output, check=False
            )
        if done.returncode:
            raise OSError(f"{' '.join(command)} ended with {done.returncode}: {log.read_text()[-2000:]}")


def with_necropsy(python: Path, folder: Path) -> Path:
    """A new virtual environment in ``folder`` with necropsy's wheel for musl; its ``bin``."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=_ROOT,
        env={**os.environ, "NECROPSY_LIBC": "musl"},
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "download", *_FOR_MUSL, "-d", folder, "pip", wheel], check=True)
    environment = folder / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    its = f"{next(folder.glob('pip-*.whl'))}/pip"
    words = ["install", "--quiet", "--no-index", "--find-links", str(folder), "necropsy"]
    subprocess.run([environment / "bin/python3", its, *words], check=True)
    return environment / "bin"
