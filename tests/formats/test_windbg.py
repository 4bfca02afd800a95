"""WinDbg's and cdb's sessions: the exception, the stack, and which of several is the one that counts."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.windbg import READER
from necropsy.model import Crash
from reading import only, pieces, verdict

# The parts of a public session on abort() in ucrtbase.dll (cdb -z, `.exr -1`, `k`), with a TensorFlow op as its caller.
ABORT = r"""Loading Dump File [python.exe.16972.dmp]
0:000> .exr -1
ExceptionAddress: 00007ffd98c5527e (ucrtbase!abort+0x000000000000004e)
   ExceptionCode: c0000409 (Security check failure or stack buffer overrun)
  ExceptionFlags: 00000001
NumberParameters: 1
   Parameter[0]: 0000000000000007
Subcode: 0x7 FAST_FAIL_FATAL_APP_EXIT
0:000> .ecxr; k
 # Child-SP          RetAddr               Call Site
00 000000e5`d51fe8a0 00007ffb`5ede21ef     ucrtbase!abort+0x4e
01 000000e5`d51fe8d0 00007ffb`5edfa3dd     tensorflow_framework!tsl::internal::LogMessageFatal::~LogMessageFatal+0x3d
02 000000e5`d51fe920 00007ffb`5ee06a1b     _my_op!MyOp::Compute+0xcb [D:\src\my_op.cc @ 42]
03 000000e5`d51ff410 00007ffb`5ee0a75a     python311!PyEval_EvalFrameDefault+0x88b

quit:"""
# https://github.com/ApeWorX/web3.py/issues/2253 has these fields; the values are those of a null pointer in an extension.
ANALYZE = r"""*******************************************************************************
*                        Exception Analysis                                   *
*******************************************************************************

KEY_VALUES_STRING: 1

    Key  : AV.Dereference
    Value: NullClassPtr

    Key  : WER.Process.Version
    Value: 3.9.9150.1013

CONTEXT:  (.ecxr)
rax=0000000000000000 rbx=0000020e1c075f10 rcx=0000000000000000
rdx=0000000000000001 rsi=0000000000000000 rdi=0000020e1c047668
rip=00007ffe4b1bd3e7 rsp=00000000005eab30 rbp=0000000000000000
iopl=0         nv up ei pl nz na po nc
cs=0033  ss=002b  ds=002b  es=002b  fs=0053  gs=002b             efl=00010206
functoolz_cp39_win_amd64!PyInit_functoolz+0x1a7:
00007ffe`4b1bd3e7 488b4008        mov     rax,qword ptr [rax+8] ds:00000000`00000008=????????????????
Resetting default scope

EXCEPTION_RECORD:  (.exr -1)
ExceptionAddress: 00007ffe4b1bd3e7 (functoolz_cp39_win_amd64!PyInit_functoolz+0x00000000000001a7)
   ExceptionCode: c0000005 (Access violation)
  ExceptionFlags: 00000000
NumberParameters: 2
   Parameter[0]: 0000000000000000
   Parameter[1]: 0000000000000008
Attempt to read from address 0000000000000008

PROCESS_NAME:  python.exe

READ_ADDRESS:  0000000000000008

ERROR_CODE: (NTSTATUS) 0xc0000005 - The instruction at 0x%p referenced memory at 0x%p. The memory could not be %s.

EXCEPTION_CODE_STR:  c0000005

EXCEPTION_PARAMETER1:  0000000000000000

EXCEPTION_PARAMETER2:  0000000000000008

STACK_TEXT:
00000000`005eab30 00007ffe`10c417bd     : 0000020e`1c047668 0000020e`1c075f10 00000000`00000000 00000000`00000001 : functoolz_cp39_win_amd64!PyInit_functoolz+0x1a7
00000000`005eab60 00007ffd`4b244bf6     : 00000000`00000000 0000020e`1c047668 0000020e`1c075f10 00000000`00000000 : functoolz_cp39_win_amd64+0x17bd
00000000`005eabf0 00007ffd`4b1be149     : 00000000`00000000 00000000`00000000 00000000`00000000 00000000`00000000 : python39!PyObject_MakeTpCall+0xa2
00000000`005eac50 00000000`00000000     : 00000000`00000000 00000000`00000000 00000000`00000000 00000000`00000000 : python39!PyObject_FastCallDictTstate+0x115


SYMBOL_NAME:  functoolz_cp39_win_amd64!PyInit_functoolz+1a7

MODULE_NAME: functoolz_cp39_win_amd64

IMAGE_NAME:  functoolz.cp39-win_amd64.pyd

FAILURE_BUCKET_ID:  NULL_CLASS_PTR_READ_c0000005_functoolz.cp39-win_amd64.pyd!PyInit_functoolz

