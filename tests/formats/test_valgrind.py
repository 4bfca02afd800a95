"""valgrind's report: invalid accesses with their blocks, races, and the signal at the end."""

from __future__ import annotations

import pytest
from printed import printed

from necropsy.diagnose import diagnose
from necropsy.formats.readers.valgrind import READER
from necropsy.rules import crash_rules
from reading import death, only, pieces, verdict

REPORTS = printed("valgrind")


@pytest.mark.parametrize(
    ("name", "rule", "confidence", "culprit"),
    [
        ("heap", "heap-buffer-overflow", "likely", "op::Fill(int*, int)"),
        ("vector", "heap-buffer-overflow", "likely", "op::Last(std::vector<int, std::allocator<int> > const&)"),
        ("memcpy", "heap-buffer-overflow", "likely", "op::Copy(char*, char const*, unsigned long)"),
        ("uaf", "use-after-free", "likely", "main"),
        ("double", "double-free", "likely", "op::Release(Node*)"),
        ("badfree", "sanitizer-report", "likely", "main"),
        ("mismatch", "sanitizer-report", "possible", "main"),
        ("null", "null-dereference", "certain", "op::Member(Node*)"),
        ("wild", "invalid-read", "likely", "main"),
        ("jump", "bad-jump", "certain", "main"),
        ("div", "integer-divide-by-zero", "certain", "main"),
        ("abort", "abort", "certain", "main"),
        ("depth", "stack-overflow-recursion", "possible", "op::Depth(int)"),
        ("helgrind", "data-race", "possible", "op::Add()"),
        ("drd", "data-race", "possible", "op::Add()"),
    ],
)
def test_verdict(name: str, rule: str, confidence: str, culprit: str) -> None:
    found = verdict(REPORTS[name], READER)
    assert (found.rule, found.confidence) == (rule, confidence)
    assert found.culprit is not None and found.culprit.function == culprit


@pytest.mark.parametrize("name", ["leak", "uninit"])
def test_what_kills_nobody_gives_nothing(name: str) -> None:
    assert diagnose(death(REPORTS[name], READER), crash_rules()).verdict is None


def test_the_signal_and_its_cause() -> None:
    crash = only(REPORTS["null"], READER)
    assert crash.fault is not None and crash.exit is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address, crash.fault.access) == (
        "SIGSEGV",
        "SEGV_MAPERR",
        0,
        "read",
    )
    assert (crash.exit.kind, crash.exit.signal) == ("signaled", "SIGSEGV")
    assert crash.pid == 29378


def test_a_full_stack_and_its_size() -> None:
    thread = only(REPORTS["depth"], READER).crashed_thread
    assert thread is not None and thread.stack is not None
    assert (thread.stack.guard_hit, thread.stack.is_main, thread.stack.size) == (True, True, 8388608)


def test_both_sides_of_a_race() -> None:
    (message, *_) = only(REPORTS["helgrind"], READER).messages or ()
    assert message.fields["again"] == "op::Add() at op.cc:23"


def test_where_freed_memory_was_freed() -> None:
    (message,) = only(REPORTS["uaf"], READER).messages or ()
    assert message.fields["freed"] == "op::Release(Node*) at op.cc:14"
    assert message.fields["allocated"] == "main at op.cc:30"


# CPython's allocator reads memory that it need not own: Misc/README.valgrind and Misc/valgrind-python.supp name them.
NOISE = """==7== Memcheck, a memory error detector
==7== Invalid read of size 4
==7==    at 0x49A1C2: address_in_range (obmalloc.c:1176)
==7==    by 0x49A1C2: pymalloc_free (obmalloc.c:1450)
==7==    by 0x4F0A11: list_dealloc (listobject.c:330)
==7==  Address 0x5a3c020 is 16 bytes inside a block of size 33 free'd
==7==    at 0x48369AB: free (vg_replace_malloc.c:530)
==7==
==7== Conditional jump or move depends on uninitialised value(s)
==7==    at 0x49A1D0: PyObject_Free (obmalloc.c:1461)
==7==    by 0x55F2B3: dictresize (dictobject.c:1190)
==7==
==7== Invalid read of size 4
==7==    at 0x82F57BB: ??? (in /usr/lib/x86_64-linux-gnu/libpython3.5m.so.1.0)
==7==    by 0x8474C46: PyNode_Free (in /usr/lib/x86_64-linux-gnu/libpython3.5m.so.1.0)
==7==  Address 0x202e5020 is 128 bytes inside a block of size 1,120 free'd
==7==    at 0x4C2CDFB: free (vg_replace_malloc.c:530)
==7==
==7== Invalid read of size 8
==7==    at 0x40286A0: strncmp (strcmp.S:170)
==7==    by 0x400668D: is_dst (dl-load.c:216)
==7==    by 0x400810E: _dl_dst_count (dl-load.c:253)
==7==  Address 0x607efa1 is 1 bytes inside a block of size 8 alloc'd
==7==    at 0x4848899: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==
==7== Use of uninitialised value of size 8
==7==    at 0x4015B2E: _dl_relocate_object (dl-machine.h:301)
==7==
==7== ERROR SUMMARY: 5 errors from 5 contexts (suppressed: 0 from 0)
"""


def test_noise_of_cpython_is_not_told() -> None:
    assert only(NOISE, READER).messages is None
    assert diagnose(death(NOISE, READER), crash_rules()).verdict is None


def test_the_first_error_counts_not_the_last() -> None:
    text = REPORTS["heap"].replace("==29368==", "==1==").split("==1== \n==1== \n")[0]
    text += REPORTS["uaf"].replace("==29370==", "==1==")
    assert verdict(text, READER).rule == "heap-buffer-overflow"


def test_two_processes_are_two_pieces() -> None:
    assert len(pieces(REPORTS["heap"] + REPORTS["null"], READER)) == 2


def test_an_unallocated_block_is_behind_an_allocated_one() -> None:
    """From https://github.com/epochpic/epoch/issues/693, shortened."""
    text = """==156608== Invalid write of size 1
==156608==    at 0x4850B5D: mempcpy (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==156608==    by 0x4A023BD: _IO_file_xsgetn (fileops.c:1304)
==156608==    by 0x49F4FAE: fread (iofread.c:38)
==156608==    by 0x587D5A5: sdf_helper_read_array (sdf_input_cartesian.c:565)
==156608==  Address 0x22e5963f is 3,007 bytes inside an unallocated block of size 1,029,472 in arena "client"
"""
    found = verdict(text, READER)
    assert found.rule == "heap-buffer-overflow"
    assert found.culprit is not None and found.culprit.function == "sdf_helper_read_array"


def test_what_stands_in_a_header_of_the_library_is_not_blamed() -> None:
    """From https://github.com/MADEAPPS/newton-dynamics/issues/88."""
    text = """terminate called without an active exception
==8862== Process terminating with default action of signal 6 (SIGABRT): dumping core
==8862==    at 0xA1F066B: raise (in /usr/lib64/libc-2.26.so)
==8862==    by 0xA1F2380: abort (in /usr/lib64/libc-2.26.so)
==8862==    by 0x9955C60: std::terminate() (in /usr/lib64/libstdc++.so.6.0.24)
==8862==    by 0x54AA80F: ~thread (thread:135)
==8862==    by 0x54AA80F: dgThread::~dgThread() (dgThread.cpp:130)
==8862==    by 0x55A0427: dgWorld::~dgWorld() (dgWorld.cpp:308)
"""
    found = verdict(text, READER)
    assert found.rule == "abort"
    assert found.culprit is not None and found.culprit.function == "dgThread::~dgThread()"
