"""Notes: shape functions, old APIs, loops; and the deepest path of calls."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

OP = 'REGISTER_OP("Foo").Input("x: float").Output("y: float")'


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (OP + ";", ["op-no-shape-function"]),
        ('REGISTER_OP("Foo").Input("x: float");', []),
        (OP + ".SetShapeFn(shape_inference::UnchangedShape);", []),
        (OP + ".SetShapeFn(::tensorflow::shape_inference::UnknownShape);", ["op-shape-function-weak"]),
        (OP + ".SetShapeFn([](InferenceContext* c) { return OkStatus(); });", ["op-shape-function-weak"]),
        (
            OP + ".SetShapeFn([](C* c) { c->set_output(0, c->UnknownShape()); return OkStatus(); });",
            ["op-shape-function-weak"],
        ),
        (OP + ".SetShapeFn([](C* c) { c->set_output(0, c->Scalar()); return OkStatus(); });", []),
        ('REGISTER_OP("Foo").Input("x: Ref(float)");', ["op-legacy-api"]),
        ("Status F() { return Status::OK(); }\nStatus G() { return Status::OK(); }", ["op-legacy-api"]),
        ("void F(const Tensor& t) { t.flat<std::string>(); }", ["op-legacy-api"]),
        ("void F(const Tensor& t) { t.flat<tstring>(); Ref(x); }", []),
    ],
)
def test_notes(text: str, rules: list[str]) -> None:
    defects = found(text)
    assert [one.rule for one in defects] == rules
    assert all(one.severity == "note" for one in defects)


@pytest.mark.parametrize(
    ("body", "cases"),
    [
        ("float v = x.flat<float>()(0); while (v > 1) { v *= 0.5f; }", ["converges"]),
        ("float v = x.flat<float>()(0); while (v > 1) { v *= 0.5f; if (++n > 99) break; }", []),
        ("int n = x.dim_size(0); while (n > 1) { n /= 2; }", []),
        ("int n = 0; while (true) { ++n; }", ["endless"]),
        ("int n = 0; while (true) { if (++n > 3) return; }", []),
        ("for (;;) { OP_REQUIRES(context, Next(), E()); }", []),
    ],
)
def test_loops(body: str, cases: list[str]) -> None:
    assert [one.case for one in found(kernel(body), "op-unbounded-loop")] == cases


def test_the_deepest_path_counts_each_instance_of_a_template() -> None:
    level = """
template <int N> struct Level { static void Run() { double block[50000]; Level<N - 1>::Run(); } };
template <> struct Level<0> { static void Run() { } };
"""
    (one,) = found(kernel("Level<22>::Run();", before=level), "op-stack-depth")
    assert (one.function, one.numbers["calls"]) == ("FooOp::Compute", 24)
    assert 22 * 400_000 < one.numbers["bytes"] < 22 * 400_200
    assert found(kernel("Level<18>::Run();", before=level), "op-stack-depth") == []


def test_one_large_frame_is_not_a_deep_path() -> None:
    text = kernel("Wide();", before="void Wide() { double block[2000000]; }\n")
    assert [one.rule for one in found(text, "op-stack-depth", "op-large-frame")] == ["op-large-frame"]
