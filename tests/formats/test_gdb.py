"""gdb's words become the crash that it saw, and the rules say what it was."""

from __future__ import annotations

from io import BytesIO

import pytest
from printed import printed

from necropsy.capture.merge import told
from necropsy.diagnose import diagnose
from necropsy.formats import exit_status, gdb_frames, log
from necropsy.formats.readers.gdb import READER
from necropsy.model import Address, Crash, Frame, Thread
from necropsy.rules import crash_rules
from reading import death, only, pieces, verdict

GDB = printed("gdb")


def crashed(crash: Crash) -> Thread:
    assert crash.crashed_thread is not None
    return crash.crashed_thread


def frames(crash: Crash) -> tuple[Frame, ...]:
    return crashed(crash).frames or ()


def fault(crash: Crash) -> tuple[object, ...]:
    assert crash.fault is not None
    return crash.fault.signal, crash.fault.code, crash.fault.address, crash.fault.access


# ---------------------------------------------------------------- what the real gdb printed


@pytest.mark.parametrize(
    ("name", "rule", "confidence", "culprit"),
    [
        ("null", "null-dereference", "certain", "op::Node::weight"),
        ("write", "null-dereference", "certain", "null_write"),
        ("sum", "null-dereference", "likely", "op::Kernel<int>::Sum"),
        ("div", "integer-divide-by-zero", "certain", "divide"),
        ("check", "assertion-failed", "certain", "check"),
        ("twice", "double-free", "certain", "twice"),
        ("throws", "uncaught-cpp-exception", "certain", "throws"),
        ("smash", "stack-smash", "certain", "smash"),
        ("jump", "bad-jump", "certain", "jump"),
        ("trap", "deliberate-trap", "certain", "trap"),
        ("thread", "null-dereference", "certain", "null_write"),
        ("wild", "invalid-read", "likely", "read_at"),
        ("depth", "stack-overflow-recursion", "certain", "op::Depth"),
        ("all", "null-dereference", "likely", "null_write"),
        ("py", "invalid-read", "possible", "op::Node::weight"),
        ("core_in_thread", "null-dereference", "likely", "null_write"),
    ],
)
def test_verdict(name: str, rule: str, confidence: str, culprit: str) -> None:
    found = verdict(GDB[name], READER)
    assert (found.rule, found.confidence) == (rule, confidence)
    assert found.culprit is not None and found.culprit.function == culprit


@pytest.mark.parametrize("name", ["null", "write", "div", "check", "jump", "smash", "depth"])
def test_verdict_without_the_log_around_it(name: str) -> None:
    """The backtrace alone, as most people paste it: nothing else may be called certain."""
    rows = GDB[name].split("\n")
    start = next(at for at, row in enumerate(rows) if "received signal" in row)
    whole, alone = verdict(GDB[name], READER), verdict("\n".join(rows[start:]), READER)
    assert alone.rule == whole.rule


def test_fault_and_instruction() -> None:
    crash = only(GDB["write"], READER)
    assert fault(crash) == ("SIGSEGV", None, 0, None)
    assert crash.instruction is not None
    assert (crash.instruction.text, crash.instruction.mnemonic) == ("mov %edx,(%rax)", "mov")
    (operand,) = crash.instruction.operands
    assert (operand.access, operand.address, operand.registers) == ("write", 0, {"rax": Address(0)})
    assert crash.registers is not None and crash.registers["rdx"] == 7


def test_an_address_that_the_kernel_does_not_know_is_none() -> None:
    crash = only(GDB["wild"], READER)
    assert fault(crash) == ("SIGSEGV", None, None, None)


def test_si_addr_of_an_abort_is_no_address() -> None:
    assert "si_addr = 0x" in GDB["check"]
    assert fault(only(GDB["check"], READER))[2] is None


def test_a_jump_to_null_has_no_instruction() -> None:
    crash = only(GDB["jump"], READER)
    assert fault(crash) == ("SIGSEGV", None, 0, "exec")
    assert crash.instruction is not None and crash.instruction.text is None


