"""Reports of GCC's and clang's sanitizers: the access, its stack, and the rule that says what happened."""

from __future__ import annotations

import pytest
from printed import printed

from necropsy.diagnose import diagnose
from necropsy.formats import sanitizers
from necropsy.formats.readers.sanitizer import READER
from necropsy.rules import crash_rules
from reading import death, only, pieces, verdict

REPORTS = printed("sanitizer")


@pytest.mark.parametrize(
    ("name", "rule", "confidence", "culprit"),
    [
        ("gasan.heap", "heap-buffer-overflow", "certain", "op::Fill(int*, int)"),
        ("gasan.vector", "heap-buffer-overflow", "certain", "op::Last(std::vector<int, std::allocator<int> > const&)"),
        ("gasan.memcpy", "heap-buffer-overflow", "certain", "op::Copy(char*, char const*, unsigned long)"),
        ("gasan.uaf", "use-after-free", "certain", "op::Use(Node*)"),
        ("gasan.double", "double-free", "certain", "op::Release(Node*)"),
        ("gasan.badfree", "sanitizer-report", "certain", "main"),
        ("gasan.mismatch", "sanitizer-report", "certain", "main"),
        ("gasan.local", "stack-smash", "certain", "op::Local(int)"),
        ("gasan.localread", "sanitizer-report", "certain", "op::LocalRead(int)"),
        ("gasan.scope", "sanitizer-report", "certain", "main"),
        ("gasan.depth", "stack-overflow-recursion", "certain", "op::Depth(int)"),
        ("gasan.null", "null-dereference", "certain", "op::Member(Node*)"),
        ("gasan.far", "invalid-read", "certain", "op::Use(Node*)"),
        ("gasan.wild", "invalid-read", "likely", "op::Use(Node*)"),
        ("gasan.div", "integer-divide-by-zero", "likely", "main"),
        ("gasan.leak", "sanitizer-report", "possible", "main"),
        ("casan.heap", "heap-buffer-overflow", "certain", "op::Fill(int*, int)"),
        ("casan.uaf", "use-after-free", "certain", "op::Use(Node*)"),
        ("casan.double", "double-free", "certain", "op::Release(Node*)"),
        ("casan.memcpy", "heap-buffer-overflow", "certain", "op::Copy(char*, char const*, unsigned long)"),
        ("casan.local", "stack-smash", "certain", "op::Local(int)"),
        ("casan.depth", "stack-overflow-recursion", "certain", "op::Depth(int)"),
        ("casan.null", "null-dereference", "certain", "op::Member(Node*)"),
        ("casan.wild", "invalid-read", "likely", "op::Use(Node*)"),
        ("gtsan.race", "data-race", "possible", "op::Add()"),
        ("ctsan.race", "data-race", "possible", "op::Add()"),
        ("ctsan.uaf", "use-after-free", "possible", "op::Use(Node*)"),
        ("gtsan.depth", "stack-overflow-recursion", "certain", "op::Depth(int)"),
        ("gtsan.null", "null-dereference", "certain", "op::Member(Node*)"),
        ("cubsan.null", "null-dereference", "certain", "op::Member(Node*)"),
        ("cubsan.depth", "stack-overflow-recursion", "certain", "op::Depth(int)"),
        ("cmsan.uninit", "sanitizer-report", "certain", "main"),
    ],
)
def test_verdict(name: str, rule: str, confidence: str, culprit: str) -> None:
    found = verdict(REPORTS[name], READER)
    assert (found.rule, found.confidence) == (rule, confidence)
    assert found.culprit is not None and found.culprit.function == culprit
    if found.culprit.line is not None:
        assert (found.culprit.source or "").endswith("op.cc")


@pytest.mark.parametrize("name", ["gasan.jump", "casan.jump"])
def test_a_jump_to_null(name: str) -> None:
    crash = only(REPORTS[name], READER)
    assert crash.fault is not None and (crash.fault.address, crash.fault.access) == (0, "exec")
    assert verdict(REPORTS[name], READER).rule == "bad-jump"


def test_the_other_stacks_are_evidence() -> None:
    shown = {piece.claim: piece.seen for piece in verdict(REPORTS["gasan.uaf"], READER).evidence}
    assert shown["who freed it"] == "op::Release(Node*) at /src/op.cc:14"
    assert shown["who allocated it"] == "main at /src/op.cc:30"
    assert shown["where the access was"] == "0 bytes inside of a block of 16 bytes"


