"""OP_REQUIRES in lambdas."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

WORK = "auto work = [&](int64_t b, int64_t e) { OP_REQUIRES(context, b < e, E()); }; "


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (WORK + "Shard(1, w, 10, 10, work);", 1),
        ("Each([&](int i) { OP_REQUIRES_OK(context, Check(i)); });", 1),
        (WORK + "Shard(1, w, 10, 10, work); if (!context->status().ok()) return;", 0),
        ("auto f = [](OpKernelContext* c) { OP_REQUIRES(c, true, E()); }; f(context);", 1),
        ("auto f = [](OpKernelContext* c) { OP_REQUIRES(c, true, E()); }; Run(f);", 0),
        ("auto f = [&]() -> Status { TF_RETURN_IF_ERROR(Check(1)); return OkStatus(); };", 0),
        ("if (x.dims() == 7) { Each([&](int i) { OP_REQUIRES(context, i > 0, E()); }); return; }", 0),
    ],
)
def test_requires_in_lambdas(body: str, count: int) -> None:
    assert len(found(kernel(body), "op-requires-in-lambda")) == count
