"""A library of CUDA or cuDNN was not found.

What happened
-------------
CUDA's libraries are loaded when they are first needed. One is missing, or is of another major version: libcudart,
libcublas, libcudnn and its parts, libnvrtc, XLA's ptxas and libdevice, or the driver's libcuda. Some loaders continue
without a GPU; cuDNN's aborts the program.

How to be sure
--------------
``Could not load library libcudnn_cnn_infer.so.8`` before an abort, ``Invalid handle. Cannot load symbol cudnn...``,
``Could not locate zlibwapi.dll``, ``libdevice not found at ./libdevice.10.bc``, or ``libcudart.so.12: cannot open
shared object file`` in the exception that ended the program, or in one before it that a wrapper hides. A message that
the program survives (``Could not load dynamic library``, ``Could not find cuda drivers``) is not the cause.

How to fix it now
-----------------
``pip install 'tensorflow[and-cuda]'`` or ``pip install --force-reinstall torch`` brings a matching set. For one
library alone, the package depends on its name. ``libcudnn.so.8`` is in ``'nvidia-cudnn-cu12>=8.9,<9'``,
``libcudnn.so.9`` in ``'nvidia-cudnn-cu12>=9,<10'``. ``libcudart.so.11.0`` is in ``nvidia-cuda-runtime-cu11``,
``libcublas.so.12`` in ``nvidia-cublas-cu12``, libdevice and ptxas in ``nvidia-cuda-nvcc-cu12``. Programs that do not
look into pip's folders need them in ``LD_LIBRARY_PATH``. ``libcuda.so.1`` belongs to the driver: in a container it
needs ``--gpus all``.

How to prevent it
-----------------
Install CUDA's libraries with the framework, by pip or by conda, never by both. On native Windows TensorFlow uses GPUs
up to 2.10 only.

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

from necropsy.lazy_re import regex
from necropsy.model import Confidence, Crash, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, X86_64, Finding, Occurs, Rule, Tried
from necropsy.rules import compatibility, gpu, quoting
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.loading import NO_PAGE_FILE, windows_error
from necropsy.rules.log_rules import is_of_other_version, teller, told_of_the_end
from necropsy.rules.python import exit_evidence, last_traceback
from necropsy.rules.windows_loader import delayed

_OWN = "cuda-library-missing"
_OF_CUDA = regex(
    r"(?:.*[/\\\\])?(?:lib)?(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nvcuda|nvinfer|"
    r"nvidia-ml|nvJitLink|nvrtc|nvToolsExt|onnxruntime_providers_(?:cuda|tensorrt)|zlibwapi)(?![a-z])[\w.-]*",
    re.IGNORECASE,
)
_ORDER: tuple[Confidence, ...] = ("certain", "likely", "possible")


def _match(crash: Crash) -> Finding | None:
    graded = [(one, grade) for one in _complaints(crash) if (grade := _grade(crash, one)) is not None]
    if not graded:
        return None
    # The first of the surest: what comes after it fails because of it.
    message, confidence = min(graded, key=lambda one: _ORDER.index(one[1]))
    library = _library(crash, message)
    name = f"`{library}`" if library else "one or more of them"
    summary = f"A library of CUDA or cuDNN that the program needs could not be loaded: {name}."
    if message.kind == "cuda-tool":
        summary = f"XLA compiles for the GPU while the program runs, and did not find `{message.fields['tool']}`."
    return Finding(
        evidence=(
            quote(message, "what could not be loaded"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash, message, library),
    )


def _complaints(crash: Crash) -> list[Message]:
    kinds = (
        "cudnn-part-missing",
        "missing-library",
        "cuda-library",
        "gpu-libraries",
        "cuda-tool",
        "cuda-error",
        "cudnn-status",
        "delay-load-module",
    )
    return [one for one in messages(crash, *kinds) if _is_meant(one) and not gpu.is_echo(crash, one)]


def _is_meant(message: Message) -> bool:
    if message.kind == "cudnn-part-missing":
        return not is_of_other_version(message)
    if message.kind == "delay-load-module":
        return _OF_CUDA.fullmatch(message.fields.get("dll", "")) is not None
    if message.kind == "missing-library":
        own = _OF_CUDA.fullmatch(message.fields.get("library", "")) is not None
        return own and windows_error(message) != NO_PAGE_FILE
    return message.kind not in {"cuda-error", "cudnn-status"} or gpu.rule_of(message) == _OWN


def _grade(crash: Crash, message: Message) -> Confidence | None:
    if message.kind == "cudnn-part-missing":
        return told_of_the_end(crash, message)
    if message.kind == "delay-load-module":
        found = delayed(crash, message.kind)
        return found[1] if found is not None else None
    if message.kind in {"cuda-library", "gpu-libraries"} and last_traceback(crash) is None:
        return None  # programs go on without a GPU
    return told_of_the_end(crash, message, decisive=False)


def _library(crash: Crash, message: Message) -> str | None:
    """The missing library; if the message says so, one that an existing library requires."""
    inner = re.match(r"(?P<library>[^\s:'\"]+): (?:cannot open|no such)", message.fields.get("error", ""))
    if inner is not None:
        return inner["library"]
    if library := message.fields.get("library", message.fields.get("dll")):
        return library
    return next((one.fields["library"] for one in messages(crash, "cuda-library") if "library" in one.fields), None)


_FIND_WHEELS = "export LD_LIBRARY_PATH=$(find $(python -c 'import site; print(site.getsitepackages()[0])')/nvidia -name lib -printf '%p:')$LD_LIBRARY_PATH"


def _fixes(crash: Crash, message: Message, library: str | None) -> tuple[Fix, ...]:
    if message.kind == "cuda-tool":
        return (
            Fix(
                text="Install CUDA's compiler (CUDA 13: nvidia-cuda-nvcc and nvidia-nvvm).",
                command="pip install nvidia-cuda-nvcc-cu12",
            ),
            Fix(
                text="Or say where it is: the folder that holds nvvm/libdevice/libdevice.10.bc and bin/ptxas.",
                command="XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda python ...",
            ),
        )
    file = re.split(r"[/\\\\]", library or "")[-1].lower()
    if file.startswith(("libcuda.so", "libnvidia-ml", "nvcuda")) or (library is None and message.kind == "cuda-error"):
        return (
            Fix(
                text="The library belongs to the NVIDIA driver: install it, or start the container with the GPU.",
                command="nvidia-smi; docker run --gpus all ...",
            ),
        )
    if file.startswith("zlibwapi"):
        return (
            Fix(
                text="cuDNN 8 for Windows needs zlib's zlibwapi.dll (64 bits): put it beside cudnn64_8.dll, or into a folder on PATH; NVIDIA's installation guide for cuDNN names the download.",
                command="where cudnn64_8.dll zlibwapi.dll",
            ),
        )
    return _install(crash, library, file)


def _install(crash: Crash, library: str | None, file: str) -> tuple[Fix, ...]:
    wheel, conda = compatibility.wheel_of(library or "") or (None, None)
    if file.endswith(".dll"):
        own = f" It needs {conda or wheel}." if conda or wheel else ""
        return (
            Fix(
                text=f"Put the folder of `{library}` on PATH, all files of one version.{own} TensorFlow uses GPUs on native Windows up to 2.10: CUDA 11.2 and cuDNN 8.1.",
                command="conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1.0",
            ),
            Fix(text="See which copies there are.", command=f"where {quoting.windows(file, 'DLL')}"),
        )
    whole = {
        "tensorflow": Fix(
            text="Install CUDA's libraries with the framework.", command="pip install 'tensorflow[and-cuda]'"
        ),
        "torch": Fix(text="Reinstall PyTorch, with its libraries.", command="pip install --force-reinstall torch"),
        "jax": Fix(text="Install CUDA's libraries with the framework.", command="pip install -U 'jax[cuda12]'"),
    }.get((gpu.framework(crash) or "").replace("jaxlib", "jax"))
    named = None
    if wheel is not None:
        named = Fix(
            text=f"Install CUDA's package that holds `{file}`.",
            command=f"pip install {quoting.posix(wheel, 'PACKAGE')}",
        )
    elif conda is not None:
        named = Fix(text=f"Install the CUDA that holds `{file}`.", command=f"conda install -c conda-forge {conda}")
    if wheel is None and re.search(r"\d", file):
        whole = None  # too old for the extras of today's framework
    chosen = tuple(one for one in (whole, named) if one is not None)
    if not chosen and re.search(r"\d", file):
        chosen = (
            Fix(
                text=f"The number in `{file}` is the version of CUDA that the framework was built for: install that CUDA, or a newer framework with its own.",
                command="pip install -U 'tensorflow[and-cuda]'",
            ),
        )
    if not chosen:
        chosen = (
            Fix(text="Install CUDA's libraries with the framework.", command="pip install 'tensorflow[and-cuda]'"),
        )
    return (
        *chosen,
        Fix(
            text="If it is installed but not found, name the folders of pip's packages before Python starts.",
            command=_FIND_WHEELS,
        ),
    )


RULE = Rule(
    _match,
    needs=("messages",),
    beats=(*GIVEN_UP, "missing-library"),
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Install CUDA's package that holds the library.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
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
)
