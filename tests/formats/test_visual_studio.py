"""Visual Studio's exception line and call stack, in several languages, and what it only says in words."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.visual_studio import READER
from necropsy.model import Crash
from reading import only, pieces, verdict

# https://github.com/microsoft/PTVS/issues/4947
OPENCV = """Exception occurs :

Unhandled exception at 0x0000000065CC9E02 (python36_d.dll) in python.exe: 0xC0000005: Access violation reading location 0x0000000000000025. occurred

Stack trace is

     python36_d.dll!PyUnicode_InternInPlace(_object * * p) Line 15272    C
     python36_d.dll!PyUnicode_InternFromString(const char * cp) Line 15307    C
     cv2.cp36-win_amd64.pyd!_import_array() Line 1466    C++
     cv2.cp36-win_amd64.pyd!PyInit_cv2() Line 2021\tC++
     python36_d.dll!00007ffd4b1bd3e7()\tUnknown
     [External Code]"""
# https://github.com/explosion/spaCy/issues/2129
DISASSEMBLED = """Unhandled exception at 0x00007FFD455C1FBA (ner.cp36-win_amd64.pyd) in python.exe: 0xC0000005: Access violation reading location 0x0000018AB83FEFE4.

Viewing disassembly yields:
00007FFD455C1FBA  mov         ebx,dword ptr [rax+rcx*8+4]
00007FFD455C1FBE  jmp         00007FFD455C1FC5"""
# https://github.com/mhammond/pywin32/issues/401: an older form, as an import of trackers escapes it.
OLD = """Unhandled exception at 0x1e006c6d in Pythonwin.exe: 0xC0000005: Access violation reading location 0x00000004.

python26.dll\\!1e006c6d()
win32ui.pyd\\!1e2bfc70()
&gt;\tmsvcr71.dll\\!\\_heap\\_alloc(unsigned int size=2002134087)  Line 212 + 0x5\tC"""
# The sentences of the debugger's exception helper (Visual Studio 2015 to 2022).
FATAL_EXIT = "Unhandled exception at 0x00007FFD98C5527E (ucrtbase.dll) in python.exe: Fatal program exit requested."
COOKIE = "Unhandled exception at 0x00007FF6A1B21F4E in python.exe: Stack cookie instrumentation code detected a stack-based buffer overrun."
THROWN = "Unhandled exception at 0x00007FFB5EDE21EF (KernelBase.dll) in python.exe: Microsoft C++ exception: std::bad_alloc at memory location 0x000000E5D51FE8A0."
OVERFLOW = (
    """Unhandled exception at 0x00007FFB5EDE21EF (my_op.dll) in python.exe: 0xC00000FD: Stack overflow (parameters: 0x0000000000000001, 0x000000E5D5103FF8).