def test_both_sides_of_a_race() -> None:
    crash = only(REPORTS["gtsan.race"], READER)
    assert [thread.frames[0].function for thread in crash.threads or () if thread.frames] == ["op::Add()", "op::Add()"]
    assert crash.crashed_thread is None, "a race that is reported has killed nobody"
    shown = {piece.claim: piece.seen for piece in verdict(REPORTS["gtsan.race"], READER).evidence}
    assert shown["the access before, by another thread"] == "op::Add() at /src/op.cc:23"


def test_a_full_stack_has_its_innermost_frames_size() -> None:
    thread = only(REPORTS["gasan.depth"], READER).crashed_thread
    assert thread is not None and thread.stack is not None and thread.frames is not None
    assert thread.stack.guard_hit and thread.stack.is_main
    assert thread.frames[0].stack_bytes == 416
    assert thread.complete is False, "a sanitizer prints no more than 256 frames"


def test_macos_overflow_by_one_large_frame() -> None:
    """From https://github.com/numpy/numpy/issues/21799, shortened."""
    text = """==83128==ERROR: AddressSanitizer: stack-overflow on address 0x700006499620 (pc 0x00010a42bf18 bp 0x70000651dc40 sp 0x700006499600 T1)
    #0 0x10a42bf18 in dgetrf_parallel+0x18 (libopenblas64_.0.dylib:x86_64+0x335f18)
    #1 0x10a11bf0b in dgesv_64_+0x19b (libopenblas64_.0.dylib:x86_64+0x25f0b)
"""
    thread = only(text, READER).crashed_thread
    assert thread is not None and thread.frames is not None
    first = thread.frames[0]
    assert (first.function, first.module, first.module_offset) == (
        "dgetrf_parallel",
        "libopenblas64_.0.dylib",
        0x335F18,
    )
    assert first.stack_bytes == 0x70000651DC40 - 0x700006499600 + 16


def test_hwasan_finds_the_cause_later() -> None:
    """Format of compiler-rt/lib/hwasan/hwasan_report.cpp (clang 12 to 18)."""
    text = """==1324==ERROR: HWAddressSanitizer: tag-mismatch on address 0x0042c14c0000 at pc 0x55a0b2c1
READ of size 4 at 0x0042c14c0000 tags: a5/00 (ptr/mem) in thread T0
    #0 0x55a0b2c1 in op::Use(Node*) /src/op.cc:13:39
    #1 0x55a0b2d9 in main /src/op.cc:30:70

[0x0042c14c0000,0x0042c14c0020) is a small allocated heap chunk; size: 32 offset: 0

Cause: use-after-free
0x0042c14c0000 is located 0 bytes inside a 16-byte region [0x0042c14c0000,0x0042c14c0010)
freed by thread T0 here:
    #0 0x55a0a1f0 in operator delete(void*) /b/compiler-rt/lib/hwasan/hwasan_new_delete.cpp:88:3
    #1 0x55a0b2b0 in op::Release(Node*) /src/op.cc:14:31

SUMMARY: HWAddressSanitizer: tag-mismatch /src/op.cc:13:39 in op::Use(Node*)
"""
    found = verdict(text, READER)
    assert (found.rule, found.confidence) == ("use-after-free", "certain")
    assert "op::Release(Node*)" in found.fixes[0].text


def test_only_the_end_of_a_report() -> None:
    text = "SUMMARY: AddressSanitizer: heap-buffer-overflow /src/op.cc:12:5 in op::Fill(int*, int)"
    found = verdict(text, READER)
    assert found.rule == "heap-buffer-overflow"
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.line) == ("op::Fill(int*, int)", 12)


def test_undefined_behaviour_that_was_survived_is_no_death() -> None:
    assert REPORTS["gubsan.overflow"].count("runtime error") == 1
    report = diagnose(death(REPORTS["gubsan.overflow"], READER), crash_rules())
    assert report.verdict is not None and report.verdict.confidence == "possible"


