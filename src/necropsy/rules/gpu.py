"""What the rules on GPUs share: what an error of CUDA or one of its libraries means, and which of several came first."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from necropsy.data import table
from necropsy.model import Crash, Message
from necropsy.predicates import messages

FAULT = "cuda-kernel-fault"
_STATUSES = ("cudnn-handle", "cudnn-status", "cublas-status", "cusolver-status", "cufft-status")
"""Messages with a status of one of CUDA's libraries: what they could not do, seldom why."""


@lru_cache(maxsize=1)
def _codes() -> dict[str, dict[str, Any]]:
    """Name -> row of ``data/nvidia.json``; a driver error takes the row of the runtime error with its number."""
    groups = table("nvidia.json")["groups"]
    found: dict[str, dict[str, Any]] = {}
    by_number = {row["value"]: row for row in groups["CUDA runtime error"]["codes"].values()}
    for kind, group in groups.items():
        for name, row in group["codes"].items():
            same = by_number.get(row["value"], {}) if kind == "CUDA driver error" else {}
            found.setdefault(name, {**same, **row})
    return found


def name_of(message: Message) -> str | None:
    """The error's name: ``CUDA_ERROR_ILLEGAL_ADDRESS``, ``CUDNN_STATUS_NOT_INITIALIZED``."""
    return message.fields.get("name") or message.fields.get("status")


def rule_of(message: Message) -> str | None:
    """The verdict that the message's error mostly belongs to."""
    rule: str | None = _codes().get(name_of(message) or "", {}).get("rule")
    return rule


def meaning_of(message: Message) -> str | None:
    """What the message's error is, in words."""
    meaning: str | None = _codes().get(name_of(message) or "", {}).get("meaning")
    return meaning


def number_of(message: Message) -> int | None:
    """The error's number in the CUDA of today."""
    number: int | None = _codes().get(name_of(message) or "", {}).get("value")
    return number


def faults(crash: Crash) -> tuple[Message, ...]:
    """The messages that tell of a kernel that failed; from the first of them on, CUDA repeats it to every caller."""
    return tuple(
        one
        for one in messages(crash, "cuda-error", "cuda-fault", "gpu-assertion")
        if one.kind != "cuda-error" or rule_of(one) == FAULT
    )


def statuses(crash: Crash, *rules: str) -> tuple[Message, ...]:
    """The statuses of CUDA's libraries that mostly belong to one of ``rules``."""
    return tuple(one for one in messages(crash, *_STATUSES) if rule_of(one) in rules)


def place(crash: Crash, message: Message) -> int:
    """Where the message stands among all: the first is 0."""
    return next((index for index, one in enumerate(crash.messages or ()) if one is message), 0)


def is_echo(crash: Crash, message: Message) -> bool:
    """A kernel had failed before: the message only repeats that the context is broken, whatever it says itself."""
    first = next(iter(faults(crash)), None)
    return first is not None and first is not message and place(crash, first) < place(crash, message)


_FRAMEWORKS = ("tensorflow", "torch", "jax", "jaxlib", "onnxruntime", "paddle", "cupy", "ctranslate2", "mxnet")


def framework(crash: Crash) -> str | None:
    """Whose program it is: by the libraries that were loaded, the files of the log's lines and of Python's frames."""
    for name in _FRAMEWORKS:
        if name in (crash.libraries or {}):
            return name
    raised = [one.fields.get("exception", "").split(".", 1)[0] for one in messages(crash, "python-traceback")]
    if raised and raised[-1] in _FRAMEWORKS:
        return raised[-1]
    files = [one.fields.get("file", "") for one in crash.messages or ()]
    files += [frame.source or "" for thread in crash.threads or () for frame in (thread.python or ())]
    for file in files:
        path = file.replace("\\", "/")
        for name in _FRAMEWORKS:
            if f"/{name}/" in f"/{path}":
                return name
        if "/xla/" in f"/{path}" or path.startswith("external/local_"):
            return "tensorflow"
    return None
