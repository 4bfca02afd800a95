"""Arrays of variable length and alloca."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel


@pytest.mark.parametrize(
    ("body", "case", "severity"),
    [
        ("const int64_t n = x.NumElements(); float row[n];", "array", "error"),
        ("float row[x.dim_size(0) * 2 + Width()];", "", ""),
        ("int n = Width(); float row[n + 1];", "array", "note"),
        (
            "const int64_t n = x.NumElements(); OP_REQUIRES(context, n <= name.NumElements(), E()); float r[n];",
            "array",
            "error",
        ),
        ("int64_t n = 1; for (int i = 0; i < x.dims(); ++i) n *= x.dim_size(i); float row[n];", "array", "error"),
        ("char* text = static_cast<char*>(alloca(x.NumElements() * sizeof(float)));", "", ""),
        ("const size_t n = x.NumElements(); char* text = (char*)alloca(n * 4);", "alloca", "error"),
        (
            "const int64_t n = x.NumElements(); OP_REQUIRES(context, n < 1 << 24, E()); float row[n];",
            "array",
            "warning",
        ),
        ("auto work = [&](int64_t begin, int64_t end) { float row[end - begin]; }; work(0, 9);", "array", "note"),
    ],
)
def test_sizes_that_data_decides(body: str, case: str, severity: str) -> None:
    defects = found(kernel(body), "op-stack-allocation")
    if not case:  # no variable is in it
        assert len(defects) == ("x." in body)
        return
    assert [(one.case, one.severity) for one in defects] == [(case, severity)]


@pytest.mark.parametrize(
    "body",
    [
        "constexpr int n = 16; float row[n];",
        "const int n = 16; float row[n * kWidth];",
        "const int64_t n = x.NumElements(); OP_REQUIRES(context, n <= 1024, E()); float row[n];",
        "int n = x.dims(); if (n > 8) return; float row[n];",
        "const int64_t n = x.NumElements(); if (n < 256) { float row[n]; }",
        "float* row = new float[x.NumElements()];",
        "std::vector<float> row(x.NumElements());",
        "char* text = (char*)alloca(1024);",
    ],
)
def test_sizes_that_are_constant_or_limited(body: str) -> None:
    assert found(kernel(body, before="constexpr int kWidth = 4;\n"), "op-stack-allocation") == []
