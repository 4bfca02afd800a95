"""flat<T> with another type than the op declares."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

OP = 'REGISTER_OP("Bar").Input("x: T").Output("y: T").Attr("T: {float, double, int32}");\n'
BAR = """
template <typename T> struct BarOp : OpKernel {
  void Compute(OpKernelContext* c) override { const Tensor& x = c->input(0); Use(x); BODY }
  void Use(const Tensor& t) { auto v = t.flat<T>(); }
};
"""


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("auto v = x.flat<double>();", "never"),
        ("auto v = context->input(1).scalar<float>()();", "never"),
        ("y->vec<int32>()(0) = 1;", "never"),
        (
            'const Tensor* z; OP_REQUIRES_OK(context, context->input("x", &z)); auto v = z->tensor<int64_t, 2>();',
            "never",
        ),
    ],
)
def test_another_type_than_the_op_declares(body: str, case: str) -> None:
    assert [one.case for one in found(kernel(body), "op-type-unchecked")] == [case]


@pytest.mark.parametrize(
    "body",
    [
        "auto v = x.matrix<float>();",
        "if (x.dtype() == DT_INT32) { auto v = x.flat<int32>(); }",
        "Tensor z; OP_REQUIRES_OK(context, context->allocate_temp(DT_INT32, x.shape(), &z)); auto v = z.flat<int32>();",
        "auto v = name.flat<tstring>();",
    ],
)
def test_the_type_that_it_declares(body: str) -> None:
    assert found(kernel(body), "op-type-unchecked") == []


@pytest.mark.parametrize(
    ("registration", "types"),
    [
        ('Name("Bar").Device(DEVICE_CPU).TypeConstraint<float>("T"), BarOp<float>', []),
        ('Name("Bar").Device(DEVICE_CPU).TypeConstraint<float>("T"), BarOp<double>', ["float"]),
        ('Name("Bar").Device(DEVICE_CPU), BarOp<float>', ["double, int32"]),
        ('Name("Bar").Device(DEVICE_GPU), BarOp<float>', []),
        ('Name("Bar").Device(DEVICE_CPU).TypeConstraint("T", {DT_FLOAT, DT_DOUBLE}), BarOp<float>', ["double"]),
    ],
)
def test_types_of_templates_and_helpers(registration: str, types: list[str]) -> None:
    defects = found(f"{OP}{BAR.replace('BODY', '')}REGISTER_KERNEL_BUILDER({registration});", "op-type-unchecked")
    assert [one.names["types"] for one in defects] == types
    assert all(one.function == "BarOp::Use" for one in defects)
