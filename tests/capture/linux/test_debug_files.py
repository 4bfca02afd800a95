"""Functions and lines of a stripped library, from debug information in a file of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder
from necropsy.capture.linux.unwind import symbolizer
from necropsy.formats.elf import ElfFile
from necropsy.model import Frame

pytestmark = pytest.mark.skipif(not shutil.which("objcopy"), reason="needs objcopy")

LIBRARY = """
static __attribute__((noinline)) int hidden(volatile int *at) { return *at; }  // line 2
int visible(volatile int *at) { return hidden(at) + 1; }                       // line 3
"""
PROGRAM = """
int visible(volatile int *);
int main(void) { return visible((volatile int *)0x10); }
"""


def run(*words: str | Path) -> None:
    subprocess.run([os.fspath(word) for word in words], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and beside it its library, whose names are in ``apart.debug``."""
    folder = tmp_path_factory.mktemp("apart")
    library = build(folder, LIBRARY, "-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id", name="apart")
    run("objcopy", "--only-keep-debug", library, folder / "apart.debug")
    run("objcopy", "--strip-all", library)
    run("objcopy", f"--add-gnu-debuglink={folder / 'apart.debug'}", library)
    flags = ("-g", "-O0", "-Wl,--no-as-needed", f"-L{folder}", "-lapart", "-Wl,-rpath,$ORIGIN")
    build(folder, PROGRAM, *flags, name="program")
    return folder


@pytest.fixture
def program(made: Path, tmp_path: Path) -> Path:
    """The program, in a folder that a test may change."""
    return shutil.copytree(made, tmp_path / "copy") / "program"


def innermost(program: Path) -> list[Frame]:
    with dying([program]) as death:
        crash = crash_builder.capture(death)
    thread = crash.crashed_thread
    assert thread is not None
    return list((thread.frames or ())[:2])


def place(frame: Frame) -> tuple[str | None, str | None, int | None]:
    return frame.function, frame.source and Path(frame.source).name, frame.line


NAMED = [("hidden", "apart.c", 2), ("visible", "apart.c", 3)]
NAMELESS = [(None, None, None), ("visible", None, None)]


@pytest.mark.parametrize("folder", [".", ".debug"])
def test_the_file_that_the_library_names_is_read(program: Path, folder: str) -> None:
    (program.parent / folder).mkdir(exist_ok=True)
    (program.parent / "apart.debug").rename(program.parent / folder / "apart.debug")
    assert [place(frame) for frame in innermost(program)] == NAMED


def test_the_file_under_the_build_id_is_read(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = program.parent / "root"
    known = ElfFile((program.parent / "libapart.so").read_bytes()).build_id()
    assert known is not None
    (root / ".build-id" / known[:2]).mkdir(parents=True)
    (program.parent / "apart.debug").rename(root / ".build-id" / known[:2] / f"{known[2:]}.debug")
    monkeypatch.setattr(symbolizer, "ROOT", str(root))
    assert [place(frame) for frame in innermost(program)] == NAMED


def test_a_file_of_another_build_names_nothing(program: Path) -> None:
    other = build(program.parent, "int other;", "-g", "-shared", "-fPIC", "-Wl,--build-id", name="other")
    run("objcopy", "--only-keep-debug", other, program.parent / "apart.debug")
    assert [place(frame) for frame in innermost(program)] == NAMELESS


@pytest.mark.parametrize("kind", ["fifo", "empty", "text", "folder", "missing"])
def test_what_is_no_such_file_is_passed_over(program: Path, kind: str) -> None:
    at = program.parent / "apart.debug"
    at.unlink()
    if kind == "fifo":
        os.mkfifo(at)
    elif kind == "folder":
        at.mkdir()
    elif kind != "missing":
        at.write_text("" if kind == "empty" else "no ELF file")
    assert [place(frame) for frame in innermost(program)] == NAMELESS


def test_the_c_librarys_inner_names_are_left_alone(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolizer, "C_LIBRARY", re.compile("libapart"))
    assert [place(frame) for frame in innermost(program)] == NAMELESS


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libc-2.31.so", "ld-linux-x86-64.so.2", "libpthread.so.0"])
def test_which_libraries_are_the_c_librarys(name: str) -> None:
    assert symbolizer.C_LIBRARY.match(name)
    assert not symbolizer.C_LIBRARY.match(name.replace("lib", "libx").replace("ld-", "ldap-"))


def test_a_file_that_is_too_large_is_passed_over(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolizer, "LARGEST", 100)
    assert [place(frame) for frame in innermost(program)] == NAMELESS
