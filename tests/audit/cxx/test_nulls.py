"""Pointers that may be null where they are dereferenced."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

FIND = "const int* Find(int n) { if (n < 0) return nullptr; return &kTable[n]; }\n"
KEY = "int n = x.flat<float>()(0); "
LIST = """REGISTER_OP("Sum").Input("xs: N * float").Attr("N: int >= LEAST").Output("y: float");
struct SumOp : OpKernel { void Compute(OpKernelContext* c) override {
  OpInputList xs; OP_REQUIRES_OK(c, c->input_list("xs", &xs)); CHECKED const Tensor& x = xs[0]; } };
REGISTER_KERNEL_BUILDER(Name("Sum").Device(DEVICE_CPU), SumOp);"""


@pytest.mark.parametrize(
    ("body", "case"),
    [
        (KEY + "const int* p = Find(n); int v = *p;", "returned"),
        (KEY + "auto it = map_.find(n); int v = it->second;", "find"),
        (KEY + "int v = map_.find(n)->second;", "find"),
        (KEY + "int v = *Find(n);", "returned"),
        ('Table* t = nullptr; Status s = m->Lookup("t", "n", &t); if (!s.ok()) LOG(INFO) << s; t->Run();', "lookup"),
    ],
)
def test_null_pointers(body: str, case: str) -> None:
    defects = found(kernel(body, before=FIND, members="std::map<int, int> map_;"), "op-null-input")
    assert [one.case for one in defects] == [case]


@pytest.mark.parametrize(
    "body",
    [
        KEY + "const int* p = Find(n); if (p == nullptr) return; int v = *p;",
        KEY + "const int* p = Find(n); int v = p ? *p : 0;",
        KEY + "OP_REQUIRES(context, n >= 0, E()); const int* p = Find(n); int v = *p;",
        "const int* p = Find(3); int v = *p;",
        KEY + "auto it = map_.find(n); if (it != map_.end()) y = it->second;",
        'Table* t = nullptr; OP_REQUIRES_OK(context, m->Lookup("t", "n", &t)); t->Run();',
        'Table* t = nullptr; Status s = m->Lookup("t", "n", &t); OP_REQUIRES_OK(context, s); t->Run();',
        'Table* t = nullptr; Status s = m->Lookup("t", "n", &t); if (s.ok()) { t->Run(); }',
    ],
)
def test_pointers_that_are_tested(body: str) -> None:
    assert found(kernel(body, before=FIND, members="std::map<int, int> map_;"), "op-null-input") == []


@pytest.mark.parametrize(
    ("least", "checked", "count"),
    [("0", "", 1), ("1", "", 0), ("0", "OP_REQUIRES(c, xs.size() > 0, E());", 0)],
)
def test_lists_that_may_be_empty(least: str, checked: str, count: int) -> None:
    defects = found(LIST.replace("LEAST", least).replace("CHECKED", checked), "op-null-input")
    assert [one.case for one in defects] == ["list"] * count


TABLE = """
struct Table {{
  std::map<int, float> map_;
  {other}
  float Get(const Tensor& keys) const {{
    const std::map<int, float>::const_iterator it = map_.find(keys.flat<int32>()(0));
    return it->second;
  }}
}};
"""


@pytest.mark.parametrize(
    ("other", "asked", "count"),
    [
        ("", "", 1),
        ("bool Has(int key) const { return map_.count(key) > 0; }", "", 0),
        ("", "OP_REQUIRES(context, AreKeys(name), E());", 0),
    ],
)
def test_an_iterator_in_a_helper(other: str, asked: str, count: int) -> None:
    text = kernel(f"{asked} Table table; Use(table.Get(name));", before=TABLE.format(other=other))
    assert len(found(text, "op-null-input")) == count
