from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from necropsy.capture.linux.operation import kernel_frame, snake_case
from necropsy.capture.process.place import Place
from necropsy.capture.process.unwound import Unwound


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
def test_every_wrapper_that_tensorflow_brings_agrees() -> None:
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None:
        pytest.skip("TensorFlow is not installed")
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
    place = Place(pc=1, function=function, module="x.so", offset=1)
    found = kernel_frame(Unwound(places=[place], pointers=[0]))
    assert (found.kernel if found else None) == kernel
