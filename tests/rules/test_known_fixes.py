"""Crashes that were reported and fixed: what fits, what does not, and the version that the report says to install."""

from __future__ import annotations

import re

import msgspec
import pytest

import sketch
from necropsy.data import table
from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis, Environment, Operation
from necropsy.reports import html, markdown, text
from necropsy.rules import crash_rules, known_fixes

QUANTIZED_MUL = """\
signal SIGSEGV SEGV_MAPERR 0x0 read
at 0x7f0000001000 movss xmm0, dword ptr [rax]
operand read [rax] = 0x0 size 4 rax=0x0
thread 4711 python crashed
stack 8MiB used 20KiB whole
frame tensorflow::QuantizedMulOp<Eigen::QUInt8, Eigen::QInt32>::Compute(tensorflow::OpKernelContext*) @ {module}
{op}
library tensorflow {version}
"""
KERNEL = "kernel tensorflow::QuantizedMulOp<Eigen::QUInt8, Eigen::QInt32>"
IN_COMPILER = """\
signal SIGSEGV SEGV_MAPERR 0x7f3038fdd138 read
at 0x7f31cdea4021 mov rdx, qword ptr [rbp + rax*8]
operand read [rbp + rax*8] = 0x7f3038fdd138 size 8 rbp=0x7f31cd86d840 rax=0xffffffffcd6edf1f
thread 4711 python crashed
stack 8MiB used 8KiB whole
frame pop_except_block @ libpython3.12.so.1.0 in Python/flowgraph.c:655
frame _PyEval_EvalFrameDefault @ libpython3.12.so.1.0
"""


def judged(crash: Crash) -> Diagnosis:
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None
    return verdict


def quantized(
    version: str, op: str = f"op QuantizedMul {KERNEL}", module: str = "_pywrap_tensorflow_internal.so"
) -> Diagnosis:
    return judged(sketch.crash(QUANTIZED_MUL.format(version=version, op=op, module=module)))


def fitting(verdict: Diagnosis) -> list[str]:
    told = [one.seen for one in verdict.evidence if one.claim == "reported and fixed elsewhere"]
    assert len(told) <= 1
    return re.findall(r"TFSA-[\d-]+|#\d+|gh-\d+|ARROW-\d+", told[0]) if told else []


def test_an_op_a_kind_and_an_older_version_fit() -> None:
    verdict = quantized("2.3.0")
    told = verdict.evidence[-1]
    assert told.seen == (
        "this fits TFSA-2021-023 (CVE-2021-29535), fixed in TensorFlow 2.1.4, 2.2.3, 2.3.3, 2.4.2 and 2.5.0; "
        "installed: 2.3.0"
    )
    fix = verdict.fixes[0]
    assert (
        fix.text
        == "Install TensorFlow 2.3.3 or a later 2.3.x, or 2.5.0 or later: it has the fix of TFSA-2021-023, which this crash fits."
    )
    assert fix.command == "pip install 'tensorflow~=2.3.3'"
    assert verdict.references[-1].endswith("/tensorflow/security/advisory/tfsa-2021-023.md")


@pytest.mark.parametrize(
    ("installed", "condition"),
    [
        ("2.4.1", "~=2.4.2"),
        ("2.2.0", "~=2.2.3"),
        ("2.0.4", "~=2.1.4"),  # a branch that never got the fix
        ("2.4.0", "~=2.4.2"),
        ("2.3.3", None),
        ("2.4.4", None),
        ("2.5.0", None),
        ("2.20.0", None),
        ("2.5.0rc1", None),  # it may have the fix or not
        ("2.4", None),
        ("", None),
    ],
)
def test_the_installed_version_decides(installed: str, condition: str | None) -> None:
    commands = [fix.command for fix in quantized(installed or "?").fixes if fix.command and "tensorflow" in fix.command]
    assert commands == ([f"pip install 'tensorflow{condition}'"] if condition else [])