def test_threads_have_their_ids_and_frames() -> None:
    crash = only(GDB["all"], READER)
    assert [(one.tid, one.name, one.crashed) for one in crash.threads or ()] == [
        (15834, "python", True),
        (15831, "python", False),
    ]
    first = frames(crash)[0]
    assert (first.function, first.module, first.source, first.line) == ("null_write", "./libop.so", "op.cc", 21)
    assert first.locals == {"p": "0x0"}
    other = (crash.threads or ())[1]
    assert other.frames_total == 36
    assert other.waits is not None and other.waits.call == "futex"
    assert crash.modules is not None and any(one.path.endswith("libpython3.11.so.1.0") for one in crash.modules)


def test_the_thread_of_a_core_that_died() -> None:
    thread = crashed(only(GDB["core_in_thread"], READER))
    assert (thread.tid, [one.function for one in thread.frames or ()]) == (
        27835,
        ["null_write", "worker", "start_thread", "clone3"],
    )


def test_python_frames_of_py_bt() -> None:
    thread = crashed(only(GDB["py"], READER))
    assert [(one.function, one.source, one.line) for one in thread.python or ()][:3] == [
        ("run", "/src/call.py", 4),
        ("main", "/src/call.py", 7),
        ("<module>", "/src/call.py", 8),
    ]


def test_a_stack_that_is_left_out_in_the_middle_is_one_recursion() -> None:
    crash = only(GDB["depth"], READER)
    thread = crashed(crash)
    assert thread.frames_total == 74885
    assert thread.stack is not None and thread.stack.guard_hit is True
    (fold,) = thread.folds
    assert (fold.period, fold.functions, fold.start) == (1, ("op::Depth",), 0)
    assert fold.times > 74000
    assert any("33 of 74,885" in gap.why for gap in crash.gaps)


# ---------------------------------------------------------------- a recursion that is pasted in part


def recursion(first: int, last: int) -> list[str]:
    """Frames of two functions that call each other, as gdb prints them without debug information."""
    names = ("op::Odd(int)", "op::Even(int)")
    return [f"#{at:<3} 0x00007ffff75da23f in {names[at % 2]} () from ./libop.so" for at in range(first, last)]


HEAD = ["Program received signal SIGSEGV, Segmentation fault.", "0x00007ffff75da233 in op::Odd(int) () from ./libop.so"]


def test_the_two_ends_of_a_deep_stack() -> None:
    text = [*HEAD, *recursion(0, 58000), "#58000 0x0000555555555081 in _start ()"]
    found = verdict("\n".join(text), READER)
    assert (found.rule, found.confidence) == ("stack-overflow-recursion", "likely")
    assert "28,999 times" in found.summary  # the period in which the two ends meet may be counted in neither


@pytest.mark.parametrize(
    ("shown", "more", "expected"),
    [
        (1200, False, ("stack-overflow-recursion", "likely")),
        (500, True, ("stack-overflow-recursion", "likely")),
        (60, True, ("stack-overflow-recursion", "possible")),
        (40, False, ("stack-overflow-recursion", "possible")),
        (12, False, ("invalid-read", "possible")),
    ],
)
def test_how_deep_it_went_is_as_sure_as_what_is_shown(shown: int, more: bool, expected: tuple[str, str]) -> None:
    text = [*HEAD, *recursion(0, shown), *(["(More stack frames follow...)"] if more else [])]
    found = verdict("\n".join(text), READER)
    assert (found.rule, found.confidence) == expected
    if expected[0] == "stack-overflow-recursion":
        assert "at least" in found.summary


def test_ordinary_recursion_that_ends_in_main_is_none() -> None:
    text = [*HEAD, *recursion(0, 90), "#90 0x00005555555551a0 in main ()"]
    assert verdict("\n".join(text), READER).rule == "invalid-read"


def test_a_null_pointer_at_the_end_of_a_recursion_is_a_null_pointer() -> None:
    text = [*HEAD, *recursion(0, 3000), "$1 = {si_addr = 0x8, _addr_lsb = 0}"]
    assert verdict("\n".join(text), READER).rule == "null-dereference"


