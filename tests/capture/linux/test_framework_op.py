from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import needs
from necropsy.capture.linux.inspect.framework_op import Finder, kernel_frame, snake_case
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import NativeStack
from necropsy.model import Frame


@pytest.mark.parametrize(
    ("op", "wrapper"),
    [
        ("MatMul", "mat_mul"),
        ("DeepRecursion", "deep_recursion"),
        ("Conv2D", "conv2d"),
        ("LSTMBlockCell", "lstm_block_cell"),
        ("QuantizedConv2DAndReluV2", "quantized_conv2d_and_relu_v2"),
        ("Namespace>TestStringOutput", "namespace_test_string_output"),
        ("FFT", "fft"),
        ("IFFT3D", "ifft3d"),
    ],
)
def test_ops_are_spelled_as_tensorflow_spells_their_wrappers(op: str, wrapper: str) -> None:
    assert snake_case(op) == wrapper


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_every_wrapper_that_tensorflow_brings_agrees() -> None:
    found = importlib.util.find_spec("tensorflow")
    assert found is not None and found.origin is not None
    pattern = re.compile(
        r"^def (\w+)\([^\n]*\n(?:(?!^def ).*\n)*?.*?TFE_Py_FastPathExecute\(\s*_ctx, \"([\w>]+)\"", re.MULTILINE
    )
    pairs = [
        pair
        for path in Path(found.origin).parent.glob("python/ops/gen_*_ops.py")
        for pair in pattern.findall(path.read_text())
    ]
    assert len(pairs) > 500
    assert [(name, op) for name, op in pairs if name.lstrip("_") != snake_case(op)] == []


class NoMemory(Memory):
    def some(self, address: int, size: int) -> bytes:
        return b""


OLDER = """\
def conv2d_backprop_input(input_sizes, filter, name=None):
  _ctx = _context._context or _context.context()
  tld = _ctx._thread_local_data
  if tld.is_eager:
    try:
      _result = pywrap_tfe.TFE_Py_FastPathExecute(
        _ctx._context_handle, tld.device_name, "Conv2DBackpropInput", name,
        tld.op_callbacks, input_sizes, filter)
      return _result
"""
NEWER = """\
def conv2d_backprop_input(input_sizes, filter, name=None):
  _ctx = _context._context or _context.context()
  tld = _ctx._thread_local_data
  if tld.is_eager:
    try:
      _result = pywrap_tfe.TFE_Py_FastPathExecute(
        _ctx, "Conv2DBackpropInput", name, input_sizes, filter)
      return _result
"""


@pytest.mark.parametrize("text", [OLDER, NEWER], ids=["TensorFlow 2.3", "TensorFlow 2.20"])
@pytest.mark.parametrize("line", [6, 7])
def test_the_op_is_read_from_the_wrappers_of_old_and_new_versions(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "gen_nn_ops.py"
    path.write_text(text)
    frame = Frame(index=0, kind="python", function="conv2d_backprop_input", source=str(path), line=line)
    library = CodeLocation(pc=1, function="TFE_Py_FastPathExecute_C(_object*)", module="x.so", offset=1)
    finder = Finder(NoMemory(), MemoryMap(()), MappedFiles(()))
    found = finder.find(NativeStack(places=[library], pointers=[0]), (), [[frame]])
    assert found is not None
    assert found.op == "Conv2DBackpropInput"


@pytest.mark.parametrize(
    ("function", "kernel"),
    [
        ("DeepRecursionOp::Compute(tensorflow::OpKernelContext*)", "DeepRecursionOp"),
        ("tensorflow::{anonymous}::RunOp::ComputeAsync(tensorflow::OpKernelContext*, std::function<...>)",
         "tensorflow::{anonymous}::RunOp"),
        ("tensorflow::BinaryOp<Eigen::ThreadPoolDevice, tensorflow::functor::add<float> >::Compute(tensorflow::OpKernelContext*)",
         "tensorflow::BinaryOp<Eigen::ThreadPoolDevice, tensorflow::functor::add<float> >"),
        ("RaceOp::Compute(tensorflow::OpKernelContext*)::{lambda(long, long)#1}::operator()(long, long) const", "RaceOp"),
        ("tensorflow::ThreadPoolDevice::Compute(tensorflow::OpKernel*, tensorflow::OpKernelContext*)", None),
        ("tensorflow::{anonymous}::ReshapeOp::Compile(tensorflow::XlaOpKernelContext*)", "tensorflow::{anonymous}::ReshapeOp"),
        ("main", None),
    ],
)  # fmt: skip
def test_the_kernels_class_is_in_the_frames_name(function: str, kernel: str | None) -> None:
    place = CodeLocation(pc=1, function=function, module="x.so", offset=1)
    found = kernel_frame(NativeStack(places=[place], pointers=[0]))
    assert (found.kernel if found else None) == kernel
