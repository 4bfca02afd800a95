"""The NVIDIA driver is older than CUDA needs.

What happened
-------------
The program uses a CUDA version that is newer than this machine's driver supports. Or the driver's kernel module and
its library have different versions: it was updated without a restart, or a container brought its own. Or there is no
driver at all.

How to be sure
--------------
CUDA reports it: ``CUDA driver version is insufficient for CUDA runtime version`` (error 35), ``API call is not
supported in the installed CUDA driver`` (36), or ``the provided PTX was compiled with an unsupported toolchain``
(222). Other messages are ``system has unsupported display driver / cuda driver combination`` (803), ``forward
compatibility was attempted on non supported HW`` (804) and ``kernel version X does not match DSO version Y``. Error
35 also comes without a driver. ``nvidia-smi`` shows the driver and the highest CUDA that it supports, not an
installed one.

How to fix it now
-----------------
Update the driver (any newer one runs older programs too), and restart after an update. CUDA 11 needs 450.80.02, CUDA
12 525.60.13, CUDA 13 580.65.06 on Linux; 452.39, 527.41 and 580 on Windows. Or install a framework for the driver
that is there: ``pip install torch --index-url https://download.pytorch.org/whl/cu118``, ``pip install
'tensorflow[and-cuda]==2.14.*'`` for CUDA 11.

How to prevent it
-----------------
Check the driver's version before choosing the CUDA version. PyTorch's usual wheel is for CUDA 13 since 2.11. On a
cluster, look at the oldest node.

What it is often mistaken for
-----------------------------
A missing CUDA toolkit: the wheels bring it. A machine without a GPU. A driver that is too *new*: there is no such
thing.

Sources
-------
- https://docs.nvidia.com/deploy/cuda-compatibility/
- https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, X86_64, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import compatibility, gpu
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence

_OWN = "cuda-driver-too-old"
_MIXED = {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "cudaErrorSystemDriverMismatch"}
_PTX = 222


def _match(crash: Crash) -> Finding | None:
    found = [
        one
        for one in messages(
            crash, "cuda-driver-old", "cuda-driver-mixed", "cuda-driver-none", "cuda-version", "cuda-error"
        )
        if one.kind != "cuda-error" or gpu.rule_of(one) == _OWN
    ]
    graded = [(one, grade) for one in found if (grade := told_of_the_end(crash, one)) is not None]
    if not graded:
        return None
    # The first complaint counts; one with version numbers says more.
    message, confidence = next(
        (one for one in graded if "found" in one[0].fields or "kernel" in one[0].fields), graded[0]
    )
    return Finding(
        evidence=(
            quote(message, "CUDA's own message"),
            *_needs(message),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=_summary(message),
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash, message),
    )


def _is_mixed(message: Message) -> bool:
    return message.kind == "cuda-driver-mixed" or gpu.name_of(message) in _MIXED


def _summary(message: Message) -> str:
    if _is_mixed(message) and "kernel" in message.fields:
        return f"The NVIDIA driver has two versions: the kernel has {message.fields['kernel']}, the library is {message.fields['library']}."
    if _is_mixed(message):
        return "The NVIDIA driver has two versions: its library does not fit the module that the kernel has loaded."
    if message.kind == "cuda-driver-none":
        return "This machine has no NVIDIA driver, or the driver is not loaded."
    if message.kind == "cuda-version":
        return f"CUDA {_cuda(message.fields['loaded'])} is installed, but the program was built for {_cuda(message.fields.get('built', 'another one'))}."
    if "PTX" in message.text or gpu.number_of(message) == _PTX:
        return "The code for the GPU was made by a CUDA that is newer than the NVIDIA driver of this machine, which cannot compile it."
    version = f" (it supports CUDA {_cuda(message.fields['found'])})" if "found" in message.fields else ""
    return f"The NVIDIA driver of this machine is older than the CUDA of this program needs{version}, or there is none."


def _cuda(number: str) -> str:
    """``11040`` -> ``11.4``."""
    version = compatibility.version(number)
    return compatibility.spelled(version) if version else number


def _needs(message: Message) -> Found:
    """What CUDA 12 and 13 ask of a driver, where one of an older CUDA was found."""
    found = compatibility.version(message.fields.get("found", ""))
    if found is None or message.kind != "cuda-driver-old":
        return ()
    wanted = str(found[0] + 1)
    drivers = compatibility.driver_for(wanted)
    if drivers is None:
        return ()
    return (
        Evidence(
            claim=f"CUDA {wanted} needs a driver from {drivers[0]} on (Linux), {drivers[1]} (Windows)",
            seen=f"this driver supports CUDA up to {compatibility.spelled(found)}",
            where="the table of builds",
        ),
    )


def _fixes(crash: Crash, message: Message) -> tuple[Fix, ...]:
    if _is_mixed(message):
        return (
            Fix(text="Restart the machine: a driver was updated while the old one is loaded.", command="sudo reboot"),
            Fix(
                text="Restart a container, so that it gets its host's driver library.",
                command="docker run --gpus all ...",
            ),
        )
    look = Fix(
        text="Check the driver's version, and update it: any newer one runs older CUDA programs too.",
        command="nvidia-smi --query-gpu=driver_version --format=csv",
    )
    if message.kind == "cuda-driver-none":
        look = Fix(
            text="Install NVIDIA's driver and restart; in a container the host's driver is used.",
            command="nvidia-smi; docker run --gpus all ...",
        )
    if message.kind == "cuda-version":
        return (
            Fix(
                text="Install the CUDA that the program was built for, with it.", command="pip install -U 'jax[cuda12]'"
            ),
            look,
        )
    found = compatibility.version(message.fields.get("found", ""))
    older: tuple[Fix | None, ...] = ()
    if found is not None and gpu.framework(crash) != "tensorflow":
        older = (compatibility.torch_for_cuda(found),)
    elif found is not None:
        older = (compatibility.tensorflow_for_cuda(found),)
    elif message.kind != "cuda-driver-none":
        older = (
            Fix(
                text="Or install a build of the framework for an older CUDA.",
                command=f"pip install torch --index-url {compatibility.INDEX}/cu118",
            ),
        )
    return (look, *(one for one in older if one is not None))


RULE = Rule(
    _match,
    needs=("messages",),
    beats=GIVEN_UP,
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Check the driver's version, and update it.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
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
)
