"""A kernel on the GPU made an invalid access.

What happened
-------------
Code that ran on the GPU read or wrote outside of its memory, failed an assertion, or was stopped by the driver. The CUDA context is broken
from then on: every later call fails with the same error, so what is reported is rarely where it happened.

How to be sure
--------------
``CUDA_ERROR_ILLEGAL_ADDRESS``, ``CUDA_ERROR_LAUNCH_FAILED``, ``CUDA_ERROR_MISALIGNED_ADDRESS``, ``device-side assert triggered`` or ``an
illegal memory access was encountered`` is the reason of the exception or of the failed CHECK. The first such message counts, the later ones
are echoes.

How to fix it now
-----------------
Run once with ``CUDA_LAUNCH_BLOCKING=1``: then the Python line is the right one. ``compute-sanitizer python ...`` names the kernel and the
access. The usual cause is an index that is out of range: labels and token numbers against the number of classes or the size of the
vocabulary. The same step on the CPU gives a readable error.

How to prevent it
-----------------
Check indices before they go to the GPU.

What it is often mistaken for
-----------------------------
A bug at the line that the traceback names: GPU work is asynchronous. Broken hardware, unless the error is *uncorrectable ECC*. A time limit
of the display driver: ``CUDA_ERROR_LAUNCH_TIMEOUT``.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
- https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html
"""

from __future__ import annotations

from necropsy.model import Crash, Fix, Message
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.told import teller, told_of_the_end
from necropsy.rules.trials import of_gpu

_FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "it used an address that is not its own",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "it used an address that is not aligned",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "it used an address of another kind of memory",
    "CUDA_ERROR_INVALID_PC": "it jumped to where no code is",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "it ran an instruction that does not exist",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "its stack is broken or too small",
    "CUDA_ERROR_ASSERT": "an assertion in it failed",
    "CUDA_ERROR_LAUNCH_FAILED": "it failed, for a reason that CUDA does not tell",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "it ran longer than the display driver allows",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the card's memory is broken",
}


def _match(crash: Crash) -> Finding | None:
    found = [
        one
        for one in messages(crash, "cuda-error", "cuda-fault")
        if one.kind == "cuda-fault" or one.fields["name"] in _FAULTS
    ]
    if not found:
        return None
    grades = [told_of_the_end(crash, message) for message in found]
    grade = next((one for wanted in ("certain", "likely", "possible") for one in grades if one == wanted), None)
    if grade is None:
        return None
    first = found[0]
    return Finding(
        evidence=(
            quote(first, "the first complaint of CUDA; later ones are its echoes"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=f"A kernel on the GPU failed: {_means(first)}; where that was reported need not be where it happened.",
        confidence=grade,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="Run once with the launches in order, so that the right line is named.",
                command="CUDA_LAUNCH_BLOCKING=1 python ...",
            ),
            Fix(text="Let NVIDIA's checker name the kernel and the access.", command="compute-sanitizer python ..."),
        ),
    )


def _means(message: Message) -> str:
    return _FAULTS[message.fields["name"]] if message.kind == "cuda-error" else message.fields["text"]


RULE = Rule(
    name="cuda-kernel-fault",
    subject=Crash,
    title="A kernel on the GPU made an invalid access",
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
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        log 2026-11-20 21:17:51.617250: F tensorflow/core/common_runtime/gpu/gpu_util.cc:293] Check failed: ok CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
        log ValueError: no data
    """,
    references=("https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",),
)
