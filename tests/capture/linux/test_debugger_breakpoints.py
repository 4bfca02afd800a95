"""Programs that stop in a debugger where a check fails do not notice necropsy; a deliberate trap still kills."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from harness import build
from supervised import run, run_and_record

from crashers.build import HERE

SOURCE = (HERE / "debugger_checks.cc").read_text()
SAID = b"check 1 failed\ncheck 2 failed\ncheck 3 failed\n3 of 4 failed\n"
TESTS = """
TEST_CASE("one") { CHECK(1 == 2); CHECK(3 == 4); }
TEST_CASE("two") { REQUIRE(1 == 2); }
TEST_CASE("three") { CHECK(1 == 1); }
"""
FRAMEWORKS = {
    "doctest": "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n",
    "catch2": "#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n",
}


def program(folder: Path, *flags: str, name: str = "checks") -> str:
    return str(build(folder, SOURCE, "-O1", *flags, name=name, cxx=True))


@pytest.mark.parametrize("way", ["instruction", "raise"])
def test_checks_that_fail_do_not_stop_it(tmp_path: Path, way: str) -> None:
    words = [program(tmp_path, "-DASKS"), way]
    plain = subprocess.run(words, check=False, capture_output=True, timeout=60)
    ours, record = run_and_record(words, tmp_path, log="off")
    assert (plain.returncode, plain.stdout) == (3, SAID)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert record.crashes == ()


def test_checks_in_a_library(tmp_path: Path) -> None:
    """The program itself does not hold the string."""
    build(tmp_path, SOURCE.replace("int main", 'extern "C" int checks'), "-DASKS", "-shared", "-fPIC", cxx=True)
    caller = "int checks(int, char **); int main(int count, char **words) { return checks(count, words); }"
    linked = [f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-Wl,--no-as-needed", "-lcrasher"]
    words = [str(build(tmp_path, caller, "-O1", *linked, name="caller")), "instruction"]
    assert b"TracerPid" not in Path(words[0]).read_bytes()
    assert run(words, log="off").returncode == subprocess.run(words, check=False, timeout=60).returncode == 3


@pytest.mark.parametrize("way", ["instruction", "raise"])
def test_a_trap_without_a_question_kills(tmp_path: Path, way: str) -> None:
    words = [program(tmp_path), way]
    assert b"TracerPid" not in Path(words[0]).read_bytes()
    plain = subprocess.run(words, check=False, capture_output=True, timeout=60)
    ours, record = run_and_record(words, tmp_path, log="off")
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout) == (-5, b"check 1 failed\n")
    assert [crash.fault.signal for crash in record.crashes if crash.fault] == ["SIGTRAP"]


def test_what_another_sends_kills(tmp_path: Path) -> None:
    words = [program(tmp_path, "-DASKS"), "from outside"]
    assert subprocess.run(words, check=False, timeout=60).returncode == -5
    assert run(words, log="off").returncode == -5


def test_a_handler_of_its_own_gets_it(tmp_path: Path) -> None:
    words = [program(tmp_path), "handled"]
    assert subprocess.run(words, check=False, timeout=60).returncode == 9
    assert run(words, log="off").returncode == 9


def installed(framework: str) -> object:
    header = re.findall("<(.*)>", FRAMEWORKS[framework])[0]
    is_there = Path("/usr/include", header).exists()
    return pytest.param(framework, marks=pytest.mark.skipif(not is_there, reason=f"{framework} is not installed"))


@pytest.mark.parametrize("framework", [installed(name) for name in FRAMEWORKS])
def test_the_frameworks_themselves(tmp_path: Path, framework: str) -> None:
    words = [str(build(tmp_path, FRAMEWORKS[framework] + TESTS, name=framework, cxx=True))]
    breaks = [*words, "--break"] if framework == "catch2" else words
    plain = subprocess.run(breaks, check=False, capture_output=True, timeout=60)
    ours = run(breaks, log="off")
    assert plain.returncode > 0
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