# ---------------------------------------------------------------- forms of other versions and ways to paste


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            "#0  0x00007f3bd9b67a3d in Frame::read_local (frame_addr=0xffffffff, prev_addr=0x7f3b) at ./echion/frame.h:464",
            ("Frame::read_local", None, "./echion/frame.h", 464),
        ),
        (
            "#3  0x00007ffff1 in std::function<void (int)>::operator()(int) const () from /usr/lib/libop.so",
            ("std::function<void (int)>::operator()(int) const", "/usr/lib/libop.so", None, None),
        ),
        ("#12 op::(anonymous namespace)::f (x=1) at a.cc:3", ("op::(anonymous namespace)::f", None, "a.cc", 3)),
        (
            "#1  0x00007f12 in operator<< <char> (os=..., value=0x0) at /usr/include/ostream:12",
            ("operator<< <char>", None, "/usr/include/ostream", 12),
        ),
        ("#2  0x00007f in ?? () from /lib64/libcuda.so.1", (None, "/lib64/libcuda.so.1", None, None)),
        ("#2  0x00007f in _ZN2op4FillEPii () from libop.so", ("op::Fill", "libop.so", None, None)),
        (
            '#4  0x00007f in __assert_fail_base (fmt=0x7f "%s%s(%s:%u", line=27) at assert.c:92',
            ("__assert_fail_base", None, "assert.c", 92),
        ),
        ("#5  <signal handler called>", ("<signal handler called>", None, None, None)),
    ],
)
def test_frame(row: str, expected: tuple[object, ...]) -> None:
    from reading import lines_of

    found = gdb_frames.frame_at(lines_of(row), 0)
    assert found is not None
    frame = found.frame
    assert (frame.function, frame.module, frame.source, frame.line) == expected


def test_frames_that_the_terminal_broke() -> None:
    text = """Program received signal SIGABRT, Aborted.
#0  __GI_raise (sig=sig@entry=6) at ../sysdeps/unix/sysv/linux/raise.c:51
#1  0x00007ffff7a242f1 in __GI_abort () at abort.c:79
#2  0x00007fffe8b0e0a5 in tensorflow::Tensor::CheckTypeAndIsAligned (this=0x7fffffffd0a0,
    expected_dtype=tensorflow::DT_FLOAT)
    at tensorflow/core/framework/tensor.cc:620
#3  0x00007fffe77c9a40 in main ()
"""
    shown = frames(only(text, READER))
    assert (shown[2].function, shown[2].source, shown[2].line) == (
        "tensorflow::Tensor::CheckTypeAndIsAligned",
        "tensorflow/core/framework/tensor.cc",
        620,
    )
    assert [one.index for one in shown] == [0, 1, 2, 3]


def test_quoted_and_indented_as_in_a_mail() -> None:
    text = "\n".join(f"> {row}" for row in GDB["thread"].split("\n"))
    assert verdict(text, READER).rule == "null-dereference"


def test_a_handler_is_not_blamed_for_what_it_caught() -> None:
    text = """Program terminated with signal SIGABRT, Aborted.
#0  0x00007f in raise () from /lib64/libc.so.6
#1  0x00007f in abort () from /lib64/libc.so.6
#2  0x00007f in os::abort(bool) () from /usr/lib/jvm/libjvm.so
#3  0x00007f in JVM_handle_linux_signal (sig=11, info=0x7f, ucVoid=0x7f) at os_linux.cpp:541
#4  <signal handler called>
#5  0x00007f in op::Load (p=0x10) at op.cc:3
#6  0x00007f in main () at op.cc:9
"""
    crash = only(text, READER)
    assert crash.fault is not None and crash.fault.handled_first
    assert crash.fault.signal == "SIGSEGV"
    assert [one.function for one in frames(crash)] == ["op::Load", "main"]
    assert [one.index for one in frames(crash)] == [0, 1]


def test_a_process_that_somebody_looks_into_has_not_crashed() -> None:
    text = """(gdb) bt
#0  __lll_lock_wait () at ../sysdeps/unix/sysv/linux/x86_64/lowlevellock.S:135
#1  0x00007fc73a873dbd in __GI___pthread_mutex_lock (mutex=0x5606dd44d080) at ../nptl/pthread_mutex_lock.c:80
#2  0x00007fc733b1b7b1 in __kmp_lock_suspend_mx () from /usr/lib/libiomp5.so
"""
    crash = only(text, READER)
    assert crash.exit is not None and crash.exit.kind == "running"
    assert crash.fault is None and crash.crashed_thread is None
    (thread,) = crash.threads or ()
    assert thread.waits is not None and thread.waits.on == "the lock at 0x5606dd44d080"
    found = verdict(text, READER)
    assert found.rule == "hang"
    assert found.culprit is not None and found.culprit.function == "__kmp_lock_suspend_mx"


