"""`run --guard` on AArch64: programs that misuse the heap, and one that does not."""

from __future__ import annotations

import signal
import subprocess

import pytest
import supervision
from supervision import Case, Found

import crashers.build
from necropsy.model import Frame, GuardedBlock

_PAGE = int(supervision.PAGES.removesuffix("k")) << 10
DEATHS = (
    ("after", signal.SIGSEGV, ("after-end", 128, 0), "heap-buffer-overflow certain"),
    ("read-after", signal.SIGSEGV, ("after-end", 128, 0), "heap-buffer-overflow certain"),
    ("before", signal.SIGSEGV, ("before-start", _PAGE, 0), "heap-buffer-overflow certain"),
    ("thread", signal.SIGSEGV, ("after-end", 256, 0), "heap-buffer-overflow certain"),
    ("freed", signal.SIGSEGV, ("freed", 128, None), "use-after-free certain"),
    ("freed-twice", signal.SIGABRT, ("freed-twice", 128, None), "double-free certain"),
    ("filler", signal.SIGABRT, ("overwritten-after", 100, 2), "heap-buffer-overflow certain"),
)
HEALTHY = ("alignments", "reallocations", "zeroed", "threads", "forks")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    machine = supervision.machine()
    program = tmp_path_factory.mktemp("guard") / "guarded"
    source = crashers.build.HERE / "guarded.c"
    words = ["aarch64-linux-gnu-gcc", "-g", "-O1", "-pthread", "-w", str(source), "-o", str(program)]
    subprocess.run(words, check=True)
    machine.put({"/opt/guarded": program.read_bytes()})
    all_blocks = ("env", "NECROPSY_GUARD=small=1")
    return supervision.run(
        [Case(verb, ["/opt/guarded", verb], user="user", options={"guard": True}) for verb, *_ in DEATHS]
        + [Case(verb, [*all_blocks, "/opt/guarded", verb], user="user", options={"guard": True}) for verb in HEALTHY]
        + [Case("python", ["python3", "-c", "import json; print(json.dumps([1] * 9))"], options={"guard": True})]
    )


def _functions(frames: tuple[Frame, ...] | None) -> list[str | None]:
    return [frame.function for frame in frames or ()]


def _block(one: Found) -> GuardedBlock:
    block = one.report.crash.guarded_block
    assert block is not None, one.report.crash.gaps
    return block


@pytest.mark.parametrize(("verb", "signo", "seen", "verdict"), DEATHS)
def test_a_misuse_ends_the_program_and_the_block_is_told(
    found: dict[str, Found], verb: str, signo: signal.Signals, seen: tuple[str, int, int | None], verdict: str
) -> None:
    one = found[verb]
    block, said = _block(one), one.report.verdict
    assert one.status == -signo
    assert (block.misuse, block.size, block.distance) == seen
    assert said is not None
    assert f"{said.rule} {said.confidence}" == verdict


@pytest.mark.parametrize("verb", ["after", "read-after", "before", "thread", "freed"])
def test_who_allocated_the_block_is_told(found: dict[str, Found], verb: str) -> None:
    assert _functions(_block(found[verb]).allocated)[0] == "make_buffer"
    assert "main" in _functions(_block(found["after"]).allocated)


def test_who_freed_the_block_is_told(found: dict[str, Found]) -> None:
    assert _functions(_block(found["freed"]).freed)[0] == "release"


@pytest.mark.parametrize("verb", HEALTHY)
def test_a_right_program_is_not_disturbed(found: dict[str, Found], verb: str) -> None:
    one = found[verb]
    assert (one.status, one.out, one.err) == (0, "ended well 1\n", "")
    assert verb in {"alignments", "reallocations"} or not one.reports, "children of these write behind blocks"


def test_python_is_not_disturbed(found: dict[str, Found]) -> None:
    one = found["python"]
    assert (one.status, one.out, one.err) == (0, f"{[1] * 9}\n", "")
