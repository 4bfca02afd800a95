"""The arenas of CPython's allocator for small objects, held against what the interpreter says of itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.capture.linux.inspect.python_heap import PythonHeap
from necropsy.capture.linux.inspect.resource_use import ResourceReader

# Frees half of the arenas again, so that the count is not the one of the most.
PROGRAM = """
import sys
held = [[one] for one in range(200_000)]
del held[50_000:]
sys._debugmallocstats()
sys.stderr.write("that is all\\n"); sys.stderr.flush()
sys.stdin.read()
"""
_SAID = re.compile(r"^(\d+) arenas \* (\d+) bytes/arena\s+=\s+([\d,]+)$", re.MULTILINE)


def has_symbols(interpreter: str) -> bool:
    """Its file, or its shared library's, has the local symbols; the interpreters of distributions are stripped."""
    folder = Path(interpreter).resolve().parent
    files = [Path(interpreter).resolve(), *folder.parent.glob("lib/libpython3.*.so*")]
    return any(
        name in file.read_bytes() for file in files for name in (b"narenas_highwater\0", b"obmalloc_state_main\0")
    )


def installed(version: str) -> object:
    """An interpreter of this version with symbols, or a mark that says that there is none."""
    found = [
        str(one) for one in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")) if has_symbols(str(one))
    ]
    absent = pytest.mark.skipif(not found, reason=f"no CPython {version} with symbols is installed with pyenv")
    return pytest.param(found[0] if found else "", id=version, marks=absent)


own_symbols = pytest.mark.skipif(
    not has_symbols(sys.executable) or sys.version_info[:2] in {(3, 12), (3, 14)},
    reason="the count of arenas cannot be found in this interpreter: it is stripped, or of 3.12 or 3.14",
)


def said_and_read(interpreter: str, **variables: str) -> tuple[int, int | None, int | None]:
    """What an interpreter says of its arenas, what is read of them, and what a look at the process has."""
    with subprocess.Popen(
        [interpreter, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    ) as other:
        assert other.stderr is not None
        text = "".join(iter(other.stderr.readline, "that is all\n"))
        try:
            read, seen = PythonHeap(other.pid).read()[0], ResourceReader(other.pid).look(0.0).python_heap
        finally:
            other.kill()
    found = _SAID.search(text)
    return int(found[3].replace(",", "")) if found is not None else 0, read, seen


@own_symbols
def test_the_arenas_are_those_that_the_interpreter_counts() -> None:
    said, read, seen = said_and_read(sys.executable)
    assert said > 4 << 20
    assert (read, seen) == (said, said)


@own_symbols
def test_without_arenas_the_heap_is_not_known() -> None:
    assert said_and_read(sys.executable, PYTHONMALLOC="malloc") == (0, None, None)


@pytest.mark.parametrize("interpreter", [installed(version) for version in ("3.8", "3.9", "3.10", "3.13")])
def test_older_and_newer_interpreters(interpreter: str) -> None:
    said, read, seen = said_and_read(interpreter)
    assert said > 4 << 20
    assert (read, seen) == (said, said)


def test_a_program_without_python_has_no_such_heap() -> None:
    with subprocess.Popen(["sleep", "20"]) as other:
        try:
            with pytest.raises(LookupError):
                PythonHeap(other.pid)
            assert ResourceReader(other.pid).look(0.0).python_heap is None
        finally:
            other.kill()


@own_symbols
def test_the_peak_is_the_interpreter_s_own_also_between_two_looks() -> None:
    program = "import sys\nprint(flush=True); input()\nheld = [[one] for one in range(200_000)]; held = None\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        reader = ResourceReader(other.pid)
        before = reader.look(0.0, last=True).python_heap
        other.stdin.write("\n")
        other.stdin.flush()
        other.stdout.readline()
        after = reader.look(1.0, last=True).python_heap
        other.kill()
    assert before is not None
    assert after is not None
    most = reader.peaks().python_heap
    assert most is not None
    assert most >= after + (8 << 20)
