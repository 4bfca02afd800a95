"""What the rules on bounds, ranks and sizes see in small kernels, and what they know to be checked."""

from __future__ import annotations

import pytest

from necropsy.audit.cxx import checks
from necropsy.audit.cxx.load import Reader, of_text
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.symbolic import kernels, machine

OP = """
REGISTER_OP("Foo").Input("x: float").Input("n: int32").Output("y: float").Attr("stride: int").Attr("k: int >= 1")
    .Attr("list: list(int)");
%(helpers)s
class FooOp : public OpKernel {
 public:
  explicit FooOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("stride", &stride_));
    OP_REQUIRES_OK(c, c->GetAttr("k", &k_));
    OP_REQUIRES_OK(c, c->GetAttr("list", &list_));
    %(constructor)s
  }
  void Compute(OpKernelContext* c) override {
    const Tensor& x = c->input(0);
    const Tensor& n = c->input(1);
    %(body)s
  }
 private:
  int64_t stride_;
  int64_t k_;
  std::vector<int64_t> list_;
};
REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp);
"""


def found(body: str, constructor: str = "", helpers: str = "") -> list[str]:
    text = OP % {"body": body, "constructor": constructor, "helpers": helpers}
    one = Look(unit=of_text("op.cc", text.encode(), Reader()), stack=8 << 20)
    rules = [each.rule.removeprefix("op-") for each in kernels.look(one)]
    assert not one.failed
    return rules


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("auto m = x.matrix<float>();", "rank-unchecked"),
        ("auto s = n.scalar<int32>()();", "rank-unchecked"),
        ("int64_t d = x.dim_size(1);", "rank-unchecked"),
        ("OP_REQUIRES(c, x.dims() >= 1, e); auto v = x.vec<float>();", "rank-unchecked"),
        ("if (x.dims() == 2) {} auto m = x.matrix<float>();", "rank-unchecked"),
        ("auto f = x.flat<float>(); auto i = n.flat<int32>(); for (int j = 0; j < i.size(); ++j) f(i(j));", "index-unchecked"),
        (("auto f = x.flat<float>(); auto i = n.flat<int32>(); for (int j = 0; j < i.size(); ++j)"
         " { OP_REQUIRES(c, i(j) >= 0 && i(j) <= f.size(), e); f(i(j)); }"), "index-unchecked"),
        (
            (
                "auto f = x.flat<float>(); auto i = n.flat<int32>(); if (i.size() < 9) return; int32 p = i(0);"
                " for (int j = 0; j < i.size(); ++j) { f(p); p = i(p); }"
            ),
            "index-unchecked",
        ),
        ("float a = x.flat<float>()(0);", "element-unchecked"),
        ("OP_REQUIRES(c, n.NumElements() > 0, e); auto f = n.flat<int32>(); f(1);", "element-unchecked"),
        ("auto f = x.flat<float>(); auto g = n.flat<int32>(); for (int i = 0; i < f.size(); ++i) g(i);", "sizes-unrelated"),
        ("auto f = x.flat<float>(); for (int i = 0; i <= f.size(); ++i) f(i);", "buffer-overrun"),
        ("auto f = x.flat<float>(); for (int i = 0; i < f.size(); ++i) f(i) = f(i + 1);", "buffer-overrun"),
        ("int a[10]; for (int i = 0; i <= 10; ++i) a[i] = 0;", "buffer-overrun"),
        ("auto f = x.flat<float>(); float* p = f.data(); float b[4]; memcpy(b, p, 4 * sizeof(float));", "element-unchecked"),
        ("int64_t a = x.NumElements() / stride_;", "attr-unchecked"),
        ("int64_t a = list_[2];", "attr-unchecked"),
        ("auto f = x.flat<float>(); for (int64_t i = 0; i < k_; ++i) f(i);", "attr-unchecked"),
        (("auto f = x.flat<float>(); auto s = n.flat<int32>(); for (int r = 0; r + 1 < s.size(); ++r)"
         " for (int i = s(r); i < s(r + 1); ++i) f(i);"), "offset-unchecked"),
        ("OP_REQUIRES(c, x.dims() == 1, e); int64_t a = 5 % x.dim_size(0);", "division-unchecked"),
        ("auto s = n.flat<int32>(); OP_REQUIRES(c, s.size() == 2, e); int a = s(0) * s(1);", "size-overflow"),
        ("auto s = n.flat<int32>(); OP_REQUIRES(c, s.size() == 1, e); std::vector<int> v(s(0));", "allocation-unchecked"),
        (("auto s = n.flat<int32>(); OP_REQUIRES(c, s.size() == 1, e); Tensor* y;"
         " OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({s(0)}), &y));"), "allocation-unchecked"),
    ],
)  # fmt: skip
def test_what_nothing_prevents(body: str, rule: str) -> None:
    assert found(body) == [rule]


CHECKED = """
Status Check(const Tensor& n, int64_t limit) {
  if (n.dims() != 1) return errors::InvalidArgument("rank");
  auto v = n.vec<int32>();
  for (int64_t i = 0; i < v.size(); ++i) {
    if (v(i) < 0 || v(i) >= limit) return errors::InvalidArgument("index");
  }
  return OkStatus();
}
bool IsMatrix(const Tensor& t) { return t.dims() == 2; }
"""


