"""Outputs that a path leaves unset, and callbacks that a path does not call."""

from __future__ import annotations

import pytest
from cxx_kernels import found

OP = """REGISTER_OP("Foo").Input("x: float").Output("y: float").Output("z: float");
struct FooOp : BASE { void COMPUTE override { BODY } };
REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp);"""
Y = "Tensor* y; OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &y)); "
Z = "Tensor* z; OP_REQUIRES_OK(c, c->allocate_output(1, c->input(0).shape(), &z)); "
LOOP = Y + Z + "auto in = c->input(0).flat<float>(); auto v = z->flat<float>(); for (int i = 0; i < v.size(); ++i) "


def of(body: str) -> list[str]:
    text = OP.replace("BODY", body).replace("BASE", "OpKernel").replace("COMPUTE", "Compute(OpKernelContext* c)")
    return [one.case for one in found(text, "op-output-unset")]


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("if (c->input(0).NumElements() == 0) return; " + Y + Z, "return"),
        (Y, "never"),
        (Y + "if (c->input(0).NumElements() == 0) return; " + Z, "return"),
        (Y + "if (c->input(0).dims() == 2) { " + Z + "}", "sometimes"),
        (LOOP + "if (in(i) > 0) v(i) = in(i);", "part"),
    ],
)
def test_outputs_that_are_not_set(body: str, case: str) -> None:
    assert of(body) == [case]


@pytest.mark.parametrize(
    "body",
    [
        Y + Z,
        Y + Z + "if (c->input(0).NumElements() == 0) return;",
        "if (c->input(0).NumElements() == 0) { c->SetStatus(E()); return; } " + Y + Z,
        "Status s = Check(); if (!s.ok()) { c->CtxFailure(s); return; } " + Y + Z,
        Y + "SetOther(c);",
        Y + "if (a) { " + Z + "} else { " + Z + "}",
        "for (int i = 0; i < 2; ++i) { Tensor* t; OP_REQUIRES_OK(c, c->allocate_output(i, s, &t)); }",
        LOOP + "if (in(i) > 0) v(i) = in(i); else v(i) = 0;",
        LOOP.replace("for (", "v.setZero(); for (") + "if (in(i) > 0) v(i) = in(i);",
        LOOP + "v(i) = in(i);",
    ],
)
def test_outputs_that_are_set(body: str) -> None:
    assert of(body) == []


def done(body: str) -> list[str]:
    text = OP.replace("BODY", Y + Z + body).replace("BASE", "AsyncOpKernel")
    text = text.replace("COMPUTE", "ComputeAsync(OpKernelContext* c, DoneCallback done)")
    text = text.replace("OP_REQUIRES_OK(c, ", "OP_REQUIRES_OK_ASYNC(c, ").replace("&y));", "&y), done);")
    return [one.case for one in found(text.replace("&z));", "&z), done);"), "op-done-not-called")]


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("if (!ok) { c->SetStatus(E()); return; } done();", "return"),
        ("OP_REQUIRES(c, ok, E()); done();", "requires"),
        ("", "end"),
        ("if (!ok) { c->SetStatus(E()); done(); } done();", "twice"),
        ("done(); done();", "twice"),
        ("p->Schedule([c, done]() { if (!ok) return; done(); });", "return"),
        ("p->Schedule([c, done]() { for (int i = 0; i < 3; ++i) { if (!ok) { done(); break; } } done(); });", "twice"),
    ],
)
def test_paths_without_done(body: str, case: str) -> None:
    assert done(body) == [case]


@pytest.mark.parametrize(
    "body",
    [
        "done();",
        "if (!ok) { c->SetStatus(E()); done(); return; } done();",
        "OP_REQUIRES_ASYNC(c, ok, E(), done); done();",
        "p->Schedule([c, done]() { done(); });",
        "p->Schedule([c, done = std::move(done)]() { if (!ok) { done(); return; } done(); });",
        "if (ok) { done(); } if (!ok) { done(); }",
        "if (ok) { Start(c, done); return; } done();",
        "auto cleanup = gtl::MakeCleanup([&] { done(); }); if (!ok) return;",
    ],
)
def test_paths_with_done(body: str) -> None:
    assert done(body) == []
