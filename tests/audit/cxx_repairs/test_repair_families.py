"""Repairs of C++ sources: text in, text out. What is repaired is found no more, and a second run changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy.audit.cxx_repairs import rounds

OP = """
#include <vector>
using namespace tensorflow;
REGISTER_OP("Foo").Input("x: float").Input("n: int32").Attr("k: int").Output("y: float");
{helpers}
class FooOp : public OpKernel {{
 public:
  explicit FooOp(OpKernelConstruction* context) : OpKernel(context) {{
    OP_REQUIRES_OK(context, context->GetAttr("k", &k_));
  }}
  void Compute(OpKernelContext* context) override {{
    {body}
  }}
 private:
  int64_t k_;
}};
REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp);
"""


def op(body: str, helpers: str = "") -> str:
    return OP.format(body=body, helpers=helpers)


def repaired(path: Path, text: str, rule: str) -> str:
    """The text after all rounds; what has been repaired has to stay as it is."""
    path.write_bytes(text.encode())
    result = rounds.repaired([str(path)], 8 << 20, (), lambda one: one == rule)
    after = result.after.get(str(path), text.encode())
    path.write_bytes(after)
    assert not rounds.repaired([str(path)], 8 << 20, (), lambda one: one == rule).after
    return after.decode()


RANK = "const Tensor& x = context->input(0);\n    const auto m = x.matrix<float>();"
CASES = {
    "array": (
        "op-large-frame",
        op("float rows[4096][1024];\n    rows[0][0] = 1;\n    memset(rows, 0, sizeof(rows));"),
        [
            "std::vector<std::array<float, 1024>> rows(4096);",
            "memset(rows.data(), 0, (rows.size() * sizeof(rows[0])));",
        ],
    ),
    "object": (
        "op-large-frame",
        op("Table table;\n    table.cells[0] = 1;", "struct Table { double cells[4000000]; };"),
        ["const auto table_memory = std::make_unique<Table>();", "Table& table = *table_memory;", "#include <memory>"],
    ),
    "length by a macro": (
        "op-large-frame",
        op("double cells[CELLS];\n    cells[0] = 1;", "#define CELLS 4000000"),
        ["std::vector<double> cells(CELLS);"],
    ),
    "variable length": (
        "op-stack-allocation",
        op("const int64_t n = context->input(0).NumElements();\n    float row[n];\n    std::sort(row, row + n);"),
        ["std::vector<float> row(n);", "std::sort(row.data(), row.data() + n);"],
    ),
    "sprintf": (
        "op-string-overflow",
        op(
            'const tstring name = context->input(0).flat<tstring>()(0);\n    char to[8];\n    sprintf(to, "%s", name.c_str());'
        ),
        ['snprintf(to, sizeof(to), "%s", name.c_str());'],
    ),
    "status": (
        "op-status-ignored",
        op("Tensor* y = nullptr;\n    context->allocate_output(0, TensorShape({}), &y);"),
        ["OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));"],
    ),
    "rank": (
        "op-rank-unchecked",
        op(RANK),
        ["OP_REQUIRES(context, x.dims() == 2,\n                errors::InvalidArgument("],
    ),
    "rank of a shape": (
        "op-rank-unchecked",
        op("const TensorShape& shape = context->input(0).shape();\n    Use(shape.dim_size(2));"),
        [
            "OP_REQUIRES(context, shape.dims() > 2,",
            'errors::InvalidArgument("shape must have more than 2 dimensions"));',
        ],
    ),
    "several elements on one line": (
        "op-element-unchecked",
        op("const auto x = context->input(0).flat<float>();\n    Use(x(0) + x(1) + x(2));"),
        ["OP_REQUIRES(context, x.size() > 2, "],
    ),
    "an index in a functor": (
        "op-index-unchecked",
        op(
            "Pick<float>()(context->input(0).flat<float>(), context->input(1).flat<int32>());",
            "template <typename T>\nstruct Pick {\n  void operator()(typename TTypes<T>::ConstFlat x, TTypes<int32>::ConstFlat n) {\n"
            "    for (int64_t i = 0; i < n.size(); ++i) Use(x(n(i)));\n  }\n};",
        ),
        [
            "TTypes<int32>::ConstFlat n, OpKernelContext* context) {",
            "if (!(n(i) >= 0 && n(i) < x.size())) {",
            "context->input(1).flat<int32>(), context);\n    if (!context->status().ok()) return;",
        ],
    ),
    "divisor": (
        "op-attr-unchecked",
        op("const int64_t n = context->input(0).NumElements() / k_;\n    Use(n);"),
        ["OP_REQUIRES(context, k_ > 0, "],
    ),
    "loop bound": (
        "op-buffer-overrun",
        op("float slots[10];\n    for (int i = 0; i <= 10; ++i) {\n      slots[i] = 0;\n    }"),
        ["for (int i = 0; i < 10; ++i) {"],
    ),
    "recursion": (
        "op-recursion",
        op(
            "const int64_t sum = Down(context->input(1).NumElements());\n    Use(sum);",
            "int64_t Down(int64_t n) {\n  if (n <= 0) return 0;\n  return n + Down(n - 1);\n}",
        ),
        [
            "int64_t Down(int64_t n, OpKernelContext* context, int depth = 0) {",
            "return n + Down(n - 1, context, depth + 1);",
            "Down(context->input(1).NumElements(), context);\n    if (!context->status().ok()) return;",
        ],
    ),
    "destructor": (
        "op-recursive-destructor",
        op("Node node;\n    Use(node);", "struct Node {\n  std::unique_ptr<Node> next;\n};"),
        ["  Node(Node&&) = default;", "  ~Node() {", "waiting->push_back(std::move(next));"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_repair(name: str, tmp_path: Path) -> None:
    rule, text, wanted = CASES[name]
    after = repaired(tmp_path / "op.cc", text, rule)
    for line in wanted:
        assert line in after


NO_CONTEXT = "int At(const Tensor& t) { return t.matrix<int>()(0, 0); }\nauto at = &At;\n"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("op-large-frame", op("float rows[4096][1024];\n    Use(&rows);")),
        ("op-large-frame", op("float a[4000000], b[2];\n    a[0] = b[0];")),
        ("op-stack-allocation", op("float row[context->input(0).NumElements()];\n    Use(&row);")),
        ("op-rank-unchecked", op("const int n = At(context->input(0));\n    Use(n);", NO_CONTEXT)),
    ],
    ids=["address of an array", "two variables", "address of a row", "a function whose address is taken"],
)
def test_what_is_not_safe_is_left(rule: str, text: str, tmp_path: Path) -> None:
    assert repaired(tmp_path / "op.cc", text, rule) == text


def test_nothing_in_a_macro_is_edited(tmp_path: Path) -> None:
    text = op("LARGE(cells);\n    cells[0] = 1;", "#define LARGE(name) double name[4000000]")
    assert repaired(tmp_path / "op.cc", text, "op-large-frame") == text


def test_a_check_is_put_before_the_macro_call_that_needs_it(tmp_path: Path) -> None:
    text = op("const float t = SCALAR(context, 0);\n    Use(t);", "#define SCALAR(c, n) c->input(n).scalar<float>()()")
    after = repaired(tmp_path / "op.cc", text, "op-rank-unchecked")
    assert "NumElements() == 1," in after
    assert "    const float t = SCALAR(context, 0);\n" in after
    assert "#define SCALAR(c, n) c->input(n).scalar<float>()()\n" in after


def test_a_body_without_braces_gets_them(tmp_path: Path) -> None:
    text = op("const Tensor& x = context->input(0);\n    if (k_ > 2)\n      Use(x.matrix<float>());")
    after = repaired(tmp_path / "op.cc", text, "op-rank-unchecked")
    assert "if (k_ > 2)\n      {\n        OP_REQUIRES(" in after
    assert "        Use(x.matrix<float>());\n      }\n" in after
