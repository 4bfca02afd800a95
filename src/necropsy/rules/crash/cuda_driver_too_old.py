"""The NVIDIA driver is older than CUDA needs.

What happened
-------------
The program uses a CUDA version that is newer than the driver of this machine supports, or the driver's kernel part and its library are of
different versions (it was updated without a restart, or a container brought its own).

How to be sure
--------------
CUDA says so: ``CUDA driver version is insufficient for CUDA runtime version`` (error 35), ``the provided PTX was compiled with an
unsupported toolchain`` (222), ``forward compatibility was attempted on non supported HW`` (804), ``kernel version X does not match DSO
version Y``. Error 35 comes as well where there is no driver at all.

How to fix it now
-----------------
``nvidia-smi`` shows the driver's version and the highest CUDA that it supports. Update the driver, restart after an update, or install a
framework that was built for an older CUDA (``torch`` with cu118, an earlier TensorFlow).

How to prevent it
-----------------
Check the driver's version before choosing the CUDA version: CUDA 12 needs 525.60.13 on Linux, CUDA 13 needs 580.

What it is often mistaken for
-----------------------------
A missing CUDA toolkit: the wheels bring it. A machine without a GPU.

Sources
-------
- https://docs.nvidia.com/deploy/cuda-compatibility/
- https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.told import teller, told_of_the_end
from necropsy.rules.trials import of_gpu


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "cuda-driver-old", "cuda-driver-mixed")
    if not found:
        return None
    message = found[-1]
    confidence = told_of_the_end(crash, message)
    if confidence is None:
        return None
    mixed = message.kind == "cuda-driver-mixed"
    if mixed and "kernel" in message.fields:
        summary = f"The NVIDIA driver is in two versions: the kernel has {message.fields['kernel']}, the library is {message.fields['library']}."
    elif mixed:
        summary = "The NVIDIA driver is in two versions: its library does not fit to what the kernel has loaded."
    else:
        version = f" (it supports CUDA {_cuda(message.fields['found'])})" if "found" in message.fields else ""
        summary = f"The NVIDIA driver of this machine is older than the CUDA of this program needs{version}, or there is none."
    return Finding(
        evidence=(quote(message, "CUDA's own words"), *died_by(crash, "SIGABRT", "SIGSEGV"), *exit_evidence(crash)),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(text="Restart the machine: a driver was updated while the old one is loaded.", command="sudo reboot")
            if mixed
            else Fix(text="Look at the driver's version, and update it.", command="nvidia-smi"),
            Fix(text="Or install a build of the framework for an older CUDA."),
        ),
    )


def _cuda(number: str) -> str:
    """``11040`` -> ``11.4``."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


RULE = Rule(
    name="cuda-driver-too-old",
    subject=Crash,
    title="The NVIDIA driver is older than CUDA needs",
    match=_match,
    page=__doc__ or "",
    needs=("messages",),
    beats=(
        "python-exception",
        "exit-status-only",
        "abort",
        "check-failed",
        "uncaught-cpp-exception",
        "killed-by-signal",
    ),
    experiments=of_gpu,
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log RuntimeError: The NVIDIA driver on your system is too old (found version 11040).
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log RuntimeError: No CUDA GPUs are available
    """,
    references=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
)
