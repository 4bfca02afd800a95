"""The memory of the GPU is used up.

What happened
-------------
An allocation on the GPU failed. Either the model and its batch need more than the card has, or something else holds it: another process,
TensorFlow's habit of taking all of it at the start, memory that is fragmented, or tensors that the program keeps.

How to be sure
--------------
The exception that ended the program is ``CUDA out of memory``, ``RESOURCE_EXHAUSTED: OOM when allocating tensor`` with a GPU's allocator,
or ``CUDA_ERROR_OUT_OF_MEMORY``. TensorFlow prints a table of its allocator before it: compare *Limit*, *InUse* and *LargestFreeBlock* with
what was asked for.

How to fix it now
-----------------
``nvidia-smi`` shows who holds the memory. Use a smaller batch, mixed precision, gradient checkpointing;
``tf.config.experimental.set_memory_growth`` where several processes share a card; ``TF_GPU_ALLOCATOR=cuda_malloc_async`` or
``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` against fragmentation.

How to prevent it
-----------------
Log the peak of memory; keep no references to losses and activations (``loss.item()``).

What it is often mistaken for
-----------------------------
A lack of the machine's own memory, whose messages look alike: the allocator's name tells them apart (GPU_0_bfc and cpu). A wrong shape: an
absurd size is a bug, not a need.

Sources
-------
- https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
- https://pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from necropsy.model import Crash, Fix, Message
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence, last_traceback
from necropsy.rules.told import on_gpu, teller, told_of_the_end
from necropsy.rules.trials import of_gpu


def _match(crash: Crash) -> Finding | None:
    found = [
        message
        for message in messages(crash, "gpu-oom", "tensor-oom", "allocator-oom", "xla-oom", "cuda-error")
        if _of_gpu(crash, message)
    ]
    if not found:
        return None
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
    shape, size = message.fields.get("shape"), message.fields.get("size")
    what = f" for a tensor of shape [{shape}]" if shape is not None else f": {size} more were asked for" if size else ""
    return Finding(
        evidence=(
            quote(message, "the allocation that failed"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=f"The GPU had no memory left{what}.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(text="See who holds the memory.", command="nvidia-smi"),
            Fix(
                text="Use a smaller batch or mixed precision; let TensorFlow take only what it needs.",
                command="TF_FORCE_GPU_ALLOW_GROWTH=true python ...",
            ),
        ),
    )


def _of_gpu(crash: Crash, message: Message) -> bool:
    if message.kind == "cuda-error":
        return message.fields["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    if message.kind in {"tensor-oom", "allocator-oom"}:
        return on_gpu(crash, message)
    return message.kind == "gpu-oom" or "GPU" in message.text


RULE = Rule(
    name="gpu-out-of-memory",
    subject=Crash,
    title="The memory of the GPU is used up",
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
        "allocation-failed",
    ),
    experiments=of_gpu,
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
    references=("https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",),
)
