"""The text of a profile: threads by how close they came, pools in one row, and nothing that a program could inject."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from profile_examples import LOAD, MAIN, TRAINING, process, profiled

from necropsy.model import (
    Document,
    Exit,
    Gap,
    HeapFrame,
    HeapStack,
    HeapUse,
    HeldArray,
    Process,
    ResourceUse,
    StackElsewhere,
    StackFunction,
    StackUse,
    Subject,
    Tool,
)
from necropsy.reports import heap, rendered
from necropsy.reports.profile import render

MIB = 1 << 20


def document(*stacks: StackUse, children: int = 0, gaps: tuple[Gap, ...] = ()) -> Document:
    own = Process(pid=1, command=("a",), exit=Exit(kind="exited", code=0), wall_s=2.0, stacks=stacks)
    forks = tuple(
        Process(pid=100 + one, parent=1, command=("b",), exit=own.exit, stacks=stacks) for one in range(children)
    )
    return Document(
        kind="profile",
        id="",
        tool=Tool(name="necropsy", version=""),
        complete=True,
        subject=Subject(kind="process", command=("a",)),
        processes=(own, *forks),
        gaps=gaps,
    )


def test_threads_that_are_alike_share_a_row() -> None:
    pool = [StackUse(tid=tid, name="pool", size=8 * MIB, peak=tid << 10, exact=True) for tid in (96, 64, 32)]
    text = render(document(*pool, StackUse(tid=1, name="main", size=8 * MIB, peak=16 << 10, exact=True)))
    (row,) = (line for line in text.splitlines() if "pool" in line)
    assert row.split()[:2] == ["pool", "x3"]
    assert "96 KiB" in row
    assert "64 KiB" not in text


def test_more_threads_and_children_than_are_shown_are_counted() -> None:
    stacks = [StackUse(tid=tid, name=f"t{tid}", size=MIB, peak=(40 - tid) << 10, exact=True) for tid in range(1, 15)]
    text = render(document(*stacks, children=7), top=4)
    assert "and 10 more threads, at most 35 KiB of a stack" in text
    assert "and 2 more child processes" in text


def test_what_was_used_at_most_is_one_line() -> None:
    peaks = ResourceUse(
        at=1.0,
        rss=209 * MIB,
        python_heap=7 * MIB,
        address_space=1 << 30,
        threads=1,
        descriptors=25,
        mappings=1380,
    )
    own = Process(pid=1, command=("python", "-c", "import os\nprint(\n    1)"), peaks=peaks, peak_rss=1)
    text = render(msgspec.structs.replace(document(), processes=(own,)), width=100)
    said = "At most: 209 MiB resident, 1 GiB of address space, 1 thread, 25 descriptors, 1,380 mappings, 7 MiB"
    assert text.splitlines()[1:4] == [
        "necropsy: python -c import os print( 1) ended.",
        f"  {said}",
        "    for small Python objects",
    ]


def test_a_minimum_is_marked_and_what_is_missing_is_told() -> None:
    stack = StackUse(tid=1, name="main", size=MIB, peak=512 << 10, exact=False)
    text = render(document(stack, StackUse(tid=2, name="gone"), gaps=(Gap(part="stack", why="one thread was late"),)))
    assert ">= 512 KiB 50.0%" in text
    assert "unknown" in text
    assert "not observed: stack: one thread was late" in text


def test_what_filled_it_says_what_it_cannot_explain_and_where_it_would_not_fit() -> None:
    rows = (
        StackFunction(function="parse", module="lib.so", frame_bytes=128, times=4096, bytes=512 << 10),
        StackFunction(function=None, module=None, frame_bytes=65536, times=1, bytes=64 << 10, partial=True),
    )
    stack = StackUse(
        tid=1,
        name="main",
        size=MIB,
        peak=MIB - 4096,
        exact=True,
        functions=rows,
        would_not_fit=(StackElsewhere(where="musl", bytes=131_072),),
    )
    text = render(document(stack))
    assert "4,096 x 128 B" in text
    assert "parse (lib.so)" in text
    assert "a function without a name, partial" in text
    assert "444 KiB (44%)" in text
    assert "not explained" in text
    assert "Would not fit into 131,072 bytes, as on musl: main used 1,044,480 bytes." in text


def test_names_from_the_program_cannot_command_the_terminal_and_lines_fit() -> None:
    row = StackFunction(function="\x1b[31mred" + "f" * 200, module="m\nm", frame_bytes=1, times=1, bytes=MIB // 2)
    stack = StackUse(tid=1, name="\x1b]0;owned\x07", size=MIB, peak=MIB // 2, exact=True, functions=(row,))
    for width in (40, 80):
        text = render(document(stack), width=width)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= max(width, 56)
    assert "\x1b" not in rendered(document(stack), "text")


def test_a_run_of_which_nothing_was_measured_still_says_how_it_ended() -> None:
    assert "no stack was measured" in render(document())


def test_arrays_stand_under_the_rise_and_under_the_allocation_at_the_same_line() -> None:
    text = render(TRAINING, width=120)
    held = "held images: float32 [64, 224, 224, 3], 36.8 MiB; labels: int64 [64], 512 B; names: str [64]"
    lines = text.splitlines()
    under = [before.strip() for before, line in itertools.pairwise(lines) if line.strip() == held]
    assert len(under) == 2
    assert under[0].endswith("/srv/train.py:17 in load")
    assert "load (train.py:17), in PyArray_NewFromDescr" in under[1]


def test_more_arrays_than_are_shown_are_counted_and_names_cannot_command_the_terminal() -> None:
    one = HeldArray(name="a\x1b[31m", type="torch.Tensor", shape=(2,))
    assert "\x1b" not in heap.held_in_words([one] * 5)
    assert heap.held_in_words([one] * 5).endswith("; and 2 more")
    assert "torch.Tensor [2]" in heap.held_in_words([one])


@pytest.mark.parametrize(
    ("native", "named"),
    [
        (("PyArray_NewFromDescr_int", "PyDataMem_UserNEW", "default_malloc"), "PyArray_NewFromDescr_int"),
        (("scipy_cblas_dgemm64_", "blas_memory_alloc", "alloc_mmap"), "scipy_cblas_dgemm64_"),
        (("std::vector<int>::resize(unsigned long)", "operator new(unsigned long)"), "std::vector<int>::resize"),
        (("_PyLong_New", "_PyObject_Malloc", "pymalloc_alloc", "allocate_from_new_pool", "new_arena"), "_PyLong_New"),
        (("tensorflow::Tensor::Tensor()", "tensorflow::BasicCPUAllocator::Alloc(int)"), "tensorflow::Tensor::Tensor()"),
        (("malloc",), "malloc"),
    ],
)
def test_a_row_names_the_native_function_that_had_memory_allocated(native: tuple[str, ...], named: str) -> None:
    frames = (LOAD, *(HeapFrame(function=one) for one in native))
    heap = HeapUse(how="memray", peak=MIB, count=1, stacks=(HeapStack(bytes=MIB, count=1, frames=frames),))
    typed = (HeapFrame(function="<module>", file="<string>", line=1), *frames[1:])
    heap_of_typed = msgspec.structs.replace(heap, stacks=(HeapStack(bytes=MIB, count=1, frames=typed),))
    said = render(profiled(process(MAIN, heap=heap_of_typed)), width=120)
    assert f"<module> (<string>:1), in {named}" in said
    assert f"load (train.py:17), in {named}" in render(profiled(process(MAIN, heap=heap)), width=120)
