"""Programs die under the guard allocator: what a report says of the block that they misused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build, dying
from test_guard_allocator import GUARD, SOURCE

import necropsy
from necropsy import errors
from necropsy.capture.linux.inspect import crash_builder, guard_records
from necropsy.capture.linux.supervise import guard_preload
from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis, Frame, GuardedBlock
from necropsy.rules import crash_rules

pytestmark = GUARD


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("guarded"), SOURCE.read_text(), "-g", "-O1", name="guarded")


def captured(*command: str | Path, options: str = "") -> Crash:
    words = [os.fspath(part) for part in command]
    variables = {**os.environ, "LD_PRELOAD": str(guard_preload.LIBRARY), guard_preload.OPTIONS: options}
    with dying(words, env=variables) as death:
        return crash_builder.capture(death)


def verdict_of(crash: Crash) -> Diagnosis:
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None
    return verdict


def block_of(crash: Crash) -> GuardedBlock:
    assert crash.guarded_block is not None, crash.gaps
    return crash.guarded_block


def functions(frames: tuple[Frame, ...] | None) -> list[str | None]:
    return [frame.function for frame in frames or ()]


@pytest.mark.parametrize(
    ("words", "seen", "summary"),
    [
        (["after"], ("after-end", 128, 0), "`fill_rows` wrote directly past the end of a block of 128 bytes that `make_buffer` had allocated."),
        (["after-far", "100"], ("after-end", 128, 100), "`fill_rows` wrote 100 bytes past the end of a block of 128 bytes"),
        (["read-after"], ("after-end", 128, 0), "`sum_rows` read directly past the end of a block of 128 bytes"),
        (["before"], ("before-start", 4096, 0), "`fill_rows` wrote directly before the start of a block of 4 KiB"),
        (["read-long-before", "0"], ("before-start", 4096, 0), "`last_number` read directly before the start of a block of 4 KiB"),
        (["read-long-before", "-1"], ("before-start", 4096, 8), "`last_number` read 8 bytes before the start of a block of 4 KiB"),
        (["thread"], ("after-end", 256, 0), "`fill_rows` wrote directly past the end of a block of 256 bytes"),
    ],
)  # fmt: skip
def test_an_access_beyond_a_block_names_who_made_it_and_who_allocated_the_block(
    program: Path, words: list[str], seen: tuple[str, int, int], summary: str
) -> None:
    crash = captured(program, *words)
    block, verdict = block_of(crash), verdict_of(crash)
    assert (block.misuse, block.size, block.distance) == seen
    assert functions(block.allocated)[0] == "make_buffer"
    assert block.freed is None
    assert (verdict.rule, verdict.confidence) == ("heap-buffer-overflow", "certain")
    assert verdict.summary.startswith(summary)
    assert verdict.culprit is not None
    assert verdict.culprit.function in {"fill_rows", "sum_rows", "last_number"}


def test_a_freed_block_names_who_freed_it(program: Path) -> None:
    crash = captured(program, "freed")
    block, verdict = block_of(crash), verdict_of(crash)
    assert (block.misuse, block.size, block.offset) == ("freed", 128, 8)
    assert (functions(block.allocated)[0], functions(block.freed)[0]) == ("make_buffer", "release")
    assert (verdict.rule, verdict.confidence) == ("use-after-free", "certain")
    assert verdict.summary == "`fill_rows` wrote to a block of 128 bytes that `release` had freed."


def test_damage_found_by_free_blames_nobody(program: Path) -> None:
    crash = captured(program, "filler")
    block, verdict = block_of(crash), verdict_of(crash)
    assert (block.misuse, block.size, block.distance, block.overwritten) == ("overwritten-after", 100, 2, 2)
    assert (verdict.rule, verdict.confidence, verdict.culprit) == ("heap-buffer-overflow", "certain", None)
    assert "`make_buffer`" in verdict.summary
    block = block_of(captured(program, "filler-before"))
    assert (block.misuse, block.distance, block.overwritten) == ("overwritten-before", 2, 2)


def test_a_second_free_and_a_free_inside_a_block_blame_who_made_it(program: Path) -> None:
    verdict = verdict_of(captured(program, "freed-twice"))
    assert (verdict.rule, verdict.confidence) == ("double-free", "certain")
    assert verdict.summary == "`release` freed a block of 128 bytes that `release` had freed already."
    verdict = verdict_of(captured(program, "inside"))
    assert (verdict.rule, verdict.confidence) == ("heap-corruption", "certain")
    assert verdict.summary == "`release` freed an address 8 bytes into a block of 128 bytes."


def test_another_death_is_no_business_of_the_guard(program: Path) -> None:
    crash = captured(program, "null")
    assert crash.guarded_block is None
    assert verdict_of(crash).rule == "null-dereference"
    assert "guard" not in {gap.part for gap in crash.gaps}


def test_a_static_program_is_a_gap(tmp_path: Path) -> None:
    static = build(tmp_path, SOURCE.read_text(), "-O1", "-static", name="static")
    crash = captured(static, "null")
    gap = crash.gap("guard")
    assert gap is not None
    assert "static" in gap.why


OTHER = """
#include <stddef.h>
static char memory[1 << 24]; static size_t used;
void *aligned_alloc(size_t alignment, size_t size) { used += alignment - used % alignment; used += size; return memory + used - size; }
void *malloc(size_t size) { return aligned_alloc(64, size); }
void free(void *block) {}
"""


def test_another_allocator_in_front_of_it_is_a_gap(program: Path, tmp_path: Path) -> None:
    other = build(tmp_path, OTHER, "-O1", "-fPIC", "-shared", name="other")
    variables = {**os.environ, "LD_PRELOAD": f"{other}:{guard_preload.LIBRARY}"}
    with dying([str(program), "null"], env=variables) as death:
        gap = crash_builder.capture(death).gap("guard")
    assert gap is not None
    assert "another allocator" in gap.why


def test_records_of_another_version_are_a_gap(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_records, "VERSION", 2)
    crash = captured(program, "after")
    assert crash.guarded_block is None
    assert crash.gap("guard") is not None


NUMPY = """
import ctypes, sys, numpy
library = ctypes.CDLL(sys.argv[1])
array = numpy.zeros(512, "float32")
def fill(count):
    library.fill(array.ctypes.data_as(ctypes.c_void_p), count)