Followup:     MachineOwner"""
# https://github.com/microsoft/WSL/issues/7540: a dump that was opened.
DUMP = """(6fd4.2198): Security check failure or stack buffer overrun - code c0000409 (first/second chance not available)
For analysis of this file, run !analyze -v
ucrtbase!abort+0x4e:
00007ffb`26fd286e cd29            int     29h

    Key  : FailFast.Name
    Value: FATAL_APP_EXIT

    Key  : FailFast.Type
    Value: 7"""
# The line of a live session; second chance, no symbols.
STOPPED = """(1a2c.2f4): Security check failure or stack buffer overrun - code c0000409 (!!! second chance !!!)
Subcode: 0x2 FAST_FAIL_STACK_COOKIE_CHECK_FAILURE
my_op!__report_gsfailure+0x1d:
00007ffb`5ede21ef cd29            int     29h"""
DIVISION = "(1a2c.2f4): Integer divide-by-zero - code c0000094 (!!! second chance !!!)\nmy_op!half+0x9:\n00007ffb`5ede21ef f7f9            idiv    eax,ecx"
FIRST_CHANCE = """ModLoad: 00007ffe`3cba0000 00007ffe`3cbd5000   C:\\Windows\\System32\\Windows.Energy.dll
(8c30.3394): C++ EH exception - code e06d7363 (first chance)
(8c30.3394): Break instruction exception - code 80000003 (first chance)
(8c30.3394): Access violation - code c0000005 (first chance)
First chance exceptions are reported before any exception handling."""
ROWS = "\n".join(
    f"{place:02x} {0xE5_0010_0000 + 0x60 * place:016x}"[:11]
    + f"`{(0xE5_0010_0000 + 0x60 * place) & 0xFFFFFFFF:08x} 00007ffb`5ede21ef     my_op!Visit+0x21 [D:\\src\\my_op.cc @ 12]"
    for place in range(256)
)
OVERFLOW = f"""(1a2c.2f4): Stack overflow - code c00000fd (first chance)
First chance exceptions are reported before any exception handling.
This exception may be expected and handled.
my_op!Visit+0x4:
00007ffb`5ede21ef 89542410        mov     dword ptr [rsp+10h],edx ss:000000e5`000ffff0=????????
0:000> kn
 # Child-SP          RetAddr               Call Site
{ROWS}"""
# https://github.com/Azure/azure-cli/issues/30792: a table and nothing else.
TABLE = """Child-SP          RetAddr               Call Site
00000000`005eab00 00007ffe`10c417bd     python312!PyObject_LookupAttr+0x20
00000000`005eab30 00007ffd`4b1bd3e7     _ctypes+0x17bd
00000000`005eaba0 00007ffd`4b244bf6     python312!PyNumber_Negative+0x1bb"""
# https://github.com/pytorch/pytorch/issues/31370, shortened: a table that ends in abort().
TORCH = """Call stack extracted from the log:
Child-SP          RetAddr           Call Site
00000094`6d9eb6e0 00007ffd`9380d2cf ucrtbase!abort+0x4e
00000094`6d9eb710 00007ffd`73d62483 ucrtbase!terminate+0x1f
00000094`6d9eb740 00007ffd`73d61fdf VCRUNTIME140!FindHandler+0x483
00000094`6d9ec790 00007ffd`73d646e2 KERNELBASE!RaiseException+0x69
00000094`6d9ec870 00007ffd`604dcc66 VCRUNTIME140!_CxxThrowException+0xc2
00000094`6d9ec8f0 00007ffd`604d9c29 c10!caffe2::detail::_ThrowRuntimeTypeLogicError+0x4f6
00000094`6d9eca60 00007ffd`604b1599 c10!caffe2::TypeMeta::_typeMetaDataInstance<float>+0x119
00000094`6d9ecad0 00007ffd`937bbc0e c10+0x1599"""
# The form of `~*kc` and of STACK_TEXT on 32 bits (StorjOld/storjnode#94).
ALL_THREADS = """(7734.7130): Security check failure or stack buffer overrun - code c0000409 (!!! second chance !!!)
Subcode: 0x7 FAST_FAIL_FATAL_APP_EXIT
   0  Id: 7734.1234 Suspend: 0 Teb: 000000f6`45d1d000 Unfrozen "MainThread"
00 KERNELBASE!WaitForSingleObjectEx
01 msvcp140!_Thrd_join
# 20  Id: 7734.7130 Suspend: 0 Teb: 000000f6`45d1f000 Unfrozen
00 ucrtbase!abort
01 ucrtbase!terminate
02 VCRUNTIME140!__std_terminate
03 VCRUNTIME140!CxxThrowException
04 ctranslate2!ctranslate2::ThreadPool::~ThreadPool"""
THIRTY_TWO = """STACK_TEXT:
00196ee8 77702939 00000000 00000001 00000000 ntdll!RtlDosPathNameToRelativeNtPathName+0x259
00196f00 777029c4 my_op!Read+0x2e4
FAILURE_BUCKET_ID:  NULL_POINTER_READ_c0000005_my_op.pyd!Read
EXCEPTION_CODE: (NTSTATUS) 0xc0000005 - The instruction at 0x%p referenced memory at 0x%p."""
SAMPLES = [ABORT, ANALYZE, DUMP, STOPPED, DIVISION, FIRST_CHANCE, OVERFLOW[:4000], TABLE, ALL_THREADS, THIRTY_TWO]


def status(crash: Crash) -> tuple[str, int | None]:
    assert crash.exit is not None
    assert crash.exit.ntstatus is not None
    fast_fail = crash.exit.ntstatus.fast_fail
    return crash.exit.ntstatus.value, fast_fail.code if fast_fail else None


def names(crash: Crash) -> list[tuple[str | None, str | None]]:
    assert crash.threads is not None
    return [(frame.module, frame.function) for frame in crash.threads[0].frames or ()]


def test_exception_record_and_stack() -> None:
    (piece,) = pieces(ABORT, READER)
    crash = piece.crash
    assert status(crash) == ("0xC0000409", 7)
    assert crash.fault is None
    assert names(crash)[0] == ("ucrtbase", "abort")
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    frame = crash.crashed_thread.frames[2]
    assert (frame.function, frame.source, frame.line) == ("MyOp::Compute", r"D:\src\my_op.cc", 42)
    assert (frame.stack_bytes, frame.module_offset) == (0xAF0, None)


def test_analysis() -> None:
    (piece,) = pieces(ANALYZE, READER)
    crash = piece.crash
    assert status(crash) == ("0xC0000005", None)
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.access) == (8, "read")
    assert names(crash) == [
        ("functoolz_cp39_win_amd64", "PyInit_functoolz"),
        ("functoolz_cp39_win_amd64", None),
        ("python39", "PyObject_MakeTpCall"),
        ("python39", "PyObject_FastCallDictTstate"),
    ]
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    assert crash.crashed_thread.frames[1].module_offset == 0x17BD
    assert crash.instruction is not None
    assert (crash.instruction.mnemonic, crash.instruction.operands[0].address) == ("mov", 8)
    assert crash.environment is not None
    assert (crash.environment.python, crash.environment.executable) == ("3.9.9", "python.exe")
    assert crash.registers is not None
    assert crash.registers["rip"] == 0x7FFE4B1BD3E7


def test_second_chance() -> None:
    crash = only(STOPPED, READER)
    assert status(crash) == ("0xC0000409", 2)
    assert crash.pid == 0x1A2C
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.tid == 0x2F4


def test_a_first_chance_alone_is_no_death() -> None:
    assert pieces(FIRST_CHANCE, READER) == []


def test_stack_overflow_is_seen_at_the_first_chance() -> None:
    crash = only(OVERFLOW, READER)
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.stack is not None
    assert thread.stack.guard_hit
    fold = thread.folds[0]
    assert (fold.functions, fold.times, fold.bytes_per_period) == (("Visit",), 256, 0x60)
    assert thread.frames_total is None, "k shows 256 frames, however many there are"


def test_the_thread_that_is_marked() -> None:
    crash = only(ALL_THREADS, READER)
    assert names(crash)[0] == ("ucrtbase", "abort")
    assert len(names(crash)) == 5
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.tid == 0x7130


def test_table_alone() -> None:
    crash = only(TABLE, READER)
    assert crash.exit is None
    assert crash.crashed_thread is None, "nobody says that it crashed"
    assert names(crash)[1] == ("_ctypes", None)


def test_32_bits() -> None:
    assert names(only(THIRTY_TWO, READER)) == [
        ("ntdll", "RtlDosPathNameToRelativeNtPathName"),
        ("my_op", "Read"),
    ]


@pytest.mark.parametrize(
    ("text", "rule", "function", "module"),
    [
        (ABORT, "abort", "MyOp::Compute", "_my_op"),
        (ANALYZE, "null-dereference", "PyInit_functoolz", "functoolz_cp39_win_amd64"),
        (DUMP, "abort", None, None),
        (TORCH, "uncaught-cpp-exception", "caffe2::detail::_ThrowRuntimeTypeLogicError", "c10"),
        (STOPPED, "stack-smash", None, "my_op"),
        (DIVISION, "integer-divide-by-zero", "half", "my_op"),
        (OVERFLOW, "stack-overflow-recursion", "Visit", "my_op"),
        (ALL_THREADS, "uncaught-cpp-exception", "ctranslate2::ThreadPool::~ThreadPool", "ctranslate2"),
    ],
)
def test_verdict(text: str, rule: str, function: str | None, module: str | None) -> None:
    found = verdict(text, READER)
    assert found.rule == rule, found.summary
    culprit = found.culprit
    assert (culprit.function if culprit else None, culprit.module if culprit else None) == (function, module)


@pytest.mark.parametrize(
    "text",
    [
        "!analyze -v",
        "run !analyze -v and post STACK_TEXT: here",
        "exit - code c0000005",
        "RetAddr is the return address",
    ],
)
def test_what_is_no_session(text: str) -> None:
    assert pieces(text, READER) == []
