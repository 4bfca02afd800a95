"""LLVM's stack on Windows."""

from __future__ import annotations

import pytest
from hypothesis import given

from necropsy.formats.readers.llvm_windows import READER
from reading import cut_and_mixed, only, pieces, seconds, survive, verdict

# https://github.com/ROCm/legacy-rocm-build/issues/5440
TORCH = r"""[shared] Running ocr
Exception Code: 0xC0000094
0x00007FFFA52E98D5, C:\venv\Lib\site-packages\torch\lib\torch_hip.dll(0x00007FFFA3FB0000) + 0x13398D5 byte(s), ?_chunk_cat_out_cuda@native@at@@YAAEAVTensor@2@V?$ArrayRef@VTensor@at@@@c10@@_J1AEAV32@@Z() + 0x37985 byte(s)
0x00007FFFA5CF748A, C:\venv\Lib\site-packages\torch\lib\torch_hip.dll(0x00007FFFA3FB0000) + 0x1D4748A byte(s), ?topk@cuda@at@@YA?AV?$tuple@VTensor@at@@V12@@std@@AEBVTensor@2@_J1_N2@Z() + 0xEA byte(s)
0x00007FFFF0A1B2C3, C:\Python311\python311.dll(0x00007FFFF0900000) + 0x11B2C3 byte(s), _PyEval_EvalFrameDefault() + 0x2B3 byte(s), C:\src\ceval.c, line 5000
0x00007FF8A1B2C3D4, C:\WINDOWS\System32\KERNEL32.DLL(0x00007FF8A1B10000) + 0x1C3D4 byte(s), BaseThreadInitThunk() + 0x14 byte(s)

done"""


def test_stack() -> None:
    (piece,) = pieces(TORCH, READER)
    assert (piece.first, piece.last) == (2, 6)
    thread = piece.crash.crashed_thread
    assert thread is not None
    assert [(frame.function, frame.module, frame.module_offset) for frame in thread.frames or ()] == [
        ("at::native::_chunk_cat_out_cuda", "torch_hip.dll", 0x13398D5),
        ("at::cuda::topk", "torch_hip.dll", 0x1D4748A),
        ("_PyEval_EvalFrameDefault()", "python311.dll", 0x11B2C3),
        ("BaseThreadInitThunk()", "KERNEL32.DLL", 0x1C3D4),
    ]
    assert thread.frames is not None
    assert (thread.frames[2].source, thread.frames[2].line) == (r"C:\src\ceval.c", 5000)


def test_verdict() -> None:
    found = verdict(TORCH, READER)
    assert found.rule == "integer-divide-by-zero"
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.module) == ("at::native::_chunk_cat_out_cuda", "torch_hip.dll")


@pytest.mark.parametrize(
    "text", ["Exception Code: 0xC0000094", "Exception Code: 0x00000001\n0x00000000 a(0x00000000) + 0x1 byte(s)"]
)
def test_what_is_no_stack(text: str) -> None:
    assert pieces(text, READER) == []


def test_code_alone_belongs_to_others() -> None:
    assert only(TORCH, READER).exit is not None


@given(cut_and_mixed([TORCH]))
def test_any_text(text: str) -> None:
    survive(text, READER)


def test_linear() -> None:
    line = "Exception Code: 0xC0000094 0x00000000, a(0x00000000) + 0x1 byte(s), "
    assert seconds(line * 3000, READER) < 2
    assert seconds("\n".join(["Exception Code: 0xC0000094", *[line * 5] * 3]) * 500, READER) < 4
