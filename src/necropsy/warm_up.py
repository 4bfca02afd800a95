"""Diagnoses a made-up death, so that what is compiled or read at its first use is there when a report needs it.

Regular expressions and tables are most of what the first report in a process takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from necropsy import redact
from necropsy.diagnose import diagnose, judge, why_missing_in_crash
from necropsy.document import of_run
from necropsy.model import Address, Crash, Exit, Fault, Frame, Instruction, Module, Process, RunRecord, Thread
from necropsy.reports import brief, text
from necropsy.rule import Rule

_FOLDER = "/usr/lib/python3/site-packages"
_NATIVE = (
    ("copy_rows(float const*, int)", f"{_FOLDER}/rows/_rows.so"),
    ("tensorflow::CopyRowsOp::Compute(tensorflow::OpKernelContext*)", f"{_FOLDER}/tensorflow/libtensorflow_cc.so.2"),
    ("ffi_call", f"{_FOLDER}/_ctypes.so"),
    ("_PyEval_EvalFrameDefault", "/usr/bin/python3"),
    ("__libc_start_main", "/lib/x86_64-linux-gnu/libc.so.6"),
)
_PYTHON = (("copied", f"{_FOLDER}/rows/__init__.py"), ("<module>", "train.py"))


def steps(rules: Sequence[Rule[Crash]]) -> Iterator[None]:
    """Each takes some milliseconds, 20 at most. Raises what a rule or a report raises: that is a defect of it."""
    crash = redact.crash(_crash())
    yield
    fitting = []
    for rule in rules:
        if judge(crash, (rule,), why_missing_in_crash).diagnoses:
            fitting.append(rule)
        yield
    diagnose(crash, fitting)
    yield
    process = Process(pid=1, role="command", command=("python", "train.py"), exit=crash.exit)
    document = of_run(RunRecord(processes=(process,), crashes=(crash,)), ("python", "train.py"), fitting)
    yield
    brief.render(document)
    yield
    text.render(document)
    yield


def _crash() -> Crash:
    """A read through a null pointer in a module that Python has called."""
    native = (
        Frame(index=index, kind="native", function=function, module=path, address=Address(0x7F0000000000 + index))
        for index, (function, path) in enumerate(_NATIVE)
    )
    python = (
        Frame(index=index, kind="python", function=function, source=path, line=1, code="rows.copied(x)")
        for index, (function, path) in enumerate(_PYTHON)
    )
    text_of = "mov eax, dword ptr [rax]"
    paths = sorted({path for _, path in _NATIVE})
    return Crash(
        pid=1,
        exit=Exit(kind="signaled", signal="SIGSEGV"),
        fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0), access="read"),
        threads=(Thread(tid=1, crashed=True, frames=tuple(native), python=tuple(python), complete=True),),
        registers={"rax": Address(0), "rip": Address(0x7F0000000000)},
        instruction=Instruction(
            address=Address(0x7F0000000000), text=text_of, mnemonic="mov", registers={"rax": Address(0)}
        ),
        modules=tuple(
            Module(path=path, low=Address(1 << 40), high=Address((1 << 40) + 4096), build_id="00", version="1.0")
            for path in paths
        ),
        libraries={"tensorflow": "2.20.0", "numpy": "2.0.0"},
        log_tail="Segmentation fault\n",
        messages=(),
    )
