"""Statuses that nothing looks at, and OP_REQUIRES in lambdas."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

HELPER = "Status Fill(Tensor* t) { return OkStatus(); }\nvoid Log(int n) {}\n"


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("context->allocate_temp(DT_FLOAT, x.shape(), &t);", "call"),
        ("Fill(y);", "call"),
        ("Status s = Fill(y);", "variable"),
    ],
)
def test_ignored_statuses(body: str, case: str) -> None:
    assert [one.case for one in found(kernel(body, before=HELPER), "op-status-ignored")] == [case]


@pytest.mark.parametrize(
    "body",
    [
        "OP_REQUIRES_OK(context, Fill(y));",
        "Status s = Fill(y); if (!s.ok()) return;",
        "Fill(y).IgnoreError();",
        "(void)Fill(y);",
        "Log(1);",
        "context->set_output(0, x);",
        "other->allocate_output(0, x.shape(), &y);",
    ],
)
def test_statuses_that_are_looked_at(body: str) -> None:
    assert found(kernel(body, before=HELPER), "op-status-ignored") == []
