"""A library of CUDA or cuDNN was not found.

What happened
-------------
CUDA's libraries are loaded when they are first needed. One is missing, or is of another major version: libcudart, libcublas, libcudnn and
its parts, libnvrtc, or the driver's libcuda. Some loaders go on without a GPU, cuDNN's aborts the program.

How to be sure
--------------
``Could not load library libcudnn_cnn_infer.so.8`` before an abort, ``Invalid handle. Cannot load symbol cudnn...``, or ``libcudart.so.12:
cannot open shared object file`` in the exception that ended the program. A message that the program survives (``Could not load dynamic
library``, ``Could not find cuda drivers``) is no cause of death.

How to fix it now
-----------------
``pip install 'tensorflow[and-cuda]'``, or the nvidia package that holds the named library, and no other copy in ``LD_LIBRARY_PATH``.
``libcuda.so.1`` belongs to the driver: in a container it needs ``--gpus all``.

How to prevent it
-----------------
Install CUDA's libraries with the framework, by pip or by conda, never by both.

What it is often mistaken for
-----------------------------
A missing GPU or driver. A library whose file is there but that needs another one: the text names the inner one.

Sources
-------
- https://www.tensorflow.org/install/pip
- https://docs.nvidia.com/deeplearning/cudnn/latest/installation/linux.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Fix
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence, last_traceback
from necropsy.rules.told import is_of_other_version, teller, told_of_the_end
from necropsy.rules.trials import of_gpu

_OF_CUDA = re.compile(
    r"(?:.*/)?(?:lib)?(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nvJitLink|nccl|cupti|nvToolsExt)[\w.-]*"
)


def _match(crash: Crash) -> Finding | None:
    parts = tuple(one for one in messages(crash, "cudnn-part-missing") if not is_of_other_version(one))
    needed = [one for one in messages(crash, "missing-library") if _OF_CUDA.fullmatch(one.fields.get("library", ""))]
    skipped = messages(crash, "cuda-library", "gpu-libraries")
    found = needed or parts or skipped
    if not found:
        return None
    message = found[-1]
    if message in skipped and last_traceback(crash) is None:
        return None  # programs go on without a GPU
    confidence = told_of_the_end(crash, message, decisive=message in parts)
    if confidence is None:
        return None
    library = message.fields.get("library") or next(
        (one.fields["library"] for one in skipped if "library" in one.fields), None
    )
    name = f"`{library}`" if library else "one or more of them"
    return Finding(
        evidence=(
            quote(message, "what could not be loaded"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=f"A library of CUDA or cuDNN that the program needs could not be loaded: {name}.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="The library belongs to the NVIDIA driver: install it, or start the container with the GPU.",
                command="nvidia-smi; docker run --gpus all ...",
            )
            if library and library.startswith("libcuda.so")
            else Fix(
                text="Install CUDA's libraries with the framework.",
                command="pip install 'tensorflow[and-cuda]'",
            ),
            Fix(text="See which copies there are.", command="pip list | grep -i nvidia; echo $LD_LIBRARY_PATH"),
        ),
    )


RULE = Rule(
    name="cuda-library-missing",
    subject=Crash,
    title="A library of CUDA or cuDNN was not found",
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
        "missing-library",
    ),
    experiments=of_gpu,
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame cudnnCreateConvolutionDescriptor @ libcudnn.so.8 takes 64
        log Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: no such object
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: no such object
        log ValueError: no data
    """,
    references=("https://www.tensorflow.org/install/pip",),
)
