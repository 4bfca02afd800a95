"""Which compiler builds a source with the sanitizers, by what is on ``PATH``: the compilers here are scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from necropsy.errors import NecropsyError
from necropsy.fuzz.sanitizing_compilers import SanitizingCompiler, sanitizing_compiler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the compilers are shell scripts")

SCRIPT = """#!/bin/sh
case "$1" in
  {known}) echo /lib/{name} ;;
  *) echo "${{1#*=}}" ;;
esac
"""


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def add(folder: Path, compiler: str, *, finding: str) -> None:
    """A compiler that finds one file."""
    (folder / compiler).write_text(SCRIPT.format(known=f"-print-*={finding}", name=finding))
    (folder / compiler).chmod(0o755)


GCC = SanitizingCompiler("gcc", "g++", "/lib/libasan.so")
CLANG = SanitizingCompiler("clang", "clang++", "/lib/libclang_rt.asan-x86_64.so")


def test_gcc_comes_first(commands: Path) -> None:
    add(commands, "clang++", finding="libclang_rt.asan-x86_64.so")
    assert sanitizing_compiler() == CLANG
    add(commands, "g++", finding="libasan.so")
    assert sanitizing_compiler() == GCC


def test_one_without_a_runtime_does_not_count(commands: Path) -> None:
    add(commands, "g++", finding="libstdc++.so")
    add(commands, "clang++", finding="libclang_rt.asan-x86_64.so")
    assert sanitizing_compiler() == CLANG


def test_clang_does_not_use_the_runtime_of_gcc(commands: Path) -> None:
    add(commands, "clang++", finding="libasan.so")
    with pytest.raises(
        NecropsyError, match=r"AddressSanitizer runtime of clang\+\+ \(libclang_rt.asan\) is not installed"
    ):
        sanitizing_compiler()


def test_cxx_chooses(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(commands, "g++", finding="libasan.so")
    add(commands, "clang++-14", finding="libclang_rt.asan.so")
    monkeypatch.setenv("CXX", "clang++-14")
    assert sanitizing_compiler() == SanitizingCompiler("clang", "clang++-14", "/lib/libclang_rt.asan.so")
    monkeypatch.setenv("CC", "clang-14")
    assert sanitizing_compiler().c == "clang-14"
    monkeypatch.setenv("CXX", "icpx")
    with pytest.raises(NecropsyError, match="there is no icpx on this machine"):
        sanitizing_compiler()


def test_only_a_compiler_that_looks_at_comparisons_is_asked_for_more() -> None:
    assert GCC.comparisons == "-fsanitize-coverage=trace-cmp"
    assert CLANG.comparisons == "-fsanitize-coverage=func,trace-pc-guard,trace-cmp"
