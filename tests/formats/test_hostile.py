"""Readers of debuggers, sanitizers and handlers survive any text, and take time in proportion to it."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed import printed

from necropsy.formats.pieces import Reader
from necropsy.formats.readers import (
    backward,
    compute_sanitizer,
    elfutils,
    gdb,
    glibc_backtrace,
    glog,
    lldb,
    llvm_backtrace,
    open_mpi,
    paddle,
    pyspy,
    pystack,
    runtimes,
    sanitizer,
    torch_backtrace,
    valgrind,
)
from reading import cut_and_mixed, lines_of, pieces, seconds

READERS: tuple[Reader, ...] = (
    *(gdb.READER, lldb.READER, sanitizer.READER, valgrind.READER, pystack.READER, pyspy.READER, elfutils.READER),
    *(glog.READER, open_mpi.READER, glibc_backtrace.READER, torch_backtrace.READER, paddle.READER, backward.READER),
    *(llvm_backtrace.READER, compute_sanitizer.READER, *runtimes.READERS),
)
SOURCES = {
    "gdb": ("gdb", ("null", "thread", "smash", "depth", "core_in_thread", "py")),
    "lldb": ("lldb", ("null", "depth", "jump")),
    "sanitizer": ("sanitizer", ("gasan.uaf", "gtsan.race", "cubsan.null", "gasan.leak", "casan.wild")),
    "valgrind": ("valgrind", ("heap", "uaf", "depth", "helgrind")),
    "pystack": ("pystack", ("core_native_null_member", "remote")),
    "py-spy": ("pyspy", ("native", "locals")),
    "elfutils": ("elfutils", ("core", "verbose")),
    "glog": ("glog", ("null", "check")),
    "llvm": ("llvm", ("clang",)),
    "java": ("java", ("sent",)),
}
OTHERS = (
    (
        "[h:1] *** Process received signal ***\n[h:1] Signal: Segmentation fault (11)\n[h:1] Failing at address: (nil)\n"
        "[h:1] [ 0] /lib/libc.so.6(+0x3ef20)[0x15]\n[h:1] *** End of error message ***\n"
        "[h:1:0:1] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)\n"
        "==== backtrace (tid: 1) ====\n 0 0x0000000000043090 killpg()  ???:0\n 1 0x00000000000a017f f()  /a.c:3\n"
    ),
    (
        "*** Error in `python': free(): invalid pointer: 0x1 ***\n======= Backtrace: =========\n/lib/libc.so.6(+0x1)[0x2]\n"
        "======= Memory map: ========\n00400000-00401000 r-xp 00000000 08:07 28 /usr/bin/python\n"
        "*** Segmentation fault\nRegister dump:\n RAX: 0000000000000000\n Trap: 0000000e   Error: 00000006   CR2: 00000010\n"
        "Backtrace:\n./op(f+0x1)[0x2]\n[bt] (0) /lib/a.so(+0x1) [0x2]\n"
    ),
    (
        "SIGSEGV(11), PID: 3, Thread 4:\nframe #0: c10::f() + 0x6b (0x7f in libc10.so)\nframe #1: g + 0x1 (0x8 in a.so)\n"
        "C++ Traceback (most recent call last):\n0   paddle::f()\nFatalError: `Segmentation fault` is detected by the operating"
        ' system.\nStack trace (most recent call last):\n#0    Object "a", at 0x7f, in f\nBus error (Address [0x1])\n'
    ),
    (
        " *** caught segfault ***\naddress 0x28, cause 'memory not mapped'\nsignal (11): Segmentation fault\nf at a.jl:3\n"
        "========= Invalid __global__ write of size 4\n=========     at f+0x1 in a.cu:3\n========= ERROR SUMMARY: 1 error\n"
    ),
)


@cache
def samples(kind: str) -> tuple[str, ...]:
    """Real texts of the reader's own kind, where there are some, and those of its neighbours."""
    tool, names = SOURCES.get(kind, ("glog", ("null",)))
    return (*(printed(tool)[name][:6000] for name in names), *OTHERS)


each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)


@each_reader
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_text_is_survived(reader: Reader, data: st.DataObject) -> None:
    text = data.draw(cut_and_mixed(samples(reader.kind)))
    lines = lines_of(text)
    for index, line in enumerate(lines):
        if index % 7 and not any(trigger in line.text for trigger in reader.triggers):
            continue
        piece = reader.read(lines, index)
        if piece is not None:
            assert 1 <= piece.first <= piece.last <= len(lines)
            assert piece.first <= line.number <= piece.last


@each_reader
def test_every_prefix_of_a_real_text(reader: Reader) -> None:
    for text in samples(reader.kind)[:2]:
        for end in range(0, len(text), 97):
            pieces(text[:end], reader)


HOSTILE = (
    "(" * 50_000,
    "#0  0x00007f in " + "f<" * 20_000 + "x",
    "#0  0x00007f in f (" + 'a="' * 20_000,
    "#0 0x7f in " + "a b:1 " * 9_000,
    "    @     0x7f " + "(unknown) " * 9_000,
    "[h:1] [ 0] " + "/a" * 20_000 + "(+0x1",
    "==1== " + "at 0x1: " * 9_000,
    "frame #0: 0x7f " + "`a" * 20_000,
    "    at 0x7f in " + "::" * 20_000,
    "_ZN" + "I" * 20_000,
    " " * 60_000 + "#0  ",
    "READ of size " + "1" * 20_000,
    '(Python) File "' + "\\" * 20_000,
)


@each_reader
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_long_line_takes_no_longer_than_it_is_long(reader: Reader, number: int) -> None:
    heads = "\n".join(trigger for trigger in reader.triggers[:4])
    row = HOSTILE[number]
    assert seconds("\n".join([heads, row, heads + row, row + heads]), reader) < 1.0


@each_reader
def test_many_triggers_take_linear_time(reader: Reader) -> None:
    """Without anything that belongs to them, and with a real text's lines between them."""

    def text(rows: int, between: list[str]) -> str:
        triggers = [reader.triggers[at % len(reader.triggers)] + f" {at}" for at in range(rows)]
        return "\n".join(f"{one}\n{between[at % len(between)]}" for at, one in enumerate(triggers))

    for between in ([""], samples(reader.kind)[0].split("\n")):
        assert seconds(text(4_000, between), reader) < 4.0


@each_reader
def test_what_is_read_again_is_the_same(reader: Reader) -> None:
    for text in samples(reader.kind):
        assert pieces(text, reader) == pieces(text, reader)
