"""Which DLL is missing: told from import tables of programs that MinGW builds, on any system."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import wine
from crashers.windows import build
from necropsy.capture.windows import missing_dll

pytestmark = pytest.mark.skipif(not build.available(), reason="MinGW is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``outer.dll``, which imports ``inner.dll``."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "inner.c").write_text("__declspec(dllexport) int inner(void) { return 1; }")
    (folder / "outer.c").write_text("int inner(void);\n__declspec(dllexport) int outer(void) { return inner(); }")
    inner = wine.mingw(folder / "inner.c", "-shared")
    shutil.copy(inner, folder / "inner.dll")
    shutil.copy(wine.mingw(folder / "outer.c", "-shared", f"-L{folder}", "-l:inner.dll"), folder / "outer.dll")
    return folder


def system(tmp_path: Path) -> Path:
    """A folder that has what every program imports."""
    folder = tmp_path / "System32"
    folder.mkdir()
    for name in ("KERNEL32.dll", "msvcrt.dll", "kernel32.dll"):
        (folder / name).touch()
    return folder


def test_one_that_a_library_needs_is_found_missing(library: Path, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    shutil.copy(library / "outer.dll", tmp_path / "app")
    folders = (tmp_path / "app", system(tmp_path))
    assert missing_dll.not_found(tmp_path / "app" / "outer.dll", folders) == (("inner.dll", "outer.dll"),)
    shutil.copy(library / "inner.dll", tmp_path / "app")
    assert missing_dll.not_found(tmp_path / "app" / "outer.dll", folders) == ()


def test_what_imports_cannot_be_read_of_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.dll").write_text("no image")
    assert missing_dll.not_found(tmp_path / "text.dll", ()) == ()
    assert missing_dll.not_found(tmp_path / "absent.exe", ()) == ()


def test_folders_are_searched_in_windows_order() -> None:
    variables = {"SystemRoot": "W:", "Path": 'one;"two words";;three'}
    names = [str(one).replace("\\", "/") for one in missing_dll.places(Path("bin/app.exe"), variables, "here")]
    assert names == ["bin", "W:/System32", "W:/System", "W:", "here", "one", "two words", "three"]
