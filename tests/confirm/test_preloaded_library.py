"""The libraries that are kept built are those of their sources, and load wherever a wheel for manylinux2014 does."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="what is preloaded is for Linux on x86-64"
    ),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("nm")), reason="this builds libraries"),
]

PRELOAD = Path(__file__).parents[2] / "src/necropsy/confirm/preload"
SOURCES = sorted(path.stem for path in PRELOAD.glob("*.c"))
MANYLINUX2014 = (2, 17)


def symbols(library: Path) -> set[tuple[str, str]]:
    """What it gives (``T``) and what it asks for (``U``), with versions."""
    text = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    return {(kind, name) for kind, name in re.findall(r"^[ 0-9a-f]* ([TU]) (\S+)$", text, re.MULTILINE)}


def test_each_is_kept_built() -> None:
    assert SOURCES
    assert sorted(path.name for path in PRELOAD.glob("*.so")) == [f"{name}-x86_64.so" for name in SOURCES]


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_kept_is_what_the_source_says(name: str, tmp_path: Path) -> None:
    shutil.copytree(PRELOAD, tmp_path / "preload")
    (tmp_path / "preload" / f"{name}-x86_64.so").unlink()
    makefile = Path(__file__).parents[2] / "Makefile"
    subprocess.run(["make", "-s", "-f", makefile, "preload", "PRELOAD=preload"], cwd=tmp_path, check=True)
    kept = symbols(PRELOAD / f"{name}-x86_64.so")
    assert any(kind == "T" for kind, _ in kept)
    assert kept == symbols(tmp_path / "preload" / f"{name}-x86_64.so")


@pytest.mark.parametrize("name", SOURCES)
def test_it_asks_for_no_newer_c_library(name: str) -> None:
    asked = [one for kind, one in symbols(PRELOAD / f"{name}-x86_64.so") if kind == "U"]
    versions = [re.fullmatch(r"\w+@GLIBC_(\d+)\.(\d+)(?:\.\d+)?", one) for one in asked]
    assert versions
    assert all(version and (int(version[1]), int(version[2])) <= MANYLINUX2014 for version in versions), asked
