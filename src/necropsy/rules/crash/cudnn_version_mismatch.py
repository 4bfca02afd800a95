"""The loaded cuDNN version does not fit.

What happened
-------------
cuDNN is loaded at run time. TensorFlow, PyTorch or JAX was built for one version and found another. That is an older
minor version, another major one, or a mix of two (cuDNN 8 and 9 consist of several libraries). ``LD_LIBRARY_PATH`` is
searched first, then the framework's own folders, then the system's. On Windows, ``PATH`` decides.

How to be sure
--------------
The log names both: ``Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0``, ``cuDNN version
incompatibility``, ``Found cuDNN version 8600, but JAX was built against version 8906``, or a status of
VERSION_MISMATCH. On Windows it is ``Could not load library cudnn_cnn_infer64_8.dll. Error code 127``. TensorFlow
requires the same major version, and a minor version that is not lower. ``DNN library initialization failed`` and
``Failed to get convolution algorithm`` are what follows from it.

How to fix it now
-----------------
Install a cuDNN that fits, by pip: ``pip install 'nvidia-cudnn-cu12>=9.3,<10'`` for TensorFlow 2.18 to 2.21,
``'nvidia-cudnn-cu12>=8.9,<9'`` for 2.15 to 2.17, ``'nvidia-cudnn-cu11>=8.7,<9'`` for 2.12 to 2.14. Then find the copy
that is loaded, by ``echo $LD_LIBRARY_PATH`` and ``pip list | grep -i cudnn``, and remove the wrong one. ``env -u
LD_LIBRARY_PATH python train.py`` shows in one run whether that was it.

How to prevent it
-----------------
One framework per environment; ``pip install 'tensorflow[and-cuda]'`` (2.14 and later) brings what fits; no CUDA in
``LD_LIBRARY_PATH``; on Windows no cuDNN files in System32.

What it is often mistaken for
-----------------------------
A missing cuDNN. A driver that is too old. A full GPU memory, which often shows as CUDNN_STATUS_INTERNAL_ERROR.
*Unable to register cuDNN factory*, which TensorFlow 2.15 to 2.20 prints at every start, is harmless.

Sources
-------
- https://docs.nvidia.com/deeplearning/cudnn/latest/developer/forward-compatibility.html
- https://www.tensorflow.org/install/source#gpu
"""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, on_windows, quote
from necropsy.rule import NEVER, X86_64, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import compatibility, gpu, quoting
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_gpu
from necropsy.rules.log_rules import is_of_other_version, teller, told_of_the_end
from necropsy.rules.python import exit_evidence
from necropsy.rules.windows_loader import delayed


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "cudnn-version") or tuple(
        filter(is_of_other_version, messages(crash, "cudnn-part-missing"))
    )
    found = found or tuple(
        one for one in messages(crash, "delay-load-procedure") if one.fields.get("dll", "").lower().startswith("cudnn")
    )
    if not found:
        return None
    message = next((one for one in found if "loaded" in one.fields), found[0])
    confidence = _confidence(crash, found)
    if confidence is None or gpu.is_echo(crash, message):
        return None
    loaded, built = (
        compatibility.version(message.fields.get("loaded", "")),
        compatibility.version(message.fields.get("built", "")),
    )
    if loaded and built:
        summary = f"The wrong cuDNN {compatibility.spelled(loaded)} was loaded, but the framework was built for {compatibility.spelled(built)}{_why(loaded, built)}."
    elif library := message.fields.get("library", message.fields.get("dll")):
        summary = f"The parts of cuDNN that were loaded are of different versions: `{library}` does not fit the others."
    else:
        summary = (
            f"Parts of different versions of cuDNN were loaded ({message.fields.get('status', 'version mismatch')})."
        )
    return Finding(
        evidence=(
            quote(message, "the versions do not fit"),
            *_rule(loaded, built),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash, message),
    )


def _confidence(crash: Crash, found: tuple[Message, ...]) -> Confidence | None:
    """By the message itself; where the exception only says that cuDNN could not start, the line above it says why."""
    if found[0].kind == "delay-load-procedure" and (record := delayed(crash, found[0].kind)) is not None:
        return record[1]
    grades = [told_of_the_end(crash, one) for one in found]
    grade = next((one for wanted in ("certain", "likely", "possible") for one in grades if one == wanted), None)
    consequences = messages(crash, "cudnn-consequence", "cudnn-algorithm")
    if grade == "likely" and any(told_of_the_end(crash, one) == "certain" for one in consequences):
        return "certain"
    return grade


def _why(loaded: compatibility.Version, built: compatibility.Version) -> str:
    if loaded[:1] != built[:1]:
        return ": another major version"
    return ": an older minor version" if not compatibility.fits(loaded, built) else ""


def _rule(loaded: compatibility.Version | None, built: compatibility.Version | None) -> Found:
    if not loaded or not built or compatibility.fits(loaded, built):
        return ()
    names = compatibility.tensorflow_built_for_cudnn(built)
    seen = f"cuDNN {built[0]}.{built[1] if len(built) > 1 else 0} or a later {built[0]}.x is needed"
    return (
        Evidence(
            claim="the major version must be the same, the minor version not lower",
            seen=seen + (f"; TensorFlow {names} is built for it" if names else ""),
            where="the table of builds",
        ),
    )


def _fixes(crash: Crash, message: Message) -> tuple[Fix, ...]:
    find = Fix(
        text="Find the copy of cuDNN that is loaded, and remove it or put the right one in front: LD_LIBRARY_PATH comes before what pip installed.",
        command="echo $LD_LIBRARY_PATH; pip list | grep -i cudnn; ldconfig -p | grep libcudnn",
    )
    dll = message.fields.get("library", message.fields.get("dll", ""))
    if dll.endswith(".dll") or on_windows(crash):
        find = Fix(
            text="Delete the copies of cuDNN that do not belong together (System32, CUDA's bin folder, conda), and keep the files of one version.",
            command=f"where {quoting.windows(dll, 'cudnn*.dll')}",
        )
    built = compatibility.version(message.fields.get("built", ""))
    loaded = compatibility.version(message.fields.get("loaded", ""))
    if built is None:
        whole = Fix(
            text="Install the framework with the cuDNN that fits it.", command="pip install 'tensorflow[and-cuda]'"
        )
        if gpu.framework(crash) == "torch":
            whole = Fix(
                text="Reinstall PyTorch with the cuDNN that fits it.",
                command="pip install --force-reinstall torch",
            )
        return (find, whole)
    other = (
        compatibility.tensorflow_for_cudnn(loaded) if loaded and gpu.framework(crash) in {None, "tensorflow"} else None
    )
    return (compatibility.cudnn_for(built), find, *((other,) if other else ()))


RULE = Rule(
    _match,
    needs=("messages",),
    beats=(*GIVEN_UP, "undefined-symbol"),
    experiments=of_gpu,
    occurs=Occurs(windows=X86_64, macos=NEVER),
    tried=Tried(
        advice="Install the cuDNN that the framework was built for.",
        result="judged only",
        how="It needs an NVIDIA GPU with its driver, and no such machine was available.",
    ),
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
)
