"""A kernel around the body of Compute, and what the checks find in it."""

from __future__ import annotations

from necropsy.audit.cxx import checks
from necropsy.audit.cxx.load import Reader, of_text
from necropsy.model import CodeDefect

STACK = 8 << 20
_OP = """
REGISTER_OP("Foo").Input("x: float").Input("name: string").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);
struct FooOp : public OpKernel {{
  explicit FooOp(OpKernelConstruction* context) : OpKernel(context) {{ {constructor} }}
  void Compute(OpKernelContext* context) override {{
    const Tensor& x = context->input(0);
    const Tensor& name = context->input(1);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    {body}
    y->flat<float>() = x.flat<float>();
  }}
  {members}
}};
REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp);
"""


def kernel(body: str, *, before: str = "", members: str = "", constructor: str = "") -> str:
    """A source with a correct kernel into which ``body`` is put."""
    return before + _OP.format(body=body, members=members, constructor=constructor)


def found(text: str, *rules: str) -> list[CodeDefect]:
    """What the checks find; of these rules only, where some are given."""
    defects, gaps = checks.of_unit(of_text("op.cc", text.encode(), Reader()), STACK)
    assert not gaps
    return [one for one in defects if not rules or one.rule in rules]
