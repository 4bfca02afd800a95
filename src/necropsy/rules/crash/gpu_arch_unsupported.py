"""The framework has no code for this GPU.

What happened
-------------
A build of TensorFlow, PyTorch or an op contains code for a list of GPU generations (sm_80, sm_90, ...). This card's
is not in it: the card is newer than the build, or so old that support was dropped.

How to be sure
--------------
``no kernel image is available for execution on the device`` (CUDA error 209), ``Value 'sm_120' is not defined for
option 'gpu-name'`` from ptxas, ``Unsupported gpu architecture 'compute_86'`` from nvcc, or the framework's own
warning that names the card. A warning alone is not a cause: TensorFlow can compile from its PTX at the first run,
which takes minutes.

How to fix it now
-----------------
For a new card: a framework that was built for a newer CUDA. Cards of capability 12.0 (RTX 50) are known from CUDA 12.8 on: ``pip install torch
--index-url https://download.pytorch.org/whl/cu128``. CUDA 13 dropped all below 7.5 (GTX 10, V100): ``.../whl/cu126``; CUDA 12 dropped Kepler.
``nvidia-smi --query-gpu=name,compute_cap --format=csv`` shows the card's number. For your own ops, add ``-gencode arch=compute_XX,code=sm_XX``.

How to prevent it
-----------------
Build with PTX for the newest architecture (``code=compute_XX``): it is compiled for later cards at run time.

What it is often mistaken for
-----------------------------
A driver that is too old. A kernel that is broken. A CUDA toolkit that is too old only matters where something is
compiled: the first ``ptxas`` on PATH counts.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation
- https://developer.nvidia.com/cuda-gpus
"""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, X86_64, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import compatibility, gpu
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence

_OWN = "gpu-arch-unsupported"
_KINDS = ("gpu-arch", "ptx-too-new", "cuda-error", "cublas-status", "cufft-status", "cudnn-status", "cusolver-status")
_COMPILER = ("nvcc", "ptxas", "gpu-name")


def _match(crash: Crash) -> Finding | None:
    found = [
        one for one in messages(crash, *_KINDS) if one.kind in {"gpu-arch", "ptx-too-new"} or gpu.rule_of(one) == _OWN
    ]
    # Frameworks warn first and name the card's architecture; the exception only says that there is no code.
    graded = [(one, _grade(crash, one)) for one in found]
    sure = [(message, grade) for message, grade in graded if grade is not None and not gpu.is_echo(crash, message)]
    if not sure:
        return None
    message, confidence = sure[-1]
    arch = next((one.fields["arch"] for one in found if "arch" in one.fields), None)
    card = compatibility.capability(arch) if arch else None
    name = f" ({arch})" if arch else ""
    if message.kind == "ptx-too-new":
        summary = f"The CUDA compiler that was found is older than its input: PTX {message.fields['built']}, and it knows {message.fields['loaded']}."
    elif any(word in message.text for word in _COMPILER):
        summary = f"The CUDA compiler that was found does not know the GPU{name} of this machine."
    else:
        summary = f"This build has no code for the GPU{name} of this machine."
    return Finding(
        evidence=(
            quote(message, "CUDA's own message"),
            *(quote(one, "the card was named before") for one in found[:1] if one is not message),
            *_known_by(card),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash, message, card),
    )


def _grade(crash: Crash, message: Message) -> Confidence | None:
    grade = told_of_the_end(crash, message, decisive=not _is_warning(message))
    # A warning that nothing quotes is believed only where nobody knows how it ended.
    return None if _is_warning(message) and grade == "possible" and crash.exit is not None else grade


def _is_warning(message: Message) -> bool:
    return "arch" in message.fields and not any(word in message.text for word in _COMPILER)


def _known_by(card: compatibility.Version | None) -> Found:
    known = compatibility.cuda_for_card(card) if card else None
    if card is None or known is None:
        return ()
    first, dropped = known
    until = f", and CUDA {dropped} has dropped it" if dropped else ""
    return (
        Evidence(
            claim="which CUDA has code for this card",
            seen=f"compute capability {compatibility.spelled(card)} is known from CUDA {first} on{until}",
            where="the table of builds",
        ),
    )


def _fixes(crash: Crash, message: Message, card: compatibility.Version | None) -> tuple[Fix, ...]:
    known = compatibility.cuda_for_card(card) if card else None
    look = Fix(
        text="Install a build that supports this card's generation: look up its number first.",
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
    )
    if any(word in message.text for word in _COMPILER):
        least = f" ({known[0]} or later)" if known else ""
        return (
            Fix(
                text=f"Use a newer CUDA toolkit{least}: the first ptxas and nvcc on PATH count.",
                command="which nvcc ptxas; nvcc --version",
            ),
            look,
        )
    if known is None or card is None:
        return (look,)
    first, dropped = known
    if gpu.framework(crash) == "tensorflow":
        newer = Fix(
            text=f"Install a TensorFlow that was built with CUDA {first} or later.",
            command="pip install -U 'tensorflow[and-cuda]'",
        )
    else:
        tag = "cu126" if dropped == "13.0" else "cu118" if dropped == "12.0" else "cu128"
        newer = Fix(
            text="Install the PyTorch that has code for this card.",
            command=f"pip install torch --index-url {compatibility.INDEX}/{tag}",
        )
    return (newer, look)


RULE = Rule(
    _match,
    needs=("messages",),
    beats=GIVEN_UP,
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Install a build that supports this card's generation.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
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
)
