"""What a name or a number of an error means: one question for all tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.data import table
from necropsy.formats.error_names import all_names, meaning_of
from necropsy.rules import crash_rules

RULES = {rule.name for rule in crash_rules()} | {"fast-fail"}
"""``fast-fail`` is the rule of the subcodes that have none of their own."""

KNOWN = [
    ("CUDNN_STATUS_NOT_INITIALIZED", "cuDNN 9 status", 1001, "gpu-out-of-memory"),
    ("CUDA error 700", "CUDA runtime error", 700, "cuda-kernel-fault"),
    ("CUDA error: 35", "CUDA runtime error", 35, "cuda-driver-too-old"),
    ("cuda error code 2", "CUDA runtime error", 2, "gpu-out-of-memory"),
    ("cudaErrorIllegalAddress", "CUDA runtime error", 700, "cuda-kernel-fault"),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA driver error", 700, "cuda-kernel-fault"),
    # PyTorch printed the numbers of its time: CUDA 10.1 changed them.
    ("cuda runtime error (59)", "CUDA runtime error up to CUDA 10.0", 59, "cuda-kernel-fault"),
    ("cuda runtime error (710)", "CUDA runtime error", 710, "cuda-kernel-fault"),
    ("an illegal memory access was encountered", "CUDA runtime error", 700, "cuda-kernel-fault"),
    ("cuDNN error 1001", "cuDNN 9 status", 1001, "gpu-out-of-memory"),
    ("cudnn status 8", "cuDNN 8 status", 8, None),
    ("CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS status", 3, "gpu-out-of-memory"),
    ("NCCL error 2", "NCCL result", 2, None),
    ("SEGV_MAPERR", "si_code of SIGSEGV", 1, None),
    ("SIGSEGV code 1", "si_code of SIGSEGV", 1, None),
    ("SIGBUS (si_code=2)", "si_code of SIGBUS", 2, None),
    ("SIGSEGV si_code: 128", "si_code of any", 128, None),
    ("STATUS_ACCESS_VIOLATION", "Windows status", 0xC0000005, "conflicting-libraries"),
    ("EXCEPTION_STACK_OVERFLOW", "Windows status", 0xC00000FD, "stack-overflow-recursion"),
    ("STATUS_OBJECT_NAME_INVALID", "Windows status", 0xC0000033, None),
    ("NTSTATUS 0xC0000374", "Windows status", 0xC0000374, "heap-buffer-overflow"),
    ("0xE06D7363", "exception", 0xE06D7363, "uncaught-cpp-exception"),
    ("0x406D1388", "exception", 0x406D1388, None),
    ("HRESULT 0x8007007E", "HRESULT", 0x8007007E, "missing-library"),
    ("0x8007045A", "HRESULT", 0x8007045A, "missing-library"),
    ("0xD0000005", "HRESULT", 0xD0000005, "conflicting-libraries"),
    ("WinError 126", "Win32 error", 126, "missing-library"),
    ("[WinError 1455]", "Win32 error", 1455, "allocation-failed"),
    ("GetLastError 193", "Win32 error", 193, "missing-library"),
    ("FAST_FAIL_FATAL_APP_EXIT", "subcode of __fastfail", 7, "abort"),
    ("subcode 2", "subcode of __fastfail", 2, "stack-smash"),
    ("heap-buffer-overflow", "AddressSanitizer", None, "heap-buffer-overflow"),
    ("data race", "ThreadSanitizer", None, "data-race"),
    ("AVX2", "CPU feature", None, "illegal-instruction"),
    ("AVX-512F", "CPU feature", None, "illegal-instruction"),
    ("free(): invalid pointer", "glibc", None, "heap-corruption"),
    ("*** stack smashing detected ***: terminated", "glibc", None, "stack-smash"),
    (
        "Fatal glibc error: malloc assertion failure in sysmalloc: (old_top == initial_top (av))",
        "glibc",
        None,
        "heap-corruption",
    ),
    ("SIGSEGV", "signal", 11, "conflicting-libraries"),
]


@pytest.mark.parametrize(("question", "kind", "code", "rule"), KNOWN, ids=[row[0] for row in KNOWN])
def test_known(question: str, kind: str, code: int | None, rule: str | None) -> None:
    found = meaning_of(question)
    assert found is not None
    assert (found.kind, found.code, found.rule) == (kind, code, rule)
    assert found.meaning.endswith(".") or found.text
    assert found.source


@pytest.mark.parametrize(
    "question",
    [
        "",
        " ",
        "-",
        "139",
        "-11",
        "700",
        "CUDA 12",
        "cuDNN 8",
        "NCCL 2",
        "status 1",
        "hello",
        "error 126",
        "CUDA error",
        "%s",
    ],
)
def test_silent_where_nobody_can_say_whose_error_it_is(question: str) -> None:
    assert meaning_of(question) is None


def test_both_numbers_of_a_cudnn_status_are_told() -> None:
    found = meaning_of("CUDNN_STATUS_EXECUTION_FAILED")
    assert found is not None
    assert found.code == 5000
    assert found.also == ("CUDNN_STATUS_EXECUTION_FAILED (cuDNN 8 status 8)",)


def test_driver_and_runtime_name_each_other() -> None:
    found = meaning_of("CUDA_ERROR_NO_BINARY_FOR_GPU")
    assert found is not None
    assert found.also == ("cudaErrorNoKernelImageForDevice (CUDA runtime error 209)",)
    assert found.rule == "gpu-arch-unsupported"


@pytest.mark.parametrize("spelled", ["CUDAERROR01", "cuda error 1", "CUDA error: 0x01", "CUDA error 0X1"])
def test_zeros_before_a_number_and_hexadecimal_digits_do_not_change_it(spelled: str) -> None:
    found = meaning_of(spelled)
    assert found is not None
    assert found.name == "cudaErrorInvalidValue"


def test_every_row_is_found_by_its_own_name() -> None:
    for row in all_names():
        # A name may stand in several tables, and a printed text may belong to two errors.
        found = meaning_of(row.name)
        assert found is not None, row
        assert found.name.lower().strip(" .!'") == row.name.lower().strip(" .!'"), (row, found)


def test_every_row_says_something_and_names_only_rules_that_exist() -> None:
    for row in all_names():
        assert row.meaning, row
        assert row.rule is None or row.rule in RULES, row
        assert "  " not in row.meaning
    for name in table("ntstatus.json")["meanings"]:
        assert name in table("ntstatus.json")["names"]


def test_every_table_names_its_source_and_licence() -> None:
    for file in ("nvidia", "exceptions", "win32", "si_codes", "abort_messages", "sanitizers", "cpu_features"):
        head = table(f"{file}.json")
        assert head["_source"]
        assert head["_licence"]
        for group in head["groups"].values():
            assert group["source"]
    for file in ("ntstatus", "fast_fail"):
        assert table(f"{file}.json")["_source"]


def test_hand_written_numbers_are_32_bits() -> None:
    for row in all_names():
        if row.kind in {"exception", "HRESULT"}:
            assert row.code is not None
            assert 0 < row.code < 1 << 32, row


@given(st.one_of(st.text(max_size=80), st.from_regex(r"(cuda|cudnn|win|nccl)[ _]?error ?\(?-?(0x)?[0-9a-fx]{1,12}\)?")))
def test_any_question(question: str) -> None:
    found = meaning_of(question)
    assert found is None or found.meaning


def test_hostile_questions_are_linear() -> None:
    for question in ("a" * 1_000_000, "%s" * 100_000, "(" * 500_000, "*** Error in `" * 50_000, "0x" * 500_000):
        assert meaning_of(question) is None