fill(512)
fill(513)
"""
FILL = "void fill(float *to, int count) { for (int at = 0; at < count; at++) to[at] = at; }"


def test_an_array_of_numpy_and_the_line_of_python(tmp_path: Path) -> None:
    library = build(tmp_path, FILL, "-g", "-O1", "-fPIC", "-shared", name="fill")
    result = necropsy.run([sys.executable, "-c", NUMPY, library], guard=True, capture_output=True, reports=tmp_path)
    assert result.report is not None, result.stderr
    report = result.report.reports[0]
    assert report.verdict is not None
    assert (report.verdict.rule, report.verdict.confidence) == ("heap-buffer-overflow", "certain")
    assert report.verdict.culprit is not None
    assert (report.verdict.culprit.function, report.verdict.culprit.module) == ("fill", "libfill.so")
    assert report.verdict.culprit.python is not None
    assert report.verdict.culprit.python.line == 6
    block = block_of(report.crash)
    assert (block.size, block.distance) == (2048, 0)
    assert any(
        "numpy" in (frame.module or "") or "multiarray" in (frame.module or "") for frame in block.allocated or ()
    )


def test_the_command_inherits_the_guard_behind_its_own_libraries(tmp_path: Path) -> None:
    code = "import os; print(os.environ['LD_PRELOAD'], os.environ.get('NECROPSY_GUARD'))"
    mine = build(tmp_path, "int mine;", "-fPIC", "-shared", name="mine")
    variables = {**os.environ, "LD_PRELOAD": str(mine), "NECROPSY_GUARD": "small=7"}
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    result = necropsy.run([sys.executable, "-c", child], guard=True, env=variables, capture_output=True)
    assert (result.stdout or b"").decode() == f"{mine}:{guard_preload.LIBRARY} small=7\n"


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guard_preload, "LIBRARY", tmp_path / "missing.so")
    with pytest.raises(errors.NecropsyError, match="was not built") as raised:
        guard_preload.check()
    assert raised.value.exit_code == 125
    (tmp_path / "a folder").mkdir()
    spaced = tmp_path / "a folder" / "guard.so"
    spaced.touch()
    monkeypatch.setattr(guard_preload, "LIBRARY", spaced)
    with pytest.raises(errors.NecropsyError, match="a space or a colon"):
        guard_preload.check()


def test_it_does_not_go_with_confirm() -> None:
    words = [sys.executable, "-m", "necropsy", "run", "--guard", "--confirm", "true"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 125
    assert "--confirm are not guarded" in done.stderr
