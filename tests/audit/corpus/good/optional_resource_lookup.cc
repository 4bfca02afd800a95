// twin: op-null-input, op-status-ignored
// call: TableSize {"table": "nowhere"} => 0
// call: TableSize {"table": ""} => 0
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

class NamedTable : public ResourceBase {
 public:
  std::string DebugString() const override { return "a table"; }
  virtual int64_t Rows() { return rows_; }

 private:
  int64_t rows_ = 0;
};

REGISTER_OP("TableSize").Attr("table: string").Output("rows: int64").SetIsStateful().SetShapeFn(shape_inference::ScalarShape);

class TableSizeOp : public OpKernel {
 public:
  explicit TableSizeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("table", &table_name_));
  }

  void Compute(OpKernelContext* context) override {
    NamedTable* table = nullptr;
    Status found = context->resource_manager()->Lookup("tables", table_name_, &table);
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &rows));
    rows->scalar<int64_t>()() = 0;
    if (!found.ok()) return;
    rows->scalar<int64_t>()() = table->Rows();
    table->Unref();
  }

 private:
  std::string table_name_;
};

REGISTER_KERNEL_BUILDER(Name("TableSize").Device(DEVICE_CPU), TableSizeOp);

}  // namespace tensorflow
