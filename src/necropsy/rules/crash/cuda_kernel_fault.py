"""A kernel on the GPU made an invalid access.

What happened
-------------
Code that ran on the GPU read or wrote outside its memory, failed an assertion, or was stopped by the driver. The CUDA
context is broken from then on: every later call fails with the same error, so what is reported is rarely where it
happened.

How to be sure
--------------
``CUDA_ERROR_ILLEGAL_ADDRESS``, ``CUDA_ERROR_LAUNCH_FAILED``, ``CUDA_ERROR_MISALIGNED_ADDRESS``, ``device-side assert
triggered`` or ``an illegal memory access was encountered`` is the reason of the exception or of the failed CHECK. The
first such message counts; what comes after it, an *out of memory* or a CUDNN_STATUS too, is its echo.
``Indexing.cu:1290: ... Assertion `srcIndex < srcSelectDimSize` failed`` names the check itself. The kernel's log has
``NVRM: Xid``: 13 and 31 are the program's fault, 48, 63, 74, 79, 94 and 95 the hardware's.

How to fix it now
-----------------
Run once with ``CUDA_LAUNCH_BLOCKING=1``: then the Python line is the right one. ``compute-sanitizer python ...``
names the kernel and the access. The usual cause is an index that is out of range: labels and token numbers against
the number of classes or the size of the vocabulary. The same step on the CPU (``CUDA_VISIBLE_DEVICES=-1``) gives a
readable error. The context is broken until the process ends: a notebook's kernel must be restarted.

How to prevent it
-----------------
Check indices before they go to the GPU: ``assert 0 <= labels.min() and labels.max() < classes``.

What it is often mistaken for
-----------------------------
A bug at the line that the traceback names: GPU work is asynchronous. Broken hardware, unless the error is
*uncorrectable ECC*. A time limit of the display driver: ``CUDA_ERROR_LAUNCH_TIMEOUT``.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
- https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, Tried
from necropsy.rules import gpu
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence, python_culprit
from necropsy.rules.wording import sentence

_WORDS = {
    "an illegal memory access was encountered": "it used an address that is not its own",
    "misaligned address": "it used an address that is not aligned",
    "invalid program counter": "it jumped to an address without code",
    "an illegal instruction was encountered": "it ran an instruction that does not exist",
    "device-side assert triggered": "an assertion in it failed",
    "unspecified launch failure": "it failed, for a reason that CUDA does not report",
    "the launch timed out and was terminated": "it ran longer than the display driver allows",
    "uncorrectable ECC error encountered": "the card's memory is broken",
}
_BY_NUMBER = {
    700: "it used an address that is not its own",
    716: "it used an address that is not aligned",
    717: "it used an address of another kind of memory",
    718: "it jumped to an address without code",
    715: "it ran an instruction that does not exist",
    714: "its stack is broken or too small",
    710: "an assertion in it failed",
    719: "it failed, for a reason that CUDA does not report",
    702: "it ran longer than the display driver allows",
    214: "the card's memory is broken",
    220: "the link between two GPUs failed",
    226: "it used another GPU's memory in a wrong way, or the hardware failed",
    721: "it did not give back all of its tensor memory",
    53: "an earlier one had failed",
}
_HARDWARE = {214, 220}
_TIMEOUT = 702
_XID_HARDWARE = frozenset({"48", "63", "64", "74", "79", "92", "94", "95", "119", "120"})
"""Xid errors that NVIDIA's list blames on memory, links, or a card that is lost (docs.nvidia.com/deploy/xid-errors)."""


def _match(crash: Crash) -> Finding | None:
    return _by_checker(crash) or _by_echo(crash)


def _by_checker(crash: Crash) -> Finding | None:
    """NVIDIA's checker saw the access itself, and names the kernel: the first one counts."""
    found = [one for one in messages(crash, "compute-sanitizer") if one.fields["kind"].startswith(_BAD)]
    if not found:
        return None
    first, fields = found[0], found[0].fields
    kernel = fields.get("function")
    line = fields.get("source_line")
    where = f" at {fields['file'].rsplit('/', 1)[-1]}:{line}" if "file" in fields else ""
    details = tuple(
        Evidence(claim=claim, seen=fields[name], where=first.where)
        for name, claim in (
            ("problem", "what is wrong with the address"),
            ("thread", "the thread of the GPU"),
            ("host", "who launched the kernel"),
        )
        if name in fields
    )
    return Finding(
        evidence=(quote(first, "the checker's report"), *details, *exit_evidence(crash)),
        summary=f"{sentence(_named(kernel))} on the GPU made an {fields['kind'][0].lower()}{fields['kind'][1:]}{where}.",
        confidence="certain",
        culprit=Culprit(function=kernel, source=fields.get("file"), line=int(line) if line else None),
        fixes=(
            Fix(
                text=f"Check every index that {_named(kernel)} uses against the size of what it reads or writes{where}."
            ),
            Fix(text="Without a line: compile the kernel with -lineinfo.", command="nvcc -lineinfo ..."),
        ),
    )


