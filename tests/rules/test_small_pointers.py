"""Null and small pointers in programs that really die of them: one C library, one function a death."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import library, python, report_of, verdict_of

SOURCE = """
    #include <stdlib.h>
    #include <string.h>
    struct row { long length; char text[32]; };
    __attribute__((noinline)) long past_the_end(struct row **rows, int count) {
      long sum = 0;
      for (int i = 0; i <= count; i++) if (rows[i]) sum += rows[i]->length;
      return sum;
    }
    long size_field(void) { return past_the_end(calloc(201, sizeof(struct row *)), 201); }
    __attribute__((noinline)) long element(const long *array, long index) { return array[index]; }
    long negative_index(void) { return element(0, -1); }
    long large_index(void) { return element(0, 125000000); }
    struct wide { long before[13]; long value; };
    __attribute__((noinline)) long field(const struct wide *rows, long index) { return rows[index].value; }
    long negative_row(void) { return field(0, -3); }
    __attribute__((noinline)) void constant(void) { *(volatile int *)0x5a5a5a5a5a5a = 1; }
    long member(void) { struct row *volatile row = 0; return strlen(row->text); }
"""


@pytest.mark.parametrize(
    ("function", "rule", "words"),
    [
        ("size_field", "invalid-read", "malloc keeps this number beside a block of"),
        ("negative_index", "null-dereference", "-8 bytes from null"),
        ("negative_row", "null-dereference", "-232 bytes from null"),
        ("constant", "invalid-write", "an address that is a constant in its code"),
        ("large_index", "null-dereference", "1,000,000,000 bytes from null"),
        ("member", "null-dereference", "offset of 8 bytes"),
    ],
)
def test_the_pointer_decides_not_the_address(function: str, rule: str, words: str, tmp_path: Path) -> None:
    native = library(SOURCE, tmp_path)
    report = report_of(python(f"import ctypes; ctypes.CDLL({str(native)!r}).{function}()"), tmp_path)
    assert verdict_of(report)[0] == rule
    assert words in report["verdict"]["summary"]
    assert (verdict_of(report)[1] == "certain") is (function not in {"size_field", "member", "negative_row"})


HALF = """
    #include <sys/mman.h>
    long *make(void) {
      return mmap((void *)0x7e00e2200000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    __attribute__((noinline)) long use(long *state) { return *state; }
"""


def test_a_pointer_that_ctypes_cut_in_half(tmp_path: Path) -> None:
    native = library(HALF, tmp_path)
    code = f"import ctypes; lib = ctypes.CDLL({str(native)!r}); lib.use(lib.make())"
    report = report_of(python(code), tmp_path)
    assert verdict_of(report) == ("invalid-read", "likely")
    assert "0xffffffffe2200000, the lower 32 bits of 0x7e00e2200000" in report["verdict"]["summary"]
    assert "restype" in report["verdict"]["fixes"][0]["text"]


CONSTANT = """
    void mark(void) { *(volatile int *)0xdeadbeefdeadbeefUL = 1; }
"""


def test_a_constant_of_the_code_was_not_read_from_freed_memory(tmp_path: Path) -> None:
    native = library(CONSTANT, tmp_path)
    report = report_of(python(f"import ctypes; ctypes.CDLL({str(native)!r}).mark()"), tmp_path)
    assert report["crash"]["instruction"]["literals"]
    assert verdict_of(report)[0] == "invalid-write"


@pytest.mark.parametrize(
    ("code", "rule", "words"),
    [
        (
            "libc.printf(b'%s %s', 1, 2)",
            "null-dereference",
            "through the number 1, which is not an address: it is argument 2",
        ),
        ("libc.memset(8, 0, 4)", "null-dereference", "the number 8, which is not an address: it is argument 1"),
        ("(lambda x: libc.strlen(ctypes.cast(x, ctypes.c_char_p)))(1234567)", "invalid-read", "it is the value of `x`"),
    ],
)
def test_a_number_that_was_passed_as_a_pointer(code: str, rule: str, words: str, tmp_path: Path) -> None:
    report = report_of(python(f"import ctypes; libc = ctypes.CDLL(None); {code}"), tmp_path)
    assert verdict_of(report)[0] == rule
    assert words in report["verdict"]["summary"]
    first = report["verdict"]["fixes"][0]["text"]
    assert first.startswith(("Pass an address as argument", "Look at `x` in"))


def test_whoever_calls_the_c_library_cannot_change_it(tmp_path: Path) -> None:
    report = report_of(python("import ctypes; ctypes.CDLL(None).div(1, 0)"), tmp_path)
    assert verdict_of(report)[0] == "integer-divide-by-zero"
    fixes = [fix["text"] for fix in report["verdict"]["fixes"]]
    assert "reject it before the call" in fixes[0]
    assert not any(fix.startswith("In `div`") for fix in fixes)
