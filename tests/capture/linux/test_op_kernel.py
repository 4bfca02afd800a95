"""Which kernel is read from the stack of a death: one of the frame's class that is a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder

PROGRAM = """
#include <cstdlib>
#include <string_view>
namespace tensorflow {
class OpKernelContext {};
class OpKernel {
 public:
  virtual ~OpKernel() {}
  virtual void Compute(OpKernelContext*) = 0;
  std::string_view name = "model/unbatch", type = "Unbatch";
  int version = 1;
};
class Resource {
 public:
  virtual ~Resource() {}
  long count = 1;
};
class UnbatchResource : public Resource {
 public:
  void __attribute__((noinline)) Compute(OpKernelContext* context) {
    volatile UnbatchResource* self = this;
    if (self->version) abort();
  }
  // What the heap may have behind it: another kernel.
  std::string_view name = "unbatched_RetVal", type = "_Retval";
  int version = 1;
};
class Counted {
 public:
  virtual ~Counted() {}
  long count = 1;
};
class UnbatchKernel : public BASES {
 public:
  void Compute(OpKernelContext* context) override {
    volatile UnbatchKernel* self = this;
    resource->Compute(context);
    if (self->version) abort();
  }
  UnbatchResource* resource = new UnbatchResource;
};
}
int main() {
  tensorflow::OpKernel* kernel = new tensorflow::UnbatchKernel;
  tensorflow::OpKernelContext context;
  kernel->Compute(&context);
}
"""


@pytest.mark.parametrize("bases", ["OpKernel", "Counted, public OpKernel", "OpKernel, public virtual Counted"])
def test_a_resource_that_has_a_compute_is_no_kernel(tmp_path: Path, bases: str) -> None:
    program = build(tmp_path, PROGRAM.replace("BASES", bases), "-O0", "-std=c++17", cxx=True)
    with dying([str(program)]) as death:
        crash = crash_builder.capture(death)
    found = crash.operation
    assert found is not None
    assert (found.op, found.node, found.kernel) == ("Unbatch", "model/unbatch", "tensorflow::UnbatchKernel")
