"""Every reader survives any text, and takes work in proportion to it: counted, so that it is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
import test_apple
import test_core_dump_notice
import test_exit_phrases
import test_faulthandler
import test_jvm
import test_kernel_log
import test_llvm_windows
import test_oom_killer
import test_runtimes
import test_tracebacks
import test_visual_studio
import test_windbg
import test_windows_dialog
import test_windows_error_report
from hypothesis import given, settings
from hypothesis import strategies as st
from printed import TEXTS, printed

from counted import linear
from necropsy.formats.exit_phrases import forms
from necropsy.formats.readers import readers
from necropsy.formats.text_reports import TextReader
from reading import cut_and_mixed, pieces, survive

EACH = 1500
"""Steps that a character may cost: what a reader asks of a line is no more than a few dozen patterns."""


def module(reader: TextReader) -> str:
    """The reader's module; of those that one table describes, the kind."""
    name = reader.read.__module__.rsplit(".", 1)[-1]
    return reader.kind if name == "stack_forms" else name


# ---------------------------------------------------------------- the table

PRINTED = {
    "gdb": ("gdb", ("null", "thread", "smash", "depth", "core_in_thread", "py")),
    "lldb": ("lldb", ("null", "depth", "jump")),
    "sanitizer": ("sanitizer", ("gasan.uaf", "gtsan.race", "cubsan.null", "gasan.leak", "casan.wild")),
    "valgrind": ("valgrind", ("heap", "uaf", "depth", "helgrind")),
    "pystack": ("pystack", ("core_native_null_member", "remote")),
    "pyspy": ("pyspy", ("native", "locals")),
    "elfutils": ("elfutils", ("core", "verbose")),
    "glog": ("glog", ("null", "check")),
    "llvm": ("llvm", ("clang",)),
    "jvm": ("java", ("sent",)),
}
"""Where the real texts of a module's readers are: the file and the names in it."""
HANDLERS = (
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
SAMPLES: dict[str, Sequence[str]] = {
    "apple_crash_text": test_apple.ALL_TEXT,
    "apple_ips": test_apple.ALL_IPS,
    "apple_lines": test_apple.ALL_LINES,
    "core_dump_notice": test_core_dump_notice.SAMPLES,
    "drawn_tracebacks": (*test_tracebacks.DRAWN, *test_tracebacks.PRINTED),
    "endings": (
        "\n".join(form.example for form in forms()),
        test_exit_phrases.INSPECT % ("true", 137),
        test_exit_phrases.DESCRIBE,
    ),
    "endings_shells": ["\n".join(row[0] for row in test_exit_phrases.SHELL_LINES)],
    "faulthandler": test_faulthandler.SAMPLES,
    "jvm": test_jvm.SAMPLES,
    "kernel_log": test_kernel_log.SAMPLES,
    "llvm-windows": (test_llvm_windows.TORCH, test_llvm_windows.NEWER),
    "oom_killer": test_oom_killer.SAMPLES,
    "pytest_failures": (test_tracebacks.PYTEST, *test_tracebacks.PRINTED),
    **dict.fromkeys(
        ("r", "julia", "runtime"),
        (test_runtimes.R, test_runtimes.JULIA, test_runtimes.ANDROID, test_runtimes.RUST, test_runtimes.GO),
    ),
    "visual_studio": test_visual_studio.SAMPLES,
    "windbg": test_windbg.SAMPLES,
    "windows_dialog": test_windows_dialog.SAMPLES,
    "windows_error_report": test_windows_error_report.SAMPLES,
}
OWN: dict[str, tuple[str, ...]] = {
    "apple_crash_text": ("Exception Type: EXC_CRASH ", "0 a 0x1 b + ", " Crashed:"),
    "apple_ips": ('"exception" : {', '{"bug_type":"309"}[[[['),
    "apple_lines": ("dyld: Library not loaded: Reason: ",),
    "core_dump_notice": (
        "Process 1 (a) of user 0 dumped core",
        "#0 0x1 n/a (a + 0x1) ",
        "Stack trace of thread 1:",
        "SegvAnalysis: ",
        " #012",
    ),
    "kernel_log": (
        "segfault at 0 ",
        "a[1]: segfault at 0 ip 0 sp 0 error 4 in ",
        "type=1701 pid=1 ",
        "trap int3 ",
        "][",
    ),
    "llvm-windows": ("Exception Code: 0xC0000094 0x00000000, a(0x00000000) + 0x1 byte(s), ",),
    "oom_killer": (
        "x invoked oom-killer: ",
        "Killed process 1 (a) ",
        "oom-kill:constraint=A,task=",
        "memory: usage 1kB, limit 1kB",
        "oom_reaper: ",
    ),
    "visual_studio": (
        "Unhandled exception at 0x00000000 ",
        "a.dll!b() Line 1 ",
        "0xC0000005: 异常 0x00000000",
        "R = 0",
        "a.dll!b() + 0x",
    ),
    "windbg": (
        "STACK_TEXT: a!b+0x1 ",
        "00 00000041`cadfda10 00007ffc`5d5a1f9f ",
        "rax=0 ",
        "ExceptionCode: c0000005 ",
        "(1.2): ",
    ),
    "windows_dialog": (
        "referenced memory at 0x00000000 ",
        "0x00000000 指令引用了",
        "(0xc000007b)",
        "Assertion failed: , file ",
        "由于找不到 a",
    ),
    "windows_error_report": ("a, 1.2.3.4, 0x1 ", "0xc0000005 ", "Event Name: APPCRASH ", ": BEX", ",", "1.1.1.1,"),
}
"""What may be written over and over again and looks each time as if the reader's own form began."""
BLOCKS: dict[str, tuple[str, ...]] = {
    "faulthandler": ("Current thread 0x1 (most recent call first):\n" + '  File "a.py", line 1 in f\n' * 1000,),
    "llvm-windows": ("\n".join(["Exception Code: 0xC0000094", *[OWN["llvm-windows"][0] * 5] * 3]),),
    "oom_killer": tuple("\n".join([unit, *["x"] * 50]) for unit in OWN["oom_killer"]),
}
"""Several lines that come over and over again, beside the real texts."""
ROWS = (
    ("", "("),
    ("#0  0x00007f in ", "f<"),
    ("#0  0x00007f in f (", 'a="'),
    ("#0 0x7f in ", "a b:1 "),
    ("    @     0x7f ", "(unknown) "),
    ("[h:1] [ 0] ", "/a"),
    ("==1== ", "at 0x1: "),
    ("frame #0: 0x7f ", "`a"),
    ("    at 0x7f in ", "::"),
    ("_ZN", "I"),
    ("", " "),
    ("READ of size ", "1"),
    ('(Python) File "', "\\"),
)
"""How a line begins and what it then repeats."""
FILLERS = ("(", " ", "1", "a ", "-", '"', "[", ": ", "0x")


@cache
def samples(name: str) -> tuple[str, ...]:
    """Real texts of the module's own readers, where there are some, and those of their neighbours."""
    tool, names = PRINTED.get(name, ("glog", ("null",)))
    real = tuple(printed(tool)[one][:6000] for one in names) if name in PRINTED or name not in SAMPLES else ()
    if name not in PRINTED and (TEXTS / f"{name}.txt").exists():
        real = tuple(text[:6000] for text in printed(name).values())
    return (*SAMPLES.get(name, ()), *real, *(HANDLERS if name not in SAMPLES else ()))


def filled(begin: str, unit: str, size: int) -> str:
    return (begin + unit * (size // len(unit) + 1))[:size]


each_reader = pytest.mark.parametrize("reader", readers(), ids=lambda reader: f"{reader.kind}: {reader.triggers[0]}")


def test_the_table_is_of_modules_that_there_are() -> None:
    assert {*PRINTED, *SAMPLES, *OWN, *BLOCKS} <= {module(reader) for reader in readers()}


@pytest.mark.parametrize("name", sorted({module(reader) for reader in readers()}))
def test_each_reader_reads_a_real_text(name: str) -> None:
    of_module = [reader for reader in readers() if module(reader) == name]
    assert any(pieces(text, reader) for reader in of_module for text in samples(name)), (
        f"no text is known that formats/readers/{name}.py reads: write one that was really printed to "
        f"tests/formats/texts/{name}.txt, below a line `=== NAME`"
    )


# ---------------------------------------------------------------- any text


@each_reader
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_text_is_survived(reader: TextReader, data: st.DataObject) -> None:
    survive(data.draw(cut_and_mixed(samples(module(reader)))), reader)


@each_reader
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_text_around_a_trigger_is_survived(reader: TextReader, data: st.DataObject) -> None:
    before, behind = data.draw(st.text(max_size=60)), data.draw(st.text(max_size=60))
    pieces(before + data.draw(st.sampled_from(reader.triggers)) + behind, reader)


@each_reader
def test_every_prefix_of_a_real_text(reader: TextReader) -> None:
    for text in samples(module(reader))[:2]:
        for end in range(0, min(len(text), 6000), 97):
            pieces(text[:end], reader)


@each_reader
def test_what_is_read_again_is_the_same(reader: TextReader) -> None:
    for text in samples(module(reader)):
        assert pieces(text, reader) == pieces(text, reader)


# ---------------------------------------------------------------- work


@pytest.mark.slow
@each_reader
def test_a_long_line_takes_no_more_than_it_is_long(reader: TextReader) -> None:
    heads = "\n".join(reader.triggers[:4])

    def text(begin: str, unit: str) -> Callable[[int], str]:
        def made(size: int) -> str:
            row = filled(begin, unit, size)
            return "\n".join([heads, row, heads + row, row + heads])

        return made

    for begin, unit in (*ROWS, *(("", unit) for unit in OWN.get(module(reader), ()))):
        linear(text(begin, unit), reader, 2_000, each=EACH)


def repeated(block: str) -> Callable[[int], str]:
    """Texts in which ``block`` is repeated a given number of times."""
    return lambda times: "\n".join([block] * times)


@each_reader
def test_many_lines_take_no_more_than_they_are_many(reader: TextReader) -> None:
    for unit in OWN.get(module(reader), ()):
        linear(repeated(filled("", unit, 300)), reader, 80, each=EACH)


@each_reader
def test_a_trigger_in_a_long_line_costs_little(reader: TextReader) -> None:
    """Lines of up to 4,096 characters: longer ones are cut before a reader sees them."""
    for at, filler in enumerate((*FILLERS, reader.triggers[0])):
        word = reader.triggers[at % len(reader.triggers)]
        around = [filled("", filler, size) for size in (512, 2_000)]

        def text(size: int, word: str = word, around: list[str] = around) -> str:
            return "\n".join([around[size > 1] + word + around[size > 1]] * 2)

        linear(text, reader, 1, each=EACH)


@pytest.mark.slow
@each_reader
def test_many_triggers_take_linear_work(reader: TextReader) -> None:
    """Without anything that belongs to them, and with a real text's lines between them."""
    for between in ([""], samples(module(reader))[0].split("\n")):

        def text(rows: int, between: list[str] = between) -> str:
            triggers = [reader.triggers[at % len(reader.triggers)] + f" {at}" for at in range(rows)]
            return "\n".join(f"{one}\n{between[at % len(between)]}" for at, one in enumerate(triggers))

        linear(text, reader, max(100, len(reader.triggers)), each=EACH)


@each_reader
def test_the_same_text_over_and_over_again_takes_linear_work(reader: TextReader) -> None:
    blocks = ("\n".join(samples(module(reader))), *BLOCKS.get(module(reader), ()))
    for block in blocks:
        linear(repeated(block), reader, max(1, 3_000 // len(block)), each=EACH)
