"""The kernel's lines on fatal signals: decoded, judged, and told from what looks like them."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.kernel_log import READER
from necropsy.model import Crash
from reading import only, pieces, verdict

# Printed by Linux 6.18 on x86-64 for python3.11 with a library that faults on purpose (ctypes), kernel prefix included.
READ_NEAR_NULL = """[ 1412.125001] python[15969]: segfault at 10 ip 00007f127e5d4119 sp 00007ffdff029190 error 4 in libcrash.so[1119,7f127e5d4000+1000] likely on CPU 1 (core 1, socket 0)
[ 1412.125035] Code: 2f 00 00 01 5d c3 0f 1f 00 c3 0f 1f 80 00 00 00 00 f3 0f 1e fa e9 77 ff ff ff 55 48 89 e5 48 c7 45 f8 10 00 00 00 48 8b 45 f8 <8b> 00 90 5d c3 55 48 89 e5 48 c7 45 f8 34 12 7f 00 48 8b 45 f8 c7"""
WRITE = "[ 1412.148539] python[15971]: segfault at 7f1234 ip 00007fb9eb1d512e sp 00007ffed65f5500 error 6 in libcrash.so[112e,7fb9eb1d5000+1000] likely on CPU 1 (core 1, socket 0)"
CALL_NULL = """[ 1412.164200] python[15973]: segfault at 0 ip 0000000000000000 sp 00007fff77dbdd88 error 14 likely on CPU 1 (core 1, socket 0)
[ 1412.164213] Code: Unable to access opcode bytes at 0xffffffffffffffd6."""
# A write to read-only data: its page had never been touched, so that the kernel does not call it a protection fault.
WRITE_READ_ONLY = "[ 1412.180473] python[15975]: segfault at 7f88305cd000 ip 00007f88305cc158 sp 00007fffb2e4f990 error 6 in libcrash.so[1158,7f88305cc000+1000] likely on CPU 0 (core 0, socket 0)"
RECURSION = "[ 1412.276528] python[15986]: segfault at 7fffb40c6fbc ip 00007f66e37bc1c9 sp 00007fffb40c6fb0 error 6 in libcrash.so[11c9,7f66e37bc000+1000] likely on CPU 0 (core 0, socket 0)"
IN_A_THREAD = "[ 1443.312504] python[16038]: segfault at 7f00c8c80fbc ip 00007f00ca1cb1c1 sp 00007f00c8c80fb0 error 6 in libcrash.so[11c1,7f00ca1cb000+1000] likely on CPU 1 (core 1, socket 0)"
LARGE_FRAME = "[ 1412.293346] python[15988]: segfault at 7ffda4466d15 ip 00007f1a479cc20f sp 00007ffda4466d88 error 6 in libcrash.so[120f,7f1a479cc000+1000] likely on CPU 0 (core 0, socket 0)"
KERNEL_ADDRESS = "[ 1443.221914] python[16027]: segfault at ffffffffffffffff ip 00007fadbe7c1221 sp 00007ffc9a813100 error 5 in libcrash.so[1221,7fadbe7c1000+1000] likely on CPU 1 (core 1, socket 0)"
JUMP_TO_DATA = "[ 1443.258819] python[16031]: segfault at 7f3a599c0040 ip 00007f3a599c0040 sp 00007ffe18dd5738 error 15 in libcrash.so[3040,7f3a599c0000+1000] likely on CPU 0 (core 0, socket 0)"
INVALID_OPCODE = "[ 1412.195944] traps: python[15977] trap invalid opcode ip:7f75417d3162 sp:7ffd88cc0640 error:0 in libcrash.so[1162,7f75417d3000+1000]"
PROTECTION = "[ 1412.222854] traps: python[15980] general protection fault ip:7efeb19f81a9 sp:7ffea9fc5560 error:0 in libcrash.so[11a9,7efeb19f8000+1000]"
BREAKPOINT = "[ 1412.239581] traps: python[15982] trap int3 ip:7fa8559be1b3 sp:7ffd73b3b800 error:0 in libcrash.so[11b3,7fa8559be000+1000]"
STACK_SEGMENT = "[ 1443.242995] traps: python[16029] trap stack segment ip:7f4e777ce234 sp:4141414141414141 error:0 in libcrash.so[1234,7f4e777ce000+1000]"
ALIGNMENT = "[ 1443.275649] traps: python[16033] trap alignment check ip:7f3838dd2272 sp:7fffba6aeae0 error:0 in libcrash.so[1272,7f3838dd2000+1000]"
DIVISION = "[ 1443.292251] traps: python[16035] trap divide error ip:7f94a4bce180 sp:7fff3f8cc240 error:0 in libcrash.so[1180,7f94a4bce000+1000]"
# The same kernel with kernel.print-fatal-signals = 1, os.abort().
FATAL_SIGNAL = """[ 1443.344563] python3.11: python: potentially unexpected fatal signal 6.
[ 1443.344642] CPU: 1 UID: 0 PID: 16043 Comm: python Not tainted 6.18.44-fc-v657 #1 PREEMPT(none)
[ 1443.344646] RIP: 0033:0x7fab73ea8eec
[ 1443.344652] Code: ff ff 0f 46 ea eb 89 0f 1f 80 00 00 00 00 b8 ba 00 00 00 0f 05 89 c3 e8 02 a6 04 00 44 89 e2 89 de 89 c7 b8 ea 00 00 00 0f 05 <89> c5 f7 dd 3d 00 f0 ff ff b8 00 00 00 00 0f 47 c5 e9 7a ff ff ff
[ 1443.344654] RSP: 002b:00007fff41e89280 EFLAGS: 00000246 ORIG_RAX: 00000000000000ea
[ 1443.344658] RAX: 0000000000000000 RBX: 0000000000003eab RCX: 00007fab73ea8eec
[ 1443.344666] FS:  00007fab74612b80 GS:  0000000000000000"""
SEGFAULT_AND_REGISTERS = """[ 1443.330288] python[16041]: segfault at 10 ip 00007f9c4dfbf119 sp 00007fff84f60b80 error 4 in libcrash.so[1119,7f9c4dfbf000+1000] likely on CPU 1 (core 1, socket 0)
[ 1443.330303] Code: 2f 00 00 01 5d c3 0f 1f 00 c3 <8b> 00 90 5d c3 55 48 89 e5 48 c7 45 f8 34 12 7f 00 48 8b 45 f8 c7
[ 1443.330340] python3.11: python: potentially unexpected fatal signal 11.
[ 1443.330355] CPU: 1 UID: 0 PID: 16041 Comm: python Not tainted 6.18.44-fc-v657 #1 PREEMPT(none)
[ 1443.330359] RIP: 0033:0x7f9c4dfbf119
[ 1443.330367] RSP: 002b:00007fff84f60b80 EFLAGS: 00010246
[ 1443.330370] RAX: 0000000000000010 RBX: 00007fff84f60d20 RCX: 00007f9c4d736cf0"""
# https://github.com/presto-osu/orlis-orcis/issues/4: a kernel that prints the mapping's beginning only.
OLD_KERNEL = "[2013042.849886] python2[4598]: segfault at da84cf8 ip 00007f7b2cbac94d sp 00007ffe4e250b60 error 4 in libc-2.27.so[7f7b2cb15000+1e7000]"
SYSLOG = "Nov  3 10:11:12 host-1 kernel: [ 1234.567890] python3: worker[812]: segfault at 8 ip 00007f0000001000 sp 00007ffc00000000 error 4 in _op.so[7f0000000000+2000]"
# linux-kernel, "arm64: traps: ..." threads; libnn_detect.so of a public forum post, with python3 for the demo's name.
ARM64 = """[  119.156884@1] python3[2510]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault in libnn_detect.so[7fbd4f0000+6000]
[  119.157935@1] CPU: 1 PID: 2510 Comm: python3 Tainted: G           O      4.19.81-01273-g6a022a5b259f2-dirty #1
[  119.159194@1] Hardware name: Amlogic Meson C2-C305X-AF400 (DT)
[  119.160380@1] pstate: 80001000 (Nzcv daif -PAN -UAO)
[  119.160530@1] pc : 0000007fbd4f2d2c
[  119.160960@1] lr : 0000007fbd4f2a4c"""
ARM64_OLD = "[  303.1] python[421]: unhandled level 2 translation fault (11) at 0x00000000, esr 0x82000006"
ARM64_TRAP = "[   41.112233] python3[1234]: unhandled exception: User debug trap in op.so[aaaab4560000+1000]"
ARM64_UNDEFINED = "[   27.555490] python3[2167]: undefined instruction: pc=0000007f939a0700"
POWERPC = (
    "[75519.758988] python3[1891185]: segfault (11) at 0 nip 0 lr 708aa3fe197c code 1 in libc.so.6[708aa3ca0000+260000]"
)
RISCV = """[  432.756225] python3[191]: unhandled signal 11 code 0x1 at 0x0000000000000130 in libop.so[2ab0456000+8f000]
[  432.838165] CPU: 0 PID: 191 Comm: python3 Not tainted 5.11.0 #1
[  432.879730] epc: 0000002ab048a3d4 ra : 0000002ab048a2e0 sp : 0000003fff97df10"""
# mm/memory-failure.c and kernel/auditsc.c of Linux 6.
BROKEN_MEMORY = "[ 8812.1] Memory failure: 0x1f3a2b: Sending SIGBUS to python:4711 due to hardware memory corruption"
AUDIT = 'type=1701 audit(1732185463.123:456): auid=1000 uid=1000 gid=1000 ses=3 pid=4711 comm="python3" exe="/usr/bin/python3.10" sig=11 res=1'
SECCOMP = 'audit: type=1326 audit(1732185463.123:457): auid=1000 uid=1000 gid=1000 ses=3 pid=4712 comm="python3" exe="/usr/bin/python3.10" sig=31 arch=c000003e syscall=317 compat=0 ip=0x7f12 code=0x80000000'
SAMPLES = [
    READ_NEAR_NULL,
    CALL_NULL,
    FATAL_SIGNAL,
    SEGFAULT_AND_REGISTERS,
    OLD_KERNEL,
    SYSLOG,
    ARM64,
    ARM64_OLD,
    POWERPC,
]
SAMPLES += [RISCV, BROKEN_MEMORY, AUDIT, PROTECTION, ARM64_TRAP, ARM64_UNDEFINED]


def frame(crash: Crash) -> tuple[str | None, int | None, int | None]:
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    first = crash.crashed_thread.frames[0]
    return first.module, first.module_offset, first.address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (READ_NEAR_NULL, ("SIGSEGV", None, 0x10, "read", 0x1119)),
        (WRITE, ("SIGSEGV", None, 0x7F1234, "write", 0x112E)),
        (WRITE_READ_ONLY, ("SIGSEGV", None, 0x7F88305CD000, "write", 0x1158)),
        (KERNEL_ADDRESS, ("SIGSEGV", None, 0xFFFFFFFFFFFFFFFF, "read", 0x1221)),
        (JUMP_TO_DATA, ("SIGSEGV", "SEGV_ACCERR", 0x7F3A599C0040, "exec", 0x3040)),
        (INVALID_OPCODE, ("SIGILL", "ILL_ILLOPN", 0x7F75417D3162, None, 0x1162)),
        (PROTECTION, ("SIGSEGV", "SI_KERNEL", None, None, 0x11A9)),
        (BREAKPOINT, ("SIGTRAP", "SI_KERNEL", None, None, 0x11B3)),
        (STACK_SEGMENT, ("SIGBUS", "SI_KERNEL", None, None, 0x1234)),
        (ALIGNMENT, ("SIGBUS", "BUS_ADRALN", None, None, 0x1272)),
        (DIVISION, ("SIGFPE", "FPE_INTDIV", 0x7F94A4BCE180, None, 0x1180)),
    ],
)
def test_x86(text: str, expected: tuple[str | int | None, ...]) -> None:
    signal, code, address, access, offset = expected
    crash = only(text, READER)
    fault = crash.fault
    assert fault is not None
    assert (fault.signal, fault.code, fault.address, fault.access) == (signal, code, address, access)
    assert frame(crash)[:2] == ("libcrash.so", offset)
    assert crash.exit is not None
    assert crash.exit.signal == signal
    assert crash.exit.text is not None
    assert crash.exit.text.startswith("python[")
    assert crash.pid is None, "the number is the thread's"
    assert crash.registers is not None
    assert crash.registers["rip"] == frame(crash)[2]


def test_without_the_name_of_the_process() -> None:
    """As it is copied into a command line or a forum."""
    (piece,) = pieces("segfault at 10 ip 00007f3a14c0 sp 00007ffc2000 error 6 in libfoo.so[7f3a1000+9000]", READER)
    (thread,) = piece.crash.threads or ()
    assert piece.crash.fault is not None
    assert (piece.crash.pid, thread.tid, thread.name) == (None, None, None)
    assert (piece.crash.fault.signal, piece.crash.fault.address, piece.crash.fault.access) == ("SIGSEGV", 0x10, "write")
    assert thread.frames is not None
    assert thread.frames[0].module == "libfoo.so"


def test_error_code_is_hexadecimal() -> None:
    crash = only(CALL_NULL, READER)
    assert crash.fault is not None
    assert crash.fault.access == "exec", "14 is 0x14: a fetch of an instruction by the program"


@pytest.mark.parametrize(("text", "full"), [(RECURSION, True), (IN_A_THREAD, True), (LARGE_FRAME, True), (WRITE, None)])
def test_address_beside_the_stack_pointer(text: str, full: bool | None) -> None:
    crash = only(text, READER)
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.stack is not None
    assert crash.crashed_thread.stack.guard_hit is full


def test_jump_into_the_stack_is_no_full_stack() -> None:
    text = JUMP_TO_DATA.replace("00007ffe18dd5738", "00007f3a599c0000")
    crash = only(text, READER)
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.stack is not None
    assert crash.crashed_thread.stack.guard_hit is None


def test_older_kernels_print_no_offset_in_the_file() -> None:
    crash = only(OLD_KERNEL, READER)
    assert frame(crash)[:2] == ("libc-2.27.so", 0x9794D)
    assert "readelf" in crash.gaps[0].why
    assert only(WRITE, READER).gaps == ()


def test_name_of_a_thread_behind_a_syslog_prefix() -> None:
    thread = only(SYSLOG, READER).crashed_thread
    assert thread is not None
    assert (thread.tid, thread.name) == (812, "worker")


def test_lines_with_registers_belong_to_the_death_above() -> None:
    (piece,) = pieces(SEGFAULT_AND_REGISTERS, READER)
    assert (piece.first, piece.last) == (1, 7)
    assert piece.crash.registers is not None
    assert piece.crash.registers["rbx"] == 0x7FFF84F60D20
    first, second = pieces(f"{SEGFAULT_AND_REGISTERS}\n{FATAL_SIGNAL}", READER)
    assert second.crash.crashed_thread is not None
    assert (first.last, second.first, second.crash.crashed_thread.tid) == (7, 8, 16043)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARM64, ("SIGSEGV", None, "write", None, "libnn_detect.so")),
        (ARM64_OLD, ("SIGSEGV", None, "exec", 0, None)),
        (ARM64_TRAP, ("SIGTRAP", "TRAP_BRKPT", None, None, "op.so")),
        (ARM64_UNDEFINED, ("SIGILL", "ILL_ILLOPC", None, 0x7F939A0700, None)),
        (POWERPC, ("SIGSEGV", "SEGV_MAPERR", None, 0, "libc.so.6")),
        (RISCV, ("SIGSEGV", "SEGV_MAPERR", None, 0x130, "libop.so")),
    ],
)
def test_other_processors(text: str, expected: tuple[str | int | None, ...]) -> None:
    signal, code, access, address, module = expected
    crash = only(text, READER)
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code) == (signal, code)
    assert (crash.fault.access, crash.fault.address) == (access, address)
    assert crash.crashed_thread is not None
    assert (crash.crashed_thread.frames[0].module if crash.crashed_thread.frames else None) == module


def test_program_counter_of_arm_stands_below() -> None:
    assert frame(only(ARM64, READER)) == ("libnn_detect.so", 0x2D2C, 0x7FBD4F2D2C)


def test_a_trap_is_read_from_its_bytes() -> None:
    text = FATAL_SIGNAL.replace("signal 6", "signal 4").replace("<89> c5", "<0f> 0b")
    instruction = only(text, READER).instruction
    assert instruction is not None
    assert instruction.mnemonic == "ud2"
    evex = only(text.replace("<0f> 0b f7", "<62> f1 7d"), READER).instruction
    assert evex is not None
    assert evex.cpu_feature == "avx512f"


def test_audit_log() -> None:
    crash = only(AUDIT, READER)
    assert crash.exit is not None
    assert (crash.pid, crash.exit.signal) == (4711, "SIGSEGV")
    end = only(SECCOMP, READER).exit
    assert end is not None
    assert end.signal == "SIGSYS"


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (READ_NEAR_NULL, "null-dereference", "16 bytes"),
        (WRITE, "invalid-write", "0x7f1234"),
        (CALL_NULL, "bad-jump", "null pointer"),
        (JUMP_TO_DATA, "bad-jump", "data and not code"),
        (RECURSION, "stack-overflow-recursion", "full"),
        (IN_A_THREAD, "stack-overflow-recursion", "full"),
        (INVALID_OPCODE, "illegal-instruction", "libcrash.so"),
        (PROTECTION, "invalid-read", "libcrash.so"),
        (BREAKPOINT, "deliberate-trap", "int3"),
        (ALIGNMENT, "misaligned-access", "not aligned"),
        (DIVISION, "integer-divide-by-zero", "libcrash.so"),
        (FATAL_SIGNAL, "abort", "abort()"),
        (FATAL_SIGNAL.replace("signal 6", "signal 4").replace("<89> c5", "<0f> 0b"), "deliberate-trap", "ud2"),
        (OLD_KERNEL, "invalid-read", "0xda84cf8"),
        (ARM64, "invalid-write", "libnn_detect.so"),
        (POWERPC, "null-dereference", "null pointer"),
        (BROKEN_MEMORY, "bus-error", "hardware"),
    ],
)
def test_verdict(text: str, rule: str, said: str) -> None:
    found = verdict(text, READER)
    assert found.rule == rule, found.summary
    assert said in found.summary


def test_culprit_is_the_library() -> None:
    culprit = verdict(WRITE, READER).culprit
    assert culprit is not None
    assert (culprit.module, culprit.function) == ("libcrash.so", None)


@pytest.mark.parametrize(
    "text",
    [
        "[  100.1] gnome-shell[2211]: segfault at 8 ip 00007f0000001000 sp 00007ffc00000000 error 4 in libst.so[7f0+2000]",
        "x86/split lock detection: #AC: python/4711 took a split_lock trap at address: 0x7f12",
        "the general protection of data",
        "a segfault at runtime",
        "segfault at 0",
        "general protection fault: 0000 [#1] SMP",
        "show_signal_msg: 5 callbacks suppressed",
        "unhandled exception: division by zero",
    ],
)
def test_what_is_no_death_of_a_program(text: str) -> None:
    assert pieces(text, READER) == []
