"""The framework has no code for this GPU.

What happened
-------------
A build of TensorFlow, PyTorch or an op contains code for a list of GPU generations (sm_80, sm_90, ...). This card's is not in it: the card
is newer than the build, or so old that support was dropped.

How to be sure
--------------
``no kernel image is available for execution on the device`` (CUDA error 209), ``Value 'sm_120' is not defined for option 'gpu-name'`` from
ptxas, or PyTorch's own warning that names both.

How to fix it now
-----------------
For a new card: a newer framework, or one built for a newer CUDA (``nvidia-smi --query-gpu=compute_cap --format=csv`` shows the card's
number). For an old card: the last version that supported it. Ops of your own: add ``-gencode arch=compute_XX,code=sm_XX``.

How to prevent it
-----------------
Build with PTX for the newest architecture (``code=compute_XX``): it is compiled for later cards at run time.

What it is often mistaken for
-----------------------------
A driver that is too old. A kernel that is broken.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation
- https://developer.nvidia.com/cuda-gpus
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.told import teller, told_of_the_end
from necropsy.rules.trials import of_gpu


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "gpu-arch")
    if not found:
        return None
    # PyTorch warns first and names the card's architecture; the exception only says that there is no code.
    graded = [(message, told_of_the_end(crash, message, decisive="arch" not in message.fields)) for message in found]
    sure = [(message, grade) for message, grade in graded if grade is not None]
    if not sure:
        return None
    message, confidence = sure[-1]
    arch = next((one.fields["arch"] for one in found if "arch" in one.fields), None)
    return Finding(
        evidence=(
            quote(message, "CUDA's own words"),
            *(quote(one, "the card was named before") for one in found[:1] if one is not message),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=f"This build has no code for the GPU{f' ({arch})' if arch else ''} of this machine.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="Install a build that supports this card's generation.",
                command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
            ),
        ),
    )


RULE = Rule(
    name="gpu-arch-unsupported",
    subject=Crash,
    title="The framework has no code for this GPU",
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
        log RuntimeError: CUDA error: no kernel image is available for execution on the device
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log RuntimeError: CUDA error: initialization error
    """,
    references=("https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation",),
)