def test_ctrl_c_is_no_death() -> None:
    text = GDB["thread"].replace("SIGSEGV, Segmentation fault", "SIGINT, Interrupt")
    crash = only(text, READER)
    assert crash.fault is None and crash.exit is not None and crash.exit.kind == "running"


def test_exit_codes_are_octal() -> None:
    crash = only("[Inferior 1 (process 4242) exited with code 0206]", READER)
    assert crash.exit is not None and crash.exit.code == 0o206


def test_a_windows_status_in_octal() -> None:
    crash = only("[Inferior 1 (process 5032) exited with code 030000000375]", READER)
    assert crash.exit is not None and crash.exit.ntstatus is not None
    assert crash.exit.ntstatus.name == "STATUS_STACK_OVERFLOW"


def test_a_large_frame_touches_its_own_stack_where_it_has_ended() -> None:
    text = """Program received signal SIGSEGV, Segmentation fault.
0x0000555555555171 in op::Big (rows=<error reading variable: Cannot access memory at address 0x7ffffd9cd3bc>) at op.cc:9
#0  0x0000555555555171 in op::Big (rows=<error reading variable: Cannot access memory at address 0x7ffffd9cd3bc>) at op.cc:9
#1  0x00005555555551a0 in main () at op.cc:20
"""
    thread = crashed(only(text, READER))
    assert thread.stack is not None and thread.stack.guard_hit is True
    assert verdict(text, READER).rule.startswith("stack-overflow")


def test_two_deaths_are_two_pieces() -> None:
    text = GDB["thread"] + "\n" + GDB["div"]
    assert [piece.crash.fault and piece.crash.fault.signal for piece in pieces(text, READER)] == ["SIGSEGV", "SIGFPE"]


def test_what_an_abort_was_told_is_heard() -> None:
    text = """#0  0x00007f in __GI_raise (sig=6) at raise.c:51
#3  0x00007f in __GI_abort () at abort.c:79
#4  0x000055 in fatal_error_exit (status=-1) at Python/pylifecycle.c:2553
#5  fatal_error (fd=2, header=1, prefix=0x55 <__func__.6> "PyThreadState_Get", msg=0x56 "the GIL is released") at x.c:1
#6  0x000055 in memray::install () at src/memray/api.cpp:960
"""
    crash = only(text, READER)
    (message,) = crash.messages or ()
    assert message.kind == "python-fatal"
    assert "PyThreadState_Get" in message.text
    assert message.where == "frame 5 of the backtrace"


def test_prose_with_numbers_is_no_backtrace() -> None:
    text = "I have two problems\n#0  the install (see above) fails\n#1  the import (with 0x10) fails too\n"
    assert pieces(text, READER) == []


def test_the_readers_reach_is_kept() -> None:
    """A backtrace that is longer than the reader may look at ends where its reach does."""
    text = "\n".join([*HEAD, *recursion(0, 9000)])
    assert all(piece.last - piece.first <= 2 * READER.reach for piece in pieces(text, READER))


def test_death_has_the_log_and_the_stack() -> None:
    crash = death(GDB["throws"], READER)
    assert {"cpp-terminate"} <= {message.kind for message in crash.messages or ()}
    assert crash.crashed_thread is not None


def test_a_bare_backtrace_and_a_code_are_one_death() -> None:
    rows = [row for row in GDB["thread"].split("\n") if row.startswith("#")]
    digest_of = log.digest(BytesIO("\n".join(rows).encode()))
    report = diagnose(told(exit_status.read(["139"]), [digest_of]).crash, crash_rules())
    assert report.verdict is not None and report.verdict.rule == "null-dereference"
    assert report.verdict.culprit is not None and report.verdict.culprit.function == "null_write"


def test_a_file_with_a_hundred_thousand_frames() -> None:
    """The scan of a log keeps both ends of a text that is too long to be kept whole."""
    text = [*HEAD, *recursion(0, 100_000), "#100000 0x0000555555555081 in _start ()"]
    digest = log.digest(BytesIO("\n".join(text).encode()))
    crash = told((), [digest]).crash
    assert crash.crashed_thread is not None and crash.crashed_thread.frames_total == 100_001
    report = diagnose(crash, crash_rules())
    assert report.verdict is not None
    assert (report.verdict.rule, report.verdict.confidence) == ("stack-overflow-recursion", "likely")
