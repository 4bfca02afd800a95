"""The harness for Windows programs tells the truth about them: codes of 32 bits, arguments, dumps."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

import wine

pytestmark = wine.needed

DIES = """
#include <stdlib.h>
#include <windows.h>
int main(int count, char **words) {
    if (count == 1) Sleep(INFINITE);
    if (count > 2) RaiseException(strtoul(words[1], 0, 16), 0, 0, 0);
    ExitProcess(strtoul(words[1], 0, 16));
}
"""


@pytest.fixture(scope="module")
def dies(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    source = tmp_path_factory.mktemp("source") / "dies.c"
    source.write_text(DIES)
    return wine.mingw(source)


@pytest.mark.parametrize("code", [0, 1, 3, 255, 256, 0xC0000409, 0xFFFFFFFF])
def test_all_32_bits_of_an_exit_code_are_seen(dies: pathlib.Path, code: int) -> None:
    assert wine.run(dies, f"{code:x}").code32 == code


def test_arguments_and_input_reach_windows_python() -> None:
    words = ["two words", 'a "quote"', "back\\slash\\", "", "ünïcödé €"]
    code = "import sys; print(ascii(sys.argv[1:])); print(sys.stdin.read(), file=sys.stderr); sys.exit(-1073740791)"
    done = wine.run(wine.python(), "-c", code, *words, stdin=b"typed")
    assert (done.code32, done.signed) == (0xC0000409, -1073740791)
    assert done.stdout == f"{words!a}\n"
    assert done.stderr == "typed\n"


def test_necropsy_is_installed_in_windows_python() -> None:
    done = wine.run(wine.python(), "-m", "necropsy", "explain", "0xC0000409")
    assert done.code32 == 0
    assert "STATUS_STACK_BUFFER_OVERRUN" in done.stdout


def test_what_runs_too_long_is_ended(dies: pathlib.Path) -> None:
    with pytest.raises(TimeoutError):
        wine.run(dies, timeout=0.5)


def test_a_death_leaves_a_dump_with_its_code(dies: pathlib.Path) -> None:
    dump = wine.dump(dies, "c0000005", "raise").read_bytes()
    assert dump[:4] == b"MDMP"
    assert (0xC0000005).to_bytes(4, "little") in dump
    assert len(wine.dump(dies, "c0000005", "raise", kind=wine.FULL_DUMP).read_bytes()) > len(dump)


def test_a_healthy_end_leaves_none(dies: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match="left no dump"):
        wine.dump(dies, "0")


def test_debians_wine_is_asked_for_nothing_at_a_crash(dies: pathlib.Path) -> None:
    """Were wine's own debugger started, this took seconds and wrote a backtrace. One line wine writes in any case."""
    done = wine.run(dies, "c0000005", "raise")
    assert done.code32 == 0xC0000005
    assert "Backtrace" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


def test_a_program_that_does_not_compile_says_why(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("int main(void) { return here; }")
    with pytest.raises(AssertionError, match="here"):
        wine.mingw(source)
    assert subprocess.run([wine.CC, "--version"], capture_output=True, check=False).returncode == 0
