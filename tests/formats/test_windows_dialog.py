"""Boxes of Windows and of Microsoft's C runtime, copied as text."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.windows_dialog import READER
from reading import only, pieces, verdict

# Texts of the message table of ntdll.dll and kernel32.dll (English Windows 10); titles as the boxes have them.
READ = """---------------------------
python.exe - Application Error
---------------------------
The instruction at 0x00007FF8A1B2C3D4 referenced memory at 0x0000000000000010. The memory could not be read.
Click on OK to terminate the program"""
WRITTEN = 'The instruction at "0x1e04e2b6" referenced memory at "0x00000000". The memory could not be "written".'
GERMAN = "Die Anweisung in 0x00007FF8A1B2C3D4 verweist auf Speicher in 0x0000000000000000. Der Vorgang read konnte nicht im Speicher durchgeführt werden."
CHINESE = "0x00007FF8A1B2C3D4 指令引用了 0x0000000000000000 内存。该内存不能为 written。"
CALLED = "The instruction at 0x0000000000000000 referenced memory at 0x0000000000000000. The memory could not be read."
SOFTWARE = (
    "The exception unknown software exception (0xc0000409) occurred in the application at location 0x00007FFB5EDE21EF."
)
DIVISION = "The exception Integer division by zero.\n (0xc0000094) occurred in the application at location 0x1e04e2b6."
NOT_STARTED = "The application was unable to start correctly (0xc000007b). Click OK to close the application."
ENTRY = r"The procedure entry point mkl_blas_dgemm could not be located in the dynamic link library C:\conda\Library\bin\mkl_intel_thread.2.dll."
ORDINAL = "The ordinal 242 could not be located in the dynamic link library libiomp5md.dll."
MISSING = "The code execution cannot proceed because VCRUNTIME140_1.dll was not found. Reinstalling the program may fix this problem."
MISSING_CHINESE = "由于找不到 cudart64_110.dll，无法继续执行代码。重新安装程序可能会解决此问题。"
IMAGE = r"""C:\Python\DLLs\_ssl.pyd is either not designed to run on Windows or it contains an error. Try installing the program again using the original installation media.
Error status 0xc000012f."""
# Microsoft Learn: R6025, assert, run-time checks, the debugging heap.
PURE = r"""Microsoft Visual C++ Runtime Library
Runtime Error!

Program: C:\Python39\python.exe

R6025
- pure virtual function call"""
ABORT = r"""Microsoft Visual C++ Runtime Library
Debug Error!

Program: C:\Python39\python.exe

abort() has been called

(Press Retry to debug the application)"""
UNUSUAL = "This application has requested the Runtime to terminate it in an unusual way.\nPlease contact the application's support team for more information."
ASSERTION = r"""Microsoft Visual C++ Runtime Library
Debug Assertion Failed!

Program: C:\Python39\python_d.exe
File: d:\src\my_op.cc
Line: 42

Expression: index < size"""
ASSERTION_LINE = "Assertion failed: ldb >= n, file d:\\src\\gemm.cc, line 128"
STACK = "Debug Error!\n\nProgram: D:\\op\\python.exe\n\nRun-Time Check Failure #2 - Stack around the variable 'buffer' was corrupted."
HEAP = "Debug Error!\n\nProgram: D:\\op\\python.exe\n\nHEAP CORRUPTION DETECTED: after Normal block (#226) at 0x000001F2A3B4C5D0.\nCRT detected that the application wrote to memory after end of heap buffer."
SAMPLES = [
    READ,
    WRITTEN,
    GERMAN,
    CHINESE,
    SOFTWARE,
    DIVISION,
    NOT_STARTED,
    ENTRY,
    ORDINAL,
    MISSING,
    MISSING_CHINESE,
    IMAGE,
]
SAMPLES += [PURE, ABORT, UNUSUAL, ASSERTION, ASSERTION_LINE, STACK, HEAP, CALLED]


@pytest.mark.parametrize(
    ("text", "address", "access"),
    [(READ, 0x10, "read"), (WRITTEN, 0, "write"), (GERMAN, 0, "read"), (CHINESE, 0, "write"), (CALLED, 0, "exec")],
)
def test_memory_that_was_referenced(text: str, address: int, access: str) -> None:
    crash = only(text, READER)
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.access) == (address, access)
    assert crash.exit is not None
    assert crash.exit.ntstatus is not None
    assert crash.exit.ntstatus.value == "0xC0000005"


def test_place_of_the_instruction() -> None:
    thread = only(READ, READER).crashed_thread
    assert thread is not None
    assert thread.frames is not None
    assert thread.frames[0].address == 0x7FF8A1B2C3D4


def test_fields_of_the_loader() -> None:
    messages = only(ENTRY, READER).messages
    assert messages is not None
    assert messages[0].fields["symbol"] == "mkl_blas_dgemm"
    assert messages[0].fields["library"] == r"C:\conda\Library\bin\mkl_intel_thread.2.dll"
    assert only(ENTRY, READER).exit is None, "the same box comes while an extension is loaded, which Python survives"


def test_fields_of_an_assertion() -> None:
    (piece,) = pieces(ASSERTION, READER)
    assert (piece.first, piece.last) == (1, 8)
    assert piece.crash.messages is not None
    fields = piece.crash.messages[0].fields
    assert (fields["file"], fields["source_line"], fields["expression"]) == (r"d:\src\my_op.cc", "42", "index < size")


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (READ, "null-dereference", "16 bytes"),
        (WRITTEN, "null-dereference", "null pointer"),
        (CALLED, "bad-jump", "null pointer"),
        (DIVISION, "integer-divide-by-zero", "divided"),
        (NOT_STARTED, "missing-library", "32 or 64 bits"),
        (ENTRY, "undefined-symbol", "mkl_intel_thread.2.dll"),
        (ORDINAL, "undefined-symbol", "ordinal 242"),
        (MISSING, "missing-library", "VCRUNTIME140_1.dll"),
        (MISSING_CHINESE, "cuda-library-missing", "cudart64_110.dll"),
        (IMAGE, "missing-library", "_ssl.pyd"),
        (PURE, "pure-virtual-call", "virtual function"),
        (ABORT, "abort", "abort()"),
        (UNUSUAL, "abort", "abort()"),
        (ASSERTION, "assertion-failed", "index < size"),
        (ASSERTION_LINE, "assertion-failed", "ldb >= n"),
        (STACK, "stack-smash", "local arrays"),
        (HEAP, "heap-corruption", "past that block's end"),
    ],
)
def test_verdict(text: str, rule: str, said: str) -> None:
    found = verdict(text, READER)
    assert found.rule == rule, found.summary
    assert said in found.summary


def test_fix_for_the_runtime_of_visual_cpp() -> None:
    assert "Redistributable" in verdict(MISSING, READER).fixes[0].text


@pytest.mark.parametrize(
    "text",
    [
        "The application was unable to start correctly",
        "referenced memory at an odd place",
        "Microsoft Visual C++ 14.0 or greater is required. Get it with Microsoft C++ Build Tools",
        "error (0xc0000005) is an access violation",
        "Assertion failed: file, line",
    ],
)
def test_what_is_no_box(text: str) -> None:
    assert pieces(text, READER) == []