@pytest.mark.parametrize(
    "body",
    [
        "OP_REQUIRES(c, x.dims() == 2, e); auto m = x.matrix<float>();",
        "OP_REQUIRES(c, TensorShapeUtils::IsMatrix(x.shape()), e); auto m = x.matrix<float>();",
        "OP_REQUIRES(c, IsMatrix(x), e); auto m = x.matrix<float>();",
        "if (x.dims() != 2) return; auto m = x.matrix<float>();",
        "switch (x.dims()) { case 2: { auto m = x.matrix<float>(); break; } case 1: x.vec<float>(); break; default: break; }",
        "const bool flat = x.dims() == 1; if (flat) { auto v = x.vec<float>(); }",
        "OP_REQUIRES(c, n.NumElements() == 1, e); auto s = n.scalar<int32>()();",
        "OP_REQUIRES_OK(c, SomewhereElse(x)); auto m = x.matrix<float>();",
        "OP_REQUIRES_OK(c, SomewhereElse(c)); auto m = x.matrix<float>();",
        "Checker check; check.All(c); if (!c->status().ok()) return; auto m = x.matrix<float>();",
        "for (int i = 0; i < N; ++i) { OP_REQUIRES(c, c->input(i).dims() == 2, e); } auto m = x.matrix<float>();",
        (
            "OP_REQUIRES_OK(c, Check(n, x.NumElements())); auto f = x.flat<float>(); auto i = n.vec<int32>();"
            " for (int j = 0; j < i.size(); ++j) f(i(j));"
        ),
        (
            "auto f = x.flat<float>(); auto i = n.flat<int32>(); for (int j = 0; j < i.size(); ++j)"
            " { OP_REQUIRES(c, FastBoundsCheck(i(j), f.size()), e); f(i(j)); }"
        ),
        (
            "auto f = x.flat<float>(); auto i = n.flat<int32>(); for (int j = 0; j < i.size(); ++j)"
            " { if (i(j) < 0 || i(j) >= f.size()) continue; f(i(j)); }"
        ),
        "auto f = x.flat<float>(); if (f.size() > 0) f(0);",
        "OP_REQUIRES(c, x.dims() == 1 && x.IsSameSize(n), e); auto v = n.vec<int32>(); for (int i = 0; i < x.dim_size(0); ++i) v(i);",
        (
            "for (int i = 0; i < c->num_inputs(); ++i) OP_REQUIRES(c, c->input(i).dims() == 1, e);"
            " auto v = c->input(1).vec<int32>();"
        ),
        (
            "auto f = x.flat<float>(); const int64_t rows = std::max<int64_t>(0, f.size() - k_ + 1);"
            " for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < k_; ++j) f(i + j);"
        ),
        (
            "OP_REQUIRES(c, x.shape() == n.shape(), e); auto f = x.flat<float>(); auto g = n.flat<int32>();"
            " for (int i = 0; i < f.size(); ++i) g(i);"
        ),
        (
            "Tensor* y; OP_REQUIRES_OK(c, c->allocate_output(0, x.shape(), &y)); auto f = x.flat<float>();"
            " auto g = y->flat<float>(); for (int i = 0; i < f.size(); ++i) g(i) = f(i);"
        ),
        (
            "OP_REQUIRES(c, x.dims() == 2, e); auto f = x.flat<float>(); const int64_t w = x.dim_size(1);"
            " for (int i = 0; i < x.dim_size(0); ++i) for (int j = 0; j < w; ++j) f(i * w + j);"
        ),
        (
            "auto f = x.flat<float>(); auto work = [&](int64_t b, int64_t e) { for (int64_t i = b; i < e; ++i) f(i); };"
            " Shard(4, workers, f.size(), 10, work);"
        ),
        "int64_t a = x.NumElements() / k_;",
        "OP_REQUIRES(c, x.dims() == 1 && x.dim_size(0) > 0, e); int64_t a = 5 % x.dim_size(0);",
        "float a = 3; float b = a / x.dims();",
        "auto s = n.flat<int32>(); OP_REQUIRES(c, s.size() == 1 && s(0) >= 0 && s(0) < 100, e); std::vector<int> v(s(0));",
        "auto s = n.flat<int32>(); OP_REQUIRES(c, s.size() == 2, e); int64_t a = int64_t{s(0)} * s(1);",
        (
            "int mode = 0; const int64_t m = n.NumElements(); if (m == 4) { mode = 1; } else if (m == 2) { mode = 2; }"
            " auto f = n.flat<int32>(); if (mode == 1) { f(3); } if (mode == 2) { f(1); }"
        ),
    ],
)
def test_what_is_checked(body: str) -> None:
    assert found(body, helpers=CHECKED) == []


def test_what_the_constructor_checks_holds_in_compute() -> None:
    assert found("int64_t a = 7 / stride_;", "OP_REQUIRES(c, stride_ > 0, e);") == []
    assert found("int64_t a = list_[1];", "OP_REQUIRES(c, list_.size() == 2, e);") == []


def test_a_functor_and_a_helper_are_followed() -> None:
    functor = "struct Get { float operator()(const float* p, int64_t i) const { return p[i]; } };"
    body = "auto i = n.flat<int32>(); OP_REQUIRES(c, i.size() == 1, e); Get get; get(x.flat<float>().data(), i(0));"
    assert found(body, helpers=functor) == ["index-unchecked"]


def test_an_overrun_that_always_happens_is_certain() -> None:
    text = OP % {"body": "int a[10]; for (int i = 0; i <= 10; ++i) a[i] = 0;", "constructor": "", "helpers": ""}
    defects, gaps = checks.of_unit(of_text("op.cc", text.encode(), Reader()), 8 << 20)
    one = next(each for each in defects if each.rule == "op-buffer-overrun")
    assert (one.severity, one.confidence, one.op) == ("error", "certain", "Foo")
    assert not gaps


def test_a_function_that_is_too_long_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_NODES", 400)
    text = OP % {"body": "int a = 0; " + "if (x.dims() > 1) { a = a + 1; } " * 100, "constructor": "", "helpers": ""}
    one = Look(unit=of_text("op.cc", text.encode(), Reader()), stack=8 << 20)
    assert list(kernels.look(one)) == []
    assert "too long" in one.failed[0][1]