_BAD = ("Invalid", "Misaligned", "Out-of-range", "Stack overflow", "Illegal instruction", "Hardware exception")


def _named(kernel: str | None) -> str:
    return f"`{kernel.split('(')[0]}`" if kernel else "a kernel"


def _by_echo(crash: Crash) -> Finding | None:
    found = gpu.faults(crash)
    grades = [told_of_the_end(crash, message) for message in found]
    grade = next((one for wanted in ("certain", "likely", "possible") for one in grades if one == wanted), None)
    if grade is None or _is_late(crash, found[0]):
        return None
    first = next((one for one in found if one.kind != "gpu-assertion"), found[0])
    asserted = next((one for one in found if one.kind == "gpu-assertion"), None)
    kernel = messages(crash, "nvidia-xid")
    return Finding(
        evidence=(
            *((quote(asserted, "the assertion of the kernel that failed"),) if asserted else ()),
            quote(first, "the first error of CUDA; later ones follow from it"),
            *(quote(one, "what the kernel's driver saw") for one in kernel[:1]),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=_summary(first, asserted, kernel),
        confidence=grade,
        culprit=_culprit(crash, asserted),
        fixes=_fixes(first, asserted, kernel),
    )


def _is_late(crash: Crash, first: Message) -> bool:
    """Memory ran out before the first fault and is named at the end: rarely, clean-up then fails too."""
    empty = [one for one in messages(crash, "gpu-oom") if gpu.place(crash, one) < gpu.place(crash, first)]
    return any(told_of_the_end(crash, one) == "certain" for one in empty)


def _culprit(crash: Crash, asserted: Message | None) -> Culprit | None:
    """The kernel whose assertion failed is named; of other faults CUDA does not say which it was."""
    if asserted is None:
        return teller(crash)
    told = python_culprit(crash)
    fields = asserted.fields
    return Culprit(
        function=fields["function"],
        source=fields["file"],
        line=int(fields["source_line"]),
        python=told.python if told else None,
    )


def _summary(first: Message, asserted: Message | None, kernel: tuple[Message, ...]) -> str:
    if asserted is not None:
        return f"An assertion in a kernel on the GPU failed, `{asserted.fields['expression'][:120]}` in {asserted.fields['function'].split('(')[0][:80]}: mostly an index that is out of range."
    xid = f" (Xid {kernel[0].fields['code']})" if kernel else ""
    if kernel and kernel[0].fields["code"] in _XID_HARDWARE:
        return f"The GPU or its connection failed{xid}: {_means(first)}."
    said = first.fields.get("text", "").strip()
    words = f" ({said})" if said in _WORDS else ""
    return f"A kernel on the GPU failed{words}: {_means(first)}{xid}; it may have happened before the place that reported it."


def _means(message: Message) -> str:
    number = gpu.number_of(message)
    if number in _BY_NUMBER:
        return _BY_NUMBER[number]
    text = message.fields.get("text", "")
    return _WORDS.get(text, text or "CUDA does not say why")


def _fixes(first: Message, asserted: Message | None, kernel: tuple[Message, ...]) -> tuple[Fix, ...]:
    broken = gpu.number_of(first) in _HARDWARE or "ECC" in first.text
    if broken or (kernel and kernel[0].fields["code"] in _XID_HARDWARE):
        return (
            Fix(
                text="Check the card: errors of its memory, its temperature, its power.",
                command="nvidia-smi -q -d ECC,TEMPERATURE,POWER,PAGE_RETIREMENT",
            ),
            Fix(text="Restart the machine; if the error comes back, the card needs service."),
        )
    ordered = Fix(
        text="Run once with the launches in order, so that the right line is named.",
        command="CUDA_LAUNCH_BLOCKING=1 python ...",
    )
    checker = Fix(text="Let NVIDIA's checker name the kernel and the access.", command="compute-sanitizer python ...")
    if asserted is not None or "assert" in first.text:
        return (
            Fix(
                text="Check what is used as an index: labels must be in 0 to classes - 1, token numbers below the vocabulary's size. On the CPU the same step gives a readable error.",
                command="CUDA_VISIBLE_DEVICES=-1 python ...",
            ),
            ordered,
        )
    if gpu.number_of(first) == _TIMEOUT or "timed out" in first.text:
        return (
            Fix(
                text="Let the kernel work on less at once, use a card without a display, or lengthen Windows' TdrDelay."
            ),
            ordered,
        )
    return (ordered, checker)


RULE = Rule(
    _match,
    needs=("messages",),
    beats=GIVEN_UP,
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Run once with the launches in order, so that the right line is named.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
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
)
