"""What makes a cause likelier: the library that faulted, and what else the text says."""

from __future__ import annotations

from io import BytesIO

import pytest

from necropsy import explanation
from necropsy.model import Diagnosis
from necropsy.rules import crash_rules

EVENT = r"""
Faulting application name: python.exe, version: 3.11.9150.1013, time stamp: 0x660bda91
Faulting module name: {module}, version: {version}, time stamp: 0x5e7bca8c
Exception code: {code}
Fault offset: 0x0000000000012fd8
Faulting application path: C:\Python311\python.exe
"""


def verdict(text: str) -> Diagnosis:
    explained = explanation.explain(["-"], crash_rules, stdin=BytesIO(text.encode()))
    assert explained.document is not None
    found = explained.document.reports[0].verdict
    assert found is not None
    return found


def causes(text: str) -> list[str | None]:
    return [one.rule for one in verdict(text).possible]


def event(module: str, code: str, version: str = "6.14.11.8030") -> str:
    return EVENT.format(module=module, code=code, version=version)


@pytest.mark.parametrize("code", ["0xe06d7363", "0xc0000005", "0xc0000409"])
@pytest.mark.parametrize("module", ["cudnn64_8.dll", "cublasLt64_12.dll", "cudnn_ops_infer64_8.dll"])
def test_a_library_of_cuda(module: str, code: str) -> None:
    assert causes(event(module, code))[:2] == ["cudnn-version-mismatch", "gpu-out-of-memory"]
    assert "GPU hidden" in verdict(event(module, code)).fixes[0].text


@pytest.mark.parametrize("code", ["0xe06d7363", "0xc0000005"])
def test_the_driver(code: str) -> None:
    assert causes(event("nvcuda64.dll", code))[0] == "cuda-driver-too-old"


def test_another_library_changes_nothing() -> None:
    assert causes(event("KERNELBASE.dll", "0xe06d7363")) == ["uncaught-cpp-exception"]
    assert causes(event("some_extension.pyd", "0xc0000409"))[0] == "cudnn-version-mismatch"


def test_qt_before_cuda_where_the_program_uses_qt() -> None:
    end = "Process finished with exit code -1073740791 (0xC0000409)\n"
    assert causes(end)[0] == "cudnn-version-mismatch"
    assert causes("from PyQt5.QtWidgets import QApplication\n" + end)[0] == "abort"
    assert (
        causes("from PyQt5.QtWidgets import QApplication\n" + end.replace("-1073740791 (0xC0000409)", "139"))[0]
        != "abort"
    )


def claims(text: str) -> dict[str, str]:
    """What is seen of each claim of the verdict."""
    return {one.claim: one.seen for one in verdict(text).evidence}


def test_an_import_is_the_last_that_it_did() -> None:
    end = "Segmentation fault (core dumped)\n"
    assert "it was importing" not in claims(end)
    assert claims(">>> import tiledb\n" + end)["it was importing"] == ">>> import tiledb"
    assert verdict(">>> import tiledb\n" + end).possible[0].cause.endswith("they were being loaded")
    assert "it was importing" not in claims(">>> import tiledb\n" + ">>> x = 1\n" * 8 + end)


def test_two_packages_with_copies_of_their_own() -> None:
    end = "x = 1\n" * 8 + "Segmentation fault (core dumped)\n"
    copies = "packages that bring their own copies of common C++ libraries"
    assert copies not in claims("import torch\n" + end)
    assert claims("import torch\nimport pyarrow\n" + end)[copies] == "torch, pyarrow"
    versions = "lightgbm==3.3.1\ntorch==1.10.1\n"
    assert copies not in claims(versions + end)
    assert causes(versions + end)[0] == "conflicting-libraries"
    assert causes("Operating System: Darwin\n" + versions + end)[0] == "duplicate-openmp"


@pytest.mark.parametrize("line", ["sys.setrecursionlimit(10**6)", "loads('[' * 100000)", "RecursionError: maximum"])
def test_a_deep_recursion(line: str) -> None:
    assert causes(f"{line}\nSegmentation fault (core dumped)\n")[0] == "stack-overflow-recursion"
    assert "stack-overflow-recursion" not in causes(f"{line}\nBus error (core dumped)\n")


def test_what_was_observed_needs_no_list() -> None:
    fault = "import torch\nimport pyarrow\n[ 12.3] python[42]: segfault at 0 ip 00007f1c2 sp 00007ffd error 4 in libx.so[7f1000+1000]\n"
    assert verdict(fault).rule == "null-dereference"
    assert verdict(fault).possible == ()


def test_a_notebook_whose_kernel_died() -> None:
    end = "The kernel appears to have died. It will restart automatically.\n"
    assert causes(end)[:2] == [None, "out-of-memory-killed"]
    gpu = "2023-01-01 10:00:00.000000: I tensorflow/stream_executor/cuda/cuda_dnn.cc:384] Loaded cuDNN version 8201\n"
    assert causes(gpu + end)[0] == "cudnn-version-mismatch"
    assert (
        causes(
            "W external/xla/cpu_allocator_impl.cc:82] Allocation of 900000 exceeds 10% of free system memory.\n" + end
        )[0]
        == "out-of-memory-killed"
    )


@pytest.mark.parametrize(
    ("file", "function", "rule"),
    [("subprocess.py", "_execute_child", "python-exception"), ("ctypes\\__init__.py", "__init__", "missing-library")],
)
def test_no_library_where_a_program_was_started(file: str, function: str, rule: str) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "D:\\proj\\login.py", line 42, in login\n'
        f'  File "C:\\Python310\\lib\\{file}", line 345, in {function}\n'
        "OSError: [WinError 193] %1 is not a valid Win32 application\n"
    )
    assert verdict(text).rule == rule


def test_a_function_that_only_calls_itself() -> None:
    end = "\nKernel died, restarting\n"
    assert causes("cost = lambda x: cost(np.append(x, rest))" + end)[0] == "stack-overflow-recursion"
    assert causes("def cost(x):\n    return cost(x)" + end)[0] == "stack-overflow-recursion"
    for line in ("cost = lambda x: cost(x - 1) if x else 0", "cost = lambda x: other(x)", "cost = lambda x: a.cost(x)"):
        assert causes(line + end)[0] != "stack-overflow-recursion"


def test_a_pointer_that_malloc_does_not_know_may_be_of_another_library() -> None:
    said = verdict("free(): invalid pointer\nAborted (core dumped)\n")
    assert (said.rule, said.confidence) == ("heap-corruption", "likely")
    assert causes("free(): invalid pointer\nAborted (core dumped)\n") == ["conflicting-libraries"]
    assert verdict("malloc(): corrupted top size\nAborted (core dumped)\n").confidence == "certain"