>\tmy_op.dll!Visit(Node * n) Line 12\tC++
"""
    + "\tmy_op.dll!Visit(Node * n) Line 12\tC++\n" * 40
)
HEAP = "Unhandled exception at 0x00007FFE57F0F0F9 (ntdll.dll) in python.exe: 0xC0000374: A heap has been corrupted (parameters: 0x00007FFE57F77780)."
GERMAN = "Unbehandelte Ausnahme bei 0x00007FFD455C1FBA (my_op.pyd) in python.exe: 0xC0000005: Zugriffsverletzung beim Schreiben an Position 0x0000000000000000."
FRENCH = "Exception non gérée à 0x00007FFD455C1FBA (my_op.pyd) dans python.exe : 0xC0000005 : Violation d'accès lors de la lecture de l'emplacement 0x0000000000000008."
CHINESE = "0x00007FFD455C1FBA (my_op.pyd)处(位于 python.exe 中)引发的异常: 0xC0000005: 读取位置 0x0000000000000010 时发生访问冲突。"
ENDED = "The program '[4711] python.exe' has exited with code -1073740791 (0xc0000409)."
CAUGHT = """Exception thrown at 0x00007FFB5EDE21EF (KernelBase.dll) in python.exe: Microsoft C++ exception: std::runtime_error at memory location 0x000000E5D51FE8A0.
Exception thrown at 0x00007FFB5EDE21EF in python.exe: 0x000006BA: The RPC server is unavailable."""
EXPLORER = (
    "ntdll.dll!NtWaitForSingleObject+0x14\nKERNELBASE.dll!WaitForSingleObjectEx+0x8e\nmy_op.pyd!PyInit_my_op+0x1a7"
)
SAMPLES = [
    OPENCV,
    DISASSEMBLED,
    OLD,
    FATAL_EXIT,
    COOKIE,
    THROWN,
    OVERFLOW,
    HEAP,
    GERMAN,
    FRENCH,
    CHINESE,
    ENDED,
    CAUGHT,
]
SAMPLES.append(EXPLORER)


def status(crash: Crash) -> tuple[str, int | None]:
    assert crash.exit is not None
    assert crash.exit.ntstatus is not None
    fast_fail = crash.exit.ntstatus.fast_fail
    return crash.exit.ntstatus.value, fast_fail.code if fast_fail else None


def test_exception_and_stack() -> None:
    (piece,) = pieces(OPENCV, READER)
    assert (piece.first, piece.last) == (3, 12)
    crash = piece.crash
    assert status(crash) == ("0xC0000005", None)
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.access) == (0x25, "read")
    assert crash.crashed_thread is not None
    frames = crash.crashed_thread.frames or ()
    assert [(frame.module, frame.line) for frame in frames] == [
        ("python36_d.dll", 15272),
        ("python36_d.dll", 15307),
        ("cv2.cp36-win_amd64.pyd", 1466),
        ("cv2.cp36-win_amd64.pyd", 2021),
        ("python36_d.dll", None),
    ]
    assert frames[0].function == "PyUnicode_InternInPlace(_object * * p)"
    assert (frames[4].function, frames[4].address) == (None, 0x7FFD4B1BD3E7)
    assert crash.environment is not None
    assert crash.environment.executable == "python.exe"


def test_instruction_of_the_disassembly() -> None:
    crash = only(DISASSEMBLED, READER)
    assert crash.instruction is not None
    assert crash.instruction.mnemonic == "mov"
    assert crash.instruction.operands[0].access == "read"
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    assert crash.crashed_thread.frames[0].module == "ner.cp36-win_amd64.pyd"


def test_old_form() -> None:
    crash = only(OLD, READER)
    assert crash.crashed_thread is not None
    frames = crash.crashed_thread.frames or ()
    assert [(frame.module, frame.function) for frame in frames] == [
        ("python26.dll", None),
        ("win32ui.pyd", None),
        ("msvcr71.dll", "_heap_alloc(unsigned int size=2002134087)"),
    ]
    assert frames[2].line == 212


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FATAL_EXIT, ("0xC0000409", 7)),
        (COOKIE, ("0xC0000409", 2)),
        (THROWN, ("0xE06D7363", None)),
        (OVERFLOW, ("0xC00000FD", None)),
        (HEAP, ("0xC0000374", None)),
        (ENDED, ("0xC0000409", None)),
    ],
)
def test_words_and_codes(text: str, expected: tuple[str, int | None]) -> None:
    assert status(only(text, READER)) == expected


@pytest.mark.parametrize(
    ("text", "access", "address"), [(GERMAN, "write", 0), (FRENCH, "read", 8), (CHINESE, "read", 16)]
)
def test_languages(text: str, access: str, address: int) -> None:
    crash = only(text, READER)
    assert crash.fault is not None
    assert (crash.fault.access, crash.fault.address) == (access, address)


def test_what_was_only_thrown_is_no_death() -> None:
    assert pieces(CAUGHT, READER) == []


def test_stack_alone() -> None:
    crash = only(EXPLORER, READER)
    assert crash.exit is None
    assert crash.crashed_thread is None
    assert crash.threads is not None
    assert [frame.function for frame in crash.threads[0].frames or ()][2] == "PyInit_my_op"


@pytest.mark.parametrize(
    ("text", "rule", "function", "module"),
    [
        (OPENCV, "null-dereference", "_import_array()", "cv2.cp36-win_amd64.pyd"),
        (DISASSEMBLED, "invalid-read", None, "ner.cp36-win_amd64.pyd"),
        (FATAL_EXIT, "abort", None, None),
        (COOKIE, "stack-smash", None, None),
        (THROWN, "allocation-failed", None, None),
        (OVERFLOW, "stack-overflow-recursion", "Visit(Node * n)", "my_op.dll"),
        (HEAP, "heap-corruption", None, None),
        (GERMAN, "null-dereference", None, "my_op.pyd"),
    ],
)
def test_verdict(text: str, rule: str, function: str | None, module: str | None) -> None:
    found = verdict(text, READER)
    assert found.rule == rule, found.summary
    culprit = found.culprit
    assert (culprit.function if culprit else None, culprit.module if culprit else None) == (function, module)


@pytest.mark.parametrize(
    "text", ["foo.dll!bar", "see kernel32.dll! now", "Unhandled exception at 0x", "0xC0000005: an access violation"]
)
def test_what_is_no_stop(text: str) -> None:
    assert pieces(text, READER) == []