SEEN = [
    ("SIGSEGV", "Requantize", "tensorflow::RequantizeOp<Eigen::QInt32, Eigen::QUInt8>", "TFSA-2022-104"),
    ("SIGSEGV", "SparseBincount", "tensorflow::SparseBincountOp<Eigen::ThreadPoolDevice, int, float>", "TFSA-2022-113"),
    ("SIGABRT", "AudioSummaryV2", "tensorflow::SummaryAudioOp", "TFSA-2022-125"),
    ("SIGABRT", "SparseCrossV2", "tensorflow::SparseCrossV2Op", "TFSA-2022-123"),
    ("SIGABRT", "Reshape", "tensorflow::ReshapeOp", "TFSA-2022-085"),
    ("SIGABRT", "FusedResizeAndPadConv2D", "tensorflow::FusedResizeConv2DUsingGemmOp<float>", "TFSA-2022-147"),
    ("SIGFPE", "Conv2D", "tensorflow::Conv2DOp<Eigen::ThreadPoolDevice, float>", "TFSA-2022-124"),
]
"""Ops as they were read when the advisories' own programs died under TensorFlow 2.8.0."""
HOW = {
    "SIGSEGV": QUANTIZED_MUL.splitlines()[:3],
    "SIGABRT": ["signal SIGABRT", "log F tensorflow/core/framework/x.cc:45] Check failed: NDIMS == dims() (2 vs. 0)"],
    "SIGFPE": ["signal SIGFPE FPE_INTDIV", "at 0x7f0000001000 idiv ecx"],
}


@pytest.mark.parametrize(("signal", "op", "kernel", "advisory"), SEEN)
def test_ops_that_died_under_an_older_tensorflow(signal: str, op: str, kernel: str, advisory: str) -> None:
    lines = [
        *HOW[signal],
        f"frame {kernel}::Compute(tensorflow::OpKernelContext*) @ _pywrap_tensorflow_internal.so",
        f"op {op} kernel {kernel}",
        "library tensorflow-cpu",
    ]
    verdict = judged(sketch.crash("\n".join([*lines[:-1], f"{lines[-1]} 2.8.0"])))
    assert fitting(verdict) == [advisory]
    assert verdict.fixes[0].command is not None
    assert verdict.fixes[0].command.startswith("pip install 'tensorflow-cpu~=2.8.")
    assert fitting(judged(sketch.crash("\n".join([*lines[:-1], f"{lines[-1]} 2.20.0"])))) == []


def test_several_that_fit_get_a_version_with_every_fix() -> None:
    op = "op FractionalAvgPoolGrad kernel tensorflow::FractionalAvgPoolGradOp<float>"
    verdict = quantized("2.4.1", op=op)
    assert fitting(verdict) == ["TFSA-2022-005", "TFSA-2021-125", "TFSA-2021-067"]
    # The first is fixed from 2.5.3, 2.6.3, 2.7.1 and 2.8.0 on, and 2.4 never got that fix; the others got theirs earlier.
    assert verdict.fixes[0].command == "pip install 'tensorflow~=2.5.3'"


def test_a_kernel_class_is_enough_where_the_op_was_not_read() -> None:
    crash = sketch.crash(QUANTIZED_MUL.format(version="2.3.0", op="", module="libtensorflow_cc.so.2"))
    operation = Operation(kernel="tensorflow::QuantizedMulOp<Eigen::QUInt8, Eigen::QInt32>", framework="tensorflow")
    assert fitting(judged(msgspec.structs.replace(crash, operation=operation))) == ["TFSA-2021-023"]


def test_the_library_has_to_be_the_packages() -> None:
    # What Python code in tf.py_function called died, while an op of TensorFlow's ran.
    assert fitting(quantized("2.3.0", module="libmine.so")) == []


def test_another_kind_or_another_op_does_not_fit() -> None:
    divided = QUANTIZED_MUL.format(version="2.3.0", op=f"op QuantizedMul {KERNEL}", module="libtensorflow_cc.so.2")
    lines = ["signal SIGFPE FPE_INTDIV", "at 0x7f0000001000 idiv ecx", *divided.splitlines()[3:]]
    assert fitting(judged(sketch.crash("\n".join(lines)))) == ["TFSA-2021-017"]
    checked = "\n".join(
        ["signal SIGABRT", "log F tensorflow/core/x.cc:7] Check failed: 1 == 2", *divided.splitlines()[3:]]
    )
    assert fitting(judged(sketch.crash(checked))) == []
    assert fitting(quantized("2.3.0", op="op AddV2 kernel tensorflow::BinaryOp<int>")) == []
    # An op of the same name in TensorFlow Lite is another one.
    crash = sketch.crash(divided)
    lite = Operation(op="quantized_mul", framework="tflite")
    assert fitting(judged(msgspec.structs.replace(crash, operation=lite))) == []


