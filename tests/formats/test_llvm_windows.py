"""LLVM's stack on Windows."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.printed_stacks import READERS
from reading import only, pieces, verdict

(READER,) = (one for one in READERS if one.kind == "llvm-windows")

# https://github.com/ROCm/legacy-rocm-build/issues/5440
TORCH = r"""[shared] Running ocr
Exception Code: 0xC0000094
0x00007FFFA52E98D5, C:\venv\Lib\site-packages\torch\lib\torch_hip.dll(0x00007FFFA3FB0000) + 0x13398D5 byte(s), ?_chunk_cat_out_cuda@native@at@@YAAEAVTensor@2@V?$ArrayRef@VTensor@at@@@c10@@_J1AEAV32@@Z() + 0x37985 byte(s)
0x00007FFFA5CF748A, C:\venv\Lib\site-packages\torch\lib\torch_hip.dll(0x00007FFFA3FB0000) + 0x1D4748A byte(s), ?topk@cuda@at@@YA?AV?$tuple@VTensor@at@@V12@@std@@AEBVTensor@2@_J1_N2@Z() + 0xEA byte(s)
0x00007FFFF0A1B2C3, C:\Python311\python311.dll(0x00007FFFF0900000) + 0x11B2C3 byte(s), _PyEval_EvalFrameDefault() + 0x2B3 byte(s), C:\src\ceval.c, line 5000
0x00007FF8A1B2C3D4, C:\WINDOWS\System32\KERNEL32.DLL(0x00007FF8A1B10000) + 0x1C3D4 byte(s), BaseThreadInitThunk() + 0x14 byte(s)

done"""

# https://github.com/lshqqytiger/stable-diffusion-webui-amdgpu/issues/645; frame 3 is made, as LLVM's Signals.inc does
NEWER = r"""Startup time: 17.1s
Exception Code: 0xC0000005
 #0 0x00007ff83fa38eb4 (C:\Program Files (x86)\venv\Lib\site-packages\_rocm_sdk_core\bin\amdhip64_7.dll+0x18eb4)
 #1 0x00007ff83fd02ba5 (C:\venv\Lib\site-packages\_rocm_sdk_core\bin\amdhip64_7.dll+0x2e2ba5)
 #2 0x00007ff801008f8e (C:\venv\Lib\site-packages\torch\lib\torch_hip.dll+0xb38f8e)
 #3 0x00007ff801008100 op::step(int) C:\src\op.cc:31:0
 #4 0x00007ffe53aa5aa5 (C:\Users\USER\Python311\python311.dll+0x95aa5)
Press any key to continue . . ."""


def test_stack() -> None:
    (piece,) = pieces(TORCH, READER)
    assert (piece.first, piece.last) == (2, 6)
    thread = piece.crash.crashed_thread
    assert thread is not None
    assert [(frame.function, frame.module, frame.module_offset) for frame in thread.frames or ()] == [
        (None, "torch_hip.dll", 0x13398D5),
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
    assert found.culprit.module == "torch_hip.dll"
    assert found.culprit.function is None or "_chunk_cat" not in found.culprit.function


def test_newer_form() -> None:
    (piece,) = pieces(NEWER, READER)
    assert (piece.first, piece.last) == (2, 7)
    thread = piece.crash.crashed_thread
    assert thread is not None
    assert [(frame.function, frame.module, frame.module_offset, frame.line) for frame in thread.frames or ()] == [
        (None, "amdhip64_7.dll", 0x18EB4, None),
        (None, "amdhip64_7.dll", 0x2E2BA5, None),
        (None, "torch_hip.dll", 0xB38F8E, None),
        ("op::step(int)", None, None, 31),
        (None, "python311.dll", 0x95AA5, None),
    ]
    found = verdict(NEWER, READER)
    assert (found.rule, found.culprit and found.culprit.module) == ("invalid-read", "amdhip64_7.dll")


@pytest.mark.parametrize(
    "text", ["Exception Code: 0xC0000094", "Exception Code: 0x00000001\n0x00000000 a(0x00000000) + 0x1 byte(s)"]
)
def test_what_is_no_stack(text: str) -> None:
    assert pieces(text, READER) == []


def test_code_alone_belongs_to_others() -> None:
    assert only(TORCH, READER).exit is not None
