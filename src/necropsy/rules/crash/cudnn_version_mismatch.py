"""The cuDNN that was loaded does not fit.

What happened
-------------
cuDNN is loaded at run time. TensorFlow or PyTorch was built for one version and found another: an older minor version, another major one,
or parts of two versions mixed (cuDNN 8 and 9 consist of several libraries).

How to be sure
--------------
The log names both: ``Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0``, ``cuDNN version incompatibility``, or a
status of VERSION_MISMATCH. The rule in TensorFlow's source: the same major version, and a minor version that is not lower.

How to fix it now
-----------------
Find the copy that wins: ``LD_LIBRARY_PATH``, conda's, the system's, or the wheel that another framework pinned. Remove it, or install the
version that is asked for: ``pip install 'nvidia-cudnn-cu12==...'``.

How to prevent it
-----------------
One framework per environment; ``pip install 'tensorflow[and-cuda]'`` brings what fits; no CUDA in ``LD_LIBRARY_PATH``.

What it is often mistaken for
-----------------------------
A missing cuDNN. A driver that is too old. A lack of GPU memory, which often shows as CUDNN_STATUS_INTERNAL_ERROR.

Sources
-------
- https://docs.nvidia.com/deeplearning/cudnn/latest/developer/forward-compatibility.html
- https://www.tensorflow.org/install/source#gpu
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.told import is_of_other_version, teller, told_of_the_end
from necropsy.rules.trials import of_gpu


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "cudnn-version") or tuple(
        filter(is_of_other_version, messages(crash, "cudnn-part-missing"))
    )
    if not found:
        return None
    message = next((one for one in reversed(found) if "loaded" in one.fields), found[-1])
    confidence = told_of_the_end(crash, message)
    if confidence is None:
        return None
    loaded, built = message.fields.get("loaded"), message.fields.get("built")
    if loaded and built:
        summary = f"cuDNN {_dots(loaded)} was loaded, but the framework was built for {_dots(built)}."
    elif "library" in message.fields:
        summary = f"The parts of cuDNN that were loaded are of different versions: `{message.fields['library']}` does not fit to the others."
    else:
        summary = (
            f"Parts of different versions of cuDNN were loaded ({message.fields.get('status', 'version mismatch')})."
        )
    return Finding(
        evidence=(
            quote(message, "the versions do not fit"),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary="The wrong " + summary if summary.startswith("cuDNN") else summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="Find the copy of cuDNN that is loaded, and remove it or put the right one in front.",
                command="echo $LD_LIBRARY_PATH; pip list | grep -i cudnn; find / -name 'libcudnn*.so*' 2>/dev/null",
            ),
            Fix(text="Install what the framework was built for.", command="pip install 'tensorflow[and-cuda]'"),
        ),
    )


def _dots(version: str) -> str:
    return version.replace(", ", ".").rstrip(".")


RULE = Rule(
    name="cudnn-version-mismatch",
    subject=Crash,
    title="The cuDNN that was loaded does not fit",
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
        log E tensorflow/stream_executor/cuda/cuda_dnn.cc:378] Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0.  CuDNN library needs to have matching major version
        log tensorflow.python.framework.errors_impl.UnknownError: Failed to get convolution algorithm.
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log tensorflow.python.framework.errors_impl.UnknownError: Failed to get convolution algorithm. CUDNN_STATUS_INTERNAL_ERROR
    """,
    references=("https://docs.nvidia.com/deeplearning/cudnn/latest/developer/forward-compatibility.html",),
)