def test_a_leak_does_not_hide_what_came_before_it() -> None:
    found = verdict(REPORTS["gasan.leak"] + REPORTS["casan.null"], READER)
    assert found.rule == "null-dereference"


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("attempting double-free on 0x602000000010 in thread T0:", "double-free"),
        ("attempting free on address which was not malloc()-ed: 0x60b0", "bad-free"),
        ("SEGV on unknown address 0x000000000000 (pc 0x7f bp 0x7f sp 0x7f T0)", "SEGV"),
        ("detected memory leaks", "leak"),
        ("data race (pid=4711)", "data race"),
        ("heap-use-after-free (pid=4711)", "heap-use-after-free"),
        ("requested allocation size 0xffffffffffffff (0x1000 after adjustments)", "allocation-size-too-big"),
        ("lock-order-inversion (potential deadlock) (pid=1)", "lock-order-inversion"),
    ],
)
def test_kinds(rest: str, kind: str) -> None:
    assert sanitizers.kind_of(rest) == kind


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("    #0 0x55734c64b412 in op::Fill(int*, int) /src/op.cc:11", ("op::Fill(int*, int)", None, "/src/op.cc", 11)),
        ("    #0 0x5636a6cd0689 in op::Use(Node*) /src/op.cc:13:39", ("op::Use(Node*)", None, "/src/op.cc", 13)),
        ("    #5 0x559a (/src/casan+0x223a0) (BuildId: 9755)", (None, "/src/casan", None, None)),
        ("    #5 0x559a in _start (/src/casan+0x223a0) (BuildId: 9755)", ("_start", "/src/casan", None, None)),
        ("    #6 <null> <null> (libstdc++.so.6+0xd44a2)", (None, "libstdc++.so.6", None, None)),
        ("    #1 main /src/op.cc (ctsan+0xd4c5d) (BuildId: f6)", ("main", "ctsan", "/src/op.cc", None)),
        ("    #0 0x0  (<unknown module>)", (None, None, None, None)),
        (" #3 0x00007f75 llvm::sys::Run() (/lib/libLLVM.so+0x2f)", ("llvm::sys::Run()", "/lib/libLLVM.so", None, None)),
        ("    #2 0x1 in f C:\\src\\op.cc:12", ("f", None, "C:\\src\\op.cc", 12)),
    ],
)
def test_frame(row: str, expected: tuple[object, ...]) -> None:
    frame = sanitizers.read_frame(row)
    assert frame is not None
    assert (frame.function, frame.module, frame.source, frame.line) == expected


def test_lists_and_titles_are_no_frames() -> None:
    assert sanitizers.read_frame("    #1 the first thing to do") is None
    assert sanitizers.read_frame("# a heading") is None


def test_a_log_without_a_report() -> None:
    assert pieces("CXXFLAGS=-fsanitize=address\nAddressSanitizer: libc interceptors initialized\n", READER) == []


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "==7==ASan runtime does not come first in initial library list; you should either link runtime to your application or manually preload it with LD_PRELOAD.",
            "LD_PRELOAD",
        ),
        ("FATAL: ThreadSanitizer: unexpected memory mapping 0x7d9c6c2f8000-0x7d9c6c700000", "mmap_rnd_bits"),
        ("AddressSanitizer:DEADLYSIGNAL\n" * 5, "mmap_rnd_bits"),
    ],
)
def test_a_sanitizer_that_cannot_begin_says_nothing_of_the_program(text: str, fix: str) -> None:
    found = verdict(text, READER)
    assert (found.rule, found.confidence, found.culprit) == ("sanitizer-report", "certain", None)
    assert any(fix in (one.command or "") for one in found.fixes)


def test_one_deadly_signal_is_only_the_head_of_a_report() -> None:
    assert pieces("AddressSanitizer:DEADLYSIGNAL\n", READER) == []


@pytest.mark.parametrize(
    ("line", "function", "source", "number"),
    [
        ("#0 0x5578 in fill /home/John Smith/my op/op.c:4:66", "fill", "/home/John Smith/my op/op.c", 4),
        ("#0 0x5578 in fill(int*, long) /a b/op.cc:4", "fill(int*, long)", "/a b/op.cc", 4),
        (
            "#1 operator/(V const&, V const&) /a b/op.cc:4 (op.so+0x12)",
            "operator/(V const&, V const&)",
            "/a b/op.cc",
            4,
        ),
        ("#0 0x5578 in fill C:\\My Op\\op.cc:4:5", "fill", "C:\\My Op\\op.cc", 4),
        ("#0 0x5578 in operator new(unsigned long) my.cc:4", "operator new(unsigned long)", "my.cc", 4),
        ("#0 0x5578 in fill /a b/op.c (/a b/op.so+0x12)", "fill", "/a b/op.c", None),
    ],
)
def test_blanks_in_a_path_are_no_part_of_the_function(
    line: str, function: str, source: str, number: int | None
) -> None:
    frame = sanitizers.read_frame(line)
    assert frame is not None
    assert (frame.function, frame.source, frame.line) == (function, source, number)
