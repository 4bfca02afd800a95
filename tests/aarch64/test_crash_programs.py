"""The crash programs of the ordinary suite, built for AArch64: what is said of each is held against the same table.

``CASES`` of ``test_crashers.py`` says what is true of each death, its culprit and its line of Python; here is only what
differs on AArch64. The shared source is the point: a program that is understood on one processor is understood on the other.
"""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import supervision
from supervision import Case, Found

from crashers import build
from necropsy import serialize
from test_crashers import CASES, HERE, TRAP, hold, verdict_of
from test_crashers import Case as Program

ILL = -signal.SIGILL
NOT_THERE = {
    "divide_by_zero-0": "the division gives 0",
    "modulo_by_zero-0": "the remainder is the dividend",
    "divide_int_min--1": "the quotient wraps around",
    "xop_instruction": "XOP is AMD's",
}
"""What cannot occur on AArch64, and why: three of them live, the last cannot be built."""
ENDS = {"trap": TRAP, "throw_into_a_trap": TRAP, "privileged": ILL}
"""Where another signal is right: ``__builtin_trap`` is ``brk``, and a forbidden register is an undefined instruction."""
ALSO_RIGHT = {"return_to_garbage-64": ("invalid-write",)}
"""Verdicts that are right there alone: a function saves its return address below its arrays, so that one that runs over its end
overwrites what its caller, libffi, has saved, which then writes through it."""
NO_NAMES = ("map-chain", "deep-repr")
"""Where the culprit is a static function of Debian's interpreter, which has no symbols for them: its address is said."""
DIFFERS = {
    "generated_recursion": "code without tables and frame pointers: no caller is found, so that the stack was full is known, but not who filled it",
}
"""What is known to be said otherwise than on x86-64, and why. At least 95 % may not."""
_PLACE = "/opt/crashers"
_LIVES = [name for name in NOT_THERE if name != "xop_instruction"]
_PROGRAMS = [
    one for one in CASES if one.name not in NOT_THERE and not (supervision.LARGE_PAGES and one.name == "truncated_file")
]
"""``truncated_file`` reads behind the first 4 KiB of a mapped file, which are still in its last page where pages are larger."""


def _library(source: str, folder: Path) -> Path:
    made = folder / Path(source).stem / f"{Path(source).stem}.so"
    made.parent.mkdir()
    compiler = "aarch64-linux-gnu-g++" if source.endswith(".cc") else "aarch64-linux-gnu-gcc"
    words = [compiler, "-w", "-shared", "-fPIC", *build.FLAGS[source], "-o", str(made), str(HERE / source)]
    subprocess.run(words, check=True)
    return made


def _command(program: Program) -> list[str]:
    script, *words = program.command.split()
    libraries = {name: f"{_PLACE}/{Path(name).stem}/{Path(name).stem}.so" for name in build.FLAGS}
    return ["python3", f"{_PLACE}/{script}", *(libraries.get(word, word) for word in words)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    machine = supervision.machine()
    folder = tmp_path_factory.mktemp("crashers")
    made = [_library(source, folder) for source in build.FLAGS]
    files = {f"{_PLACE}/{path.stem}/{path.name}": path.read_bytes() for path in made}
    machine.put({**files, **{f"{_PLACE}/{path.name}": path.read_bytes() for path in HERE.glob("*.py")}})
    there = [one for one in CASES if one.name != "xop_instruction"]
    return supervision.run([Case(one.name, _command(one), stack=8 << 20, options={"log": one.log}) for one in there])


def _document(one: Found) -> dict[str, Any]:
    """What of the JSON document the table is held against."""
    verdicts = [report.verdict for report in one.reports]
    return {
        "reports": [{"verdict": msgspec.to_builtins(verdict, enc_hook=serialize.to_json)} for verdict in verdicts],
        "gaps": [(gap.part, gap.why) for report in one.reports for gap in report.gaps],
        "stderr": one.err,
    }


@pytest.mark.parametrize("program", _PROGRAMS, ids=[one.name for one in _PROGRAMS])
def test_the_same_is_said_as_on_x86_64(found: dict[str, Found], program: Program) -> None:
    one = found[program.name]
    assert one.status == ENDS.get(program.name, program.ends), one.err[-2000:]
    document = _document(one)
    if program.name in NO_NAMES:
        program = replace(program, culprit=("python3.11+0x",))
    if program.name not in DIFFERS:
        hold(program, document, ALSO_RIGHT.get(program.name, ()))
    threads = [report.crash.crashed_thread for report in one.reports if report.crash.fault is not None]
    assert all(thread is None or thread.frames for thread in threads), document["gaps"]


@pytest.mark.parametrize("name", _LIVES)
def test_what_is_no_death_there_is_none(found: dict[str, Found], name: str) -> None:
    one = found[name]
    assert (one.status, one.reports) == (0, ())


def test_few_differ_and_none_is_certainly_wrong(found: dict[str, Found]) -> None:
    assert len(DIFFERS) <= 0.05 * len(_PROGRAMS)
    for name in DIFFERS:
        verdict = verdict_of(_document(found[name]))
        assert verdict is None or verdict["confidence"] != "certain", name
