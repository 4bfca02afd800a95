"""The memory of the GPU is used up.

What happened
-------------
An allocation on the GPU failed. Either the model and its batch need more than the card has, or something else holds
it. That can be another process (a notebook that is still open), fragmentation, or tensors that the program keeps.
TensorFlow and JAX also take nearly all memory at the start. cuDNN and cuBLAS that find no memory left often say only
that they could not start.

How to be sure
--------------
The exception that ended the program is ``CUDA out of memory``, ``RESOURCE_EXHAUSTED: OOM when allocating tensor``
with a GPU's allocator, or ``CUDA_ERROR_OUT_OF_MEMORY``. TensorFlow prints a table of its allocator before it: compare
*Limit*, *InUse* and *LargestFreeBlock* with the requested size. ``Could not create cudnn handle:
CUDNN_STATUS_INTERNAL_ERROR`` and CUBLAS_STATUS_NOT_INITIALIZED are mostly the same; XLA also prints how many bytes
were free. Without such a message, this verdict is only *possible*, and lists the other causes.

How to fix it now
-----------------
``nvidia-smi`` shows who holds the memory. Use a smaller batch, mixed precision, gradient checkpointing;
``tf.config.experimental.set_memory_growth`` where several processes share a card;
``TF_GPU_ALLOCATOR=cuda_malloc_async`` or ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` against fragmentation.

How to prevent it
-----------------
Log the peak of memory; keep no references to losses and activations (``loss.item()``).

What it is often mistaken for
-----------------------------
A full main memory, whose messages look alike: the allocator's name tells them apart (GPU_0_bfc and cpu). A wrong
shape: an absurdly large size is a bug.

Sources
-------
- https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
- https://pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Fix, Message, Possibility
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, X86_64, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import gpu
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.log_rules import is_of_other_version, on_gpu, teller, told_of_the_end
from necropsy.rules.python import exit_evidence, last_traceback
from necropsy.rules.wording import size

_OWN = "gpu-out-of-memory"
_ALLOCATIONS = ("gpu-oom", "tensor-oom", "allocator-oom", "xla-oom", "cuda-error", "host-of-gpu")
_NO_MEMORY = 2
_LITTLE = 0.1
"""Of the card's memory: what XLA reports as free where cuDNN could not start for lack of it."""
_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int32": 4, "int64": 8, "int8": 1, "uint8": 1, "bool": 1}


def _match(crash: Crash) -> Finding | None:
    return _allocation(crash) or _not_started(crash)


def _allocation(crash: Crash) -> Finding | None:
    found = [one for one in messages(crash, *_ALLOCATIONS) if _of_gpu(crash, one) and not gpu.is_echo(crash, one)]
    graded = [(message, told_of_the_end(crash, message, decisive=message.kind != "allocator-oom")) for message in found]
    traced = last_traceback(crash) is not None
    # The allocator warns before others try again with less.
    sure = [
        (message, grade)
        for message, grade in graded
        if grade is not None and (traced or message.kind != "allocator-oom")
    ]
    if not sure:
        return None
    message, confidence = next((one for one in reversed(sure) if one[1] == "certain"), sure[-1])
    shape = message.fields.get("shape")
    what = f" for a tensor of shape [{shape}]{_of_bytes(message)}" if shape is not None else _asked(message)
    return _finding(crash, message, f"The GPU had no memory left{what}.", confidence)


def _not_started(crash: Crash) -> Finding | None:
    """cuDNN, cuBLAS or another library could not start, mostly because memory ran out, without saying so."""
    if messages(crash, "cudnn-version", "cuda-driver-old", "cuda-driver-mixed"):
        return None
    if any(is_of_other_version(one) for one in messages(crash, "cudnn-part-missing")):
        return None
    handles = [one for one in messages(crash, "cudnn-handle") if not gpu.is_echo(crash, one)]
    found = handles or [one for one in gpu.statuses(crash, _OWN) if not gpu.is_echo(crash, one)]
    consequences = messages(crash, "cudnn-consequence", "cudnn-algorithm")
    # The exception alone: the line that says why was not shown. Memory on demand has cured most of them.
    if not found and not _explained(crash):
        found = list(messages(crash, "cudnn-algorithm"))
    graded = [(one, grade) for one in found if (grade := _grade(crash, one, consequences)) is not None]
    if not graded:
        return None
    message, _ = graded[0]
    left = _left(crash)
    confidence: Confidence = "possible" if left is None else "likely"
    if left is not None and not left[1]:
        return None
    name = gpu.name_of(message) or _ALGORITHM
    told = f": {left[0]} were free" if left else ", which mostly means that the GPU is out of memory"
    finding = _finding(crash, message, f"A library of CUDA could not start ({name}){told}.", confidence)
    return Finding(
        evidence=(
            *finding.evidence,
            *_free(crash),
            *(quote(one, "the check that failed after it") for one in messages(crash, "check-failed")[-1:]),
        ),
        summary=finding.summary,
        confidence=finding.confidence,
        culprit=finding.culprit,
        fixes=finding.fixes,
        possible=() if left else _OTHERS,
    )


