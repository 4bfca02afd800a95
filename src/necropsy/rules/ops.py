"""What the rules on custom ops share: which symbols belong to TensorFlow, and short names."""

from __future__ import annotations

from necropsy.lazy_re import regex
from necropsy.model import Environment, Evidence, Op
from necropsy.rule import Found

_OF_TENSORFLOW = regex(r"_Z\w*?(?:10tensorflow|3tsl|4absl|3xla|15stream_executor)|TF_[A-Z]\w+$|_ZN6google8protobuf")
_FRAMEWORK = regex(r"lib(?:tensorflow_(?:framework|cc)|tensorflow)\.so\.\d")


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


def other_abseil(one: Op) -> str | None:
    """The release of Abseil that it was built with, where TensorFlow brings another one."""
    others = [release for release in one.wants_abseil if release != one.has_abseil]
    return others[-1] if others and one.has_abseil is not None else None


def abseil_seen(one: Op) -> Found:
    """Both releases of Abseil, where they differ."""
    other = other_abseil(one)
    if other is None:
        return ()
    return (
        Evidence(claim="the release of Abseil that it was built with", seen=f"absl::lts_{other}", where=one.path),
        Evidence(claim="the one that the installed TensorFlow brings", seen=f"absl::lts_{one.has_abseil}"),
    )


def strings_seen(one: Op) -> Found:
    """Both string ABIs, where they differ."""
    if one.wants_strings is None or one.has_strings is None or one.wants_strings == one.has_strings:
        return ()
    number = {"old": 0, "new": 1}
    return (
        Evidence(
            claim="the C++ string ABI that it was built with",
            seen=f"_GLIBCXX_USE_CXX11_ABI={number[one.wants_strings]}",
            where=one.path,
        ),
        Evidence(claim="the one of the installed TensorFlow", seen=f"_GLIBCXX_USE_CXX11_ABI={number[one.has_strings]}"),
    )


def reason(one: Op) -> str:
    """Why TensorFlow does not have the names that it lacks."""
    if strings_seen(one):
        return (
            f"it was built with the {one.wants_strings} C++ string ABI, and TensorFlow with the {one.has_strings} one"
        )
    if (other := other_abseil(one)) is not None:
        return f"it was built with Abseil {other}, and TensorFlow brings {one.has_abseil}"
    return "it was built for another version"
