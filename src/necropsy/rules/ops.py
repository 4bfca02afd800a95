"""What the rules on custom ops share: which symbols belong to TensorFlow, and short names."""

from __future__ import annotations

import re

from necropsy.model import Environment, Op

_OF_TENSORFLOW = re.compile(
    r"_Z\w*?(?:10tensorflow|3tsl|4absl|3xla|15stream_executor)|TF_[A-Z]\w+$|_ZN6google8protobuf"
)
_FRAMEWORK = re.compile(r"lib(?:tensorflow_(?:framework|cc)|tensorflow)\.so\.\d")


def is_of_tensorflow(symbol: str) -> bool:
    """A name of TensorFlow, or of what comes with it."""
    return _OF_TENSORFLOW.match(symbol) is not None


def of_tensorflow(op: Op) -> list[str]:
    """The missing symbols of TensorFlow."""
    return [one for one in op.missing or () if is_of_tensorflow(one)]


def other_release(environment: Environment, name: str) -> str | None:
    """The installed library of TensorFlow that has the same name with another number at its end."""
    if not _FRAMEWORK.match(name):
        return None
    stem = name.partition(".so")[0] + ".so."
    return next((one.path for one in environment.libraries or () if one.distribution and f"/{stem}" in one.path), None)


def short(symbol: str) -> str:
    """The symbol, cut in the middle where it is long."""
    return symbol if len(symbol) <= 100 else f"{symbol[:80]}...{symbol[-12:]}"