def test_a_crash_of_cpython_fits_by_its_function() -> None:
    crash = sketch.crash(IN_COMPILER)
    environment = msgspec.structs.replace(crash.environment or Environment(), python="3.12.1")
    verdict = judged(msgspec.structs.replace(crash, environment=environment))
    assert fitting(verdict) == ["gh-113297"]
    assert verdict.fixes[0].text.startswith("Install CPython 3.12.2")
    for python in ("3.12.2", "3.13.0", "3.11.1", "3.12", None):
        other = msgspec.structs.replace(environment, python=python)
        assert fitting(judged(msgspec.structs.replace(crash, environment=other))) == [], python


@pytest.mark.parametrize(
    ("lines", "fits"),
    [
        (["frame array_scalar @ _multiarray_umath.cpython-312-x86_64-linux-gnu.so", "library numpy 2.2.6"], ["#28332"]),
        (["frame array_scalar @ _multiarray_umath.cpython-312-x86_64-linux-gnu.so", "library numpy 2.3.0"], []),
        (["frame array_scalar @ libmine.so", "library numpy 2.2.6"], []),
        (
            ["frame arrow::ChunkedArray::Slice(long, long) const @ libarrow.so.17", "library pyarrow 0.17.1"],
            ["ARROW-8911"],
        ),
        (["frame arrow::ChunkedArray::Slice(long, long) const @ libarrow.so.17"], []),
    ],
)
def test_functions_of_other_packages(lines: list[str], fits: list[str]) -> None:
    start = [line for line in QUANTIZED_MUL.splitlines() if line.split()[0] not in {"frame", "{op}", "library"}]
    assert fitting(judged(sketch.crash("\n".join([*start, *lines])))) == fits


def test_of_libraries_with_one_name_the_folder_decides() -> None:
    start = [line for line in QUANTIZED_MUL.splitlines() if line.split()[0] not in {"frame", "{op}", "library"}]
    name = "lib.cpython-312-x86_64-linux-gnu.so"
    lines = [
        f"frame __pyx_pw_7pyarrow_3lib_11concat_tables @ {name}",
        "library pyarrow 3.0.0",
        "library pandas 1.2.0",
    ]
    module = "module /usr/lib/python3/site-packages/{}/" + name + " 3.0.0"
    assert fitting(judged(sketch.crash("\n".join([*start, *lines])))) == []
    assert fitting(judged(sketch.crash("\n".join([*start, *lines, module.format("pyarrow")])))) == ["ARROW-11997"]
    assert fitting(judged(sketch.crash("\n".join([*start, *lines, module.format("pandas/_libs")])))) == []


def test_every_format_says_it() -> None:
    report = diagnose(
        sketch.crash(
            QUANTIZED_MUL.format(version="2.3.0", op=f"op QuantizedMul {KERNEL}", module="libtensorflow_cc.so.2")
        ),
        crash_rules(),
    )
    for render in (text.render, markdown.render, html.render):
        said = re.sub(r"\s+", " ", render(report))
        assert "TFSA-2021-023" in said
        assert "2.3.3" in said


def test_the_advisories_are_whole() -> None:
    advisories = table("tensorflow_advisories.json")["advisories"]
    assert len(advisories) >= 400
    assert len({row["id"] for row in advisories}) == len(advisories)
    for row in advisories:
        assert re.fullmatch(r"TFSA-20\d\d-\d{3}", row["id"])
        assert re.fullmatch(r"CVE-\d{4}-\d+", row["cve"])
        assert row["fixed"], row
        assert all(known_fixes.released(one) for one in row["fixed"])
    # Those that can be matched: an op or a function, and a kind.
    usable = [
        row for row in advisories if row.get("kinds") and (row.get("ops") or row.get("functions") or row.get("apis"))
    ]
    assert len(usable) >= 270


def test_the_fixed_crashes_are_whole() -> None:
    rows = table("fixed_crashes.toml")["row"]
    assert len(rows) >= 50
    known = {kind for kinds in known_fixes.KINDS.values() for kind in kinds}
    for row in rows:
        assert row["url"].startswith("https://"), row
        assert set(row["kinds"]) <= known, row
        assert row.get("functions") or row.get("ops"), row
        assert row["fixed"], row
        assert all(known_fixes.released(one) for one in row["fixed"]), row
    assert len({(row["package"], row["id"]) for row in rows}) == len(rows)
    assert {row["package"] for row in rows} == {"numpy", "torch", "pyarrow", "pandas", "python"}


def test_rules_that_fit_exist() -> None:
    assert set(known_fixes.KINDS) <= {rule.name for rule in crash_rules()}