_ALGORITHM = "Failed to get convolution algorithm"


def _explained(crash: Crash) -> bool:
    """Lines above the exception say what cuDNN was missing."""
    return bool(messages(crash, "cudnn-part-missing", "cuda-library-missing", "missing-library", "cuda-error"))


def _grade(crash: Crash, message: Message, consequences: tuple[Message, ...]) -> Confidence | None:
    quoted = told_of_the_end(crash, message, decisive=False)
    if quoted is not None:
        return quoted
    ended = [told_of_the_end(crash, one, decisive=False) for one in consequences]
    if any(grade is not None for grade in ended):
        return "likely"
    return told_of_the_end(crash, message)


def _left(crash: Crash) -> tuple[str, bool] | None:
    """Free memory on the card when cuDNN could not start, and whether that is little."""
    for message in messages(crash, "cudnn-memory"):
        free, total = int(message.fields["free"]), int(message.fields["total"])
        if total > 0:
            return f"{size(free)} of {size(total)}", free / total < _LITTLE
    return None


def _free(crash: Crash) -> Found:
    return tuple(quote(one, "what was left on the card") for one in messages(crash, "cudnn-memory")[:1])


def _finding(crash: Crash, message: Message, summary: str, confidence: Confidence) -> Finding:
    return Finding(
        evidence=(
            quote(message, "the allocation that failed" if message.kind in _ALLOCATIONS else "what could not be done"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash),
    )


def _fixes(crash: Crash) -> tuple[Fix, ...]:
    see = Fix(text="See who holds the memory: a notebook or an earlier run may still be there.", command="nvidia-smi")
    whose = gpu.framework(crash)
    if whose in {"torch", "cupy"} or (whose is None and messages(crash, "gpu-oom", "cublas-status")):
        less = Fix(
            text="Use a smaller batch or mixed precision, keep loss.item() instead of the loss, and let the allocator grow its blocks.",
            command="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python ...",
        )
    elif whose in {"jax", "jaxlib"}:
        less = Fix(
            text="Use a smaller batch or mixed precision; let JAX take only what it needs instead of 75 % of the card.",
            command="XLA_PYTHON_CLIENT_PREALLOCATE=false python ...",
        )
    else:
        less = Fix(
            text="Use a smaller batch or mixed precision; let TensorFlow take only what it needs.",
            command="TF_FORCE_GPU_ALLOW_GROWTH=true python ...",
        )
    if any("MPS" in message.text for message in messages(crash, "gpu-oom")):
        return (Fix(text="Use a smaller batch or mixed precision, and close what else uses the GPU."),)
    # A status without an allocation that failed is only mostly that: first see whether the memory is used up.
    return (less, see) if messages(crash, "gpu-oom") else (see, less)


_OTHERS = (
    Possibility(
        cause="the memory of the GPU is held by this program's own allocator or by another program",
        rule=_OWN,
        decide="whether it works when nothing else uses the card and memory is taken on demand",
        command="nvidia-smi; TF_FORCE_GPU_ALLOW_GROWTH=true python ...",
    ),
    Possibility(
        cause="cuDNN or the driver does not fit to the framework",
        rule="cudnn-version-mismatch",
        decide="which copies of cuDNN there are, and what the framework was built for",
        command="pip list | grep -i -E 'cudnn|tensorflow|torch'; nvidia-smi",
    ),
    Possibility(
        cause="an earlier kernel had failed: an index out of range",
        rule="cuda-kernel-fault",
        decide="whether another error comes when launches run in order",
        command="CUDA_LAUNCH_BLOCKING=1 python ...",
    ),
)


def _of_gpu(crash: Crash, message: Message) -> bool:
    if message.kind == "cuda-error":
        return gpu.number_of(message) == _NO_MEMORY
    if message.kind in {"tensor-oom", "allocator-oom"}:
        return on_gpu(crash, message)
    # XLA says *while trying to allocate* of a card, and *allocating* of main memory.
    return message.kind == "gpu-oom" or "GPU" in message.text or "while trying to allocate" in message.text


def _asked(message: Message) -> str:
    if wanted := message.fields.get("size"):
        return f": {wanted} more were requested"
    octets = message.fields.get("bytes", "")
    return f": {size(int(octets))} more were requested" if octets.isdigit() else ""


def _of_bytes(message: Message) -> str:
    """`` (1.2 GiB)``: the tensor's size, if its type is known."""
    width = _BYTES.get(message.fields.get("type", ""))
    numbers = [int(one) for one in message.fields.get("shape", "").split(",") if one]
    if width is None or not numbers or len(numbers) > 12:
        return ""
    octets = width
    for number in numbers:
        octets *= number
    return f" ({size(octets)})" if 0 < octets < 1 << 60 else ""


RULE = Rule(
    _match,
    needs=("messages",),
    beats=(*GIVEN_UP, "allocation-failed"),
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Use a smaller batch or mixed precision.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.78 GiB
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1000000,1000000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu
    """,
)
