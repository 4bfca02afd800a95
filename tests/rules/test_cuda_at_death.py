"""CUDA's libraries that were mapped when a process died, judged by doctor's rules: they tell the reason of the verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live import reports_of

from doctor_building import library, needs_compiler
from necropsy.diagnose import diagnose
from necropsy.model import Report
from necropsy.rules import crash_rules
from sketch import crash

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int dnn(int *p); int part(void); int old(void); int new_(void); int tf(void);
int main(int argc, char **argv) {
  part(); old(); new_(); tf();
  if (!strcmp(argv[1], "inside")) { int *volatile none = 0; return dnn(none); }
  fputs("E0000 cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.  CuDNN library "
        "needs to have matching major version and equal or higher minor version.\\n", stderr);
  abort();
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a TensorFlow and a cuDNN, by their names, and the libraries of two CUDAs."""
    made = tmp_path_factory.mktemp("cuda")
    site = made / "lib/python3.11/site-packages"
    (site / "tensorflow-2.20.0.dist-info").mkdir(parents=True)
    library(site / "tensorflow/libtensorflow_framework.so.2", "int tf(void) { return 1; }")
    library(made / "old/libcudnn.so.9.1.0", "int dnn(int *p) { return *p; }")
    library(made / "old/libcudnn_ops.so.9.3.0", "int part(void) { return 1; }")
    library(made / "libcudart.so.11.0", "int old(void) { return 1; }")
    library(made / "libcudart.so.12", "int new_(void) { return 1; }")
    words = ["gcc", "-w", "-x", "c", "-o", str(made / "program"), "-", "-x", "none", *map(str, made.rglob("lib*.so.*"))]
    subprocess.run(words, input=PROGRAM.encode(), check=True)
    return made


def report(folder: Path, how: str) -> dict[str, Any]:
    path = f"LD_LIBRARY_PATH={folder}/old"
    return reports_of(["/usr/bin/env", path, str(folder / "program"), how], folder)[0]


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
def test_a_fault_in_a_cudnn_that_is_too_old(folder: Path) -> None:
    found = {one["rule"]: one for one in report(folder, "inside")["environment_findings"]}
    assert set(found) == {"env-cudnn-version-mismatch", "env-cudnn-incomplete"}
    one = found["env-cudnn-version-mismatch"]
    assert "tensorflow 2.20.0 was built with cuDNN 9.3, and had loaded cuDNN 9.1.0, which is older" in one["summary"]
    assert one["fixes"][0]["command"] == "unset LD_LIBRARY_PATH"


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
def test_the_verdict_on_cudnns_version_names_the_file(folder: Path) -> None:
    seen = report(folder, "words")
    assert seen["verdict"]["rule"] == "cudnn-version-mismatch"
    assert {one["rule"] for one in seen["environment_findings"]} == {
        *("env-cudnn-version-mismatch", "env-cudnn-incomplete", "env-cuda-library-mixed")
    }
    assert f"{folder}/old/libcudnn.so.9.1.0" in {one["where"] for one in seen["verdict"]["evidence"]}


SITE = "/env/lib/python3.11/site-packages"
FAULT = """
    signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
    at 0x7f0000001000 mov eax, dword ptr [rdi]
    operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
    stack 8MiB used 20KiB whole main
    frame cudnnConvolutionForward @ libcudnn.so.9 takes 32
"""


def judged(torch: str, cudnn: str, owner: str = "nvidia-cudnn-cu12") -> Report:
    modules = (
        f"module {SITE}/torch/lib/libtorch_cuda.so {torch} of torch",
        f"module {SITE}/nvidia/cudnn/lib/libcudnn.so.9 {cudnn} of {owner}",
    )
    return diagnose(crash("\n".join((FAULT, *modules))), crash_rules())


@pytest.mark.parametrize(
    ("torch", "cudnn", "rules"),
    [
        ("2.9.0", "9.10.2.21", []),
        ("2.9.0", "9.1.0.70", ["env-cudnn-version-mismatch"]),
        ("2.9.0", "9.20.0.48", []),
        ("2.9.0+cu126", "9.1.0.70", []),  # the cuDNN of wheels for another CUDA is not in the table
        ("2.9.0+cpu", "9.1.0.70", []),
    ],
)
def test_pytorch_and_the_cudnn_that_it_had_loaded(torch: str, cudnn: str, rules: list[str]) -> None:
    assert [one.rule for one in judged(torch, cudnn).environment_findings] == rules


def test_a_cudnn_for_another_cuda_was_loaded() -> None:
    (found,) = judged("2.9.0", "9.20.0.48", "nvidia-cudnn-cu13").environment_findings
    assert found.rule == "env-cuda-library-mixed"
    assert "torch 2.9.0 was built with CUDA 12.8, and had loaded a cuDNN for CUDA 13" in found.summary


ABORTED = """
    signal SIGABRT SI_TKILL
    at 0x7f0000001000 nothing
    stack 8MiB used 20KiB whole main
    frame abort @ libc.so.6 takes 32
"""


def aborted(words: str, *modules: str) -> Report:
    return diagnose(crash("\n".join((ABORTED, f"log {words}", *(f"module {one}" for one in modules)))), crash_rules())


def test_a_part_of_cudnn_that_could_not_be_loaded() -> None:
    words = "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open shared object file: No such file or directory"
    torch, cudnn = f"{SITE}/torch/lib/libtorch_cuda.so 2.0.1 of torch", "/usr/local/cuda/lib64/libcudnn.so.8.5.0"
    found = aborted(words, torch, cudnn)
    assert found.verdict is not None
    assert found.verdict.rule == "cuda-library-missing"
    (one,) = found.environment_findings
    assert one.rule == "env-cudnn-incomplete"
    assert one.summary.endswith("is not whole: `libcudnn_cnn_infer.so.8` could not be loaded.")
    assert cudnn in {each.where for each in found.verdict.evidence}


def test_a_part_that_was_found_and_needs_another_library_is_not_missing() -> None:
    words = "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file: No such file"
    found = aborted(words, f"{SITE}/torch/lib/libtorch_cuda.so 2.0.1 of torch", "/usr/local/lib/libcudnn.so.8.5.0")
    assert found.environment_findings == ()


def test_a_library_of_cuda_is_installed_for_the_interpreter_that_died() -> None:
    words = (
        "Could not load library libcublas.so.12. Error: libcublas.so.12: cannot open shared object file: No such file"
    )
    words = words.replace("libcublas.so.12. Error", "libcudnn_ops.so.9. Error")
    found = aborted(words, f"{SITE}/tensorflow/libtensorflow_framework.so.2 2.20.0 of tensorflow")
    assert found.verdict is not None
    (one,) = found.environment_findings
    assert one.rule == "env-cuda-library-missing"
    assert one.fixes[0].command == "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.20.0'"
