"""How C++ names show Abseil's release and the string ABI that TensorFlow's library or an op was built with.

Abseil's release is an inline namespace (``absl::lts_20230802``). The new string ABI shows as ``__cxx11`` in the types
of a name, or as the tag ``B5cxx11`` behind the name of a function that returns a string; the old one as ``Ss``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from necropsy.formats.elf import ElfFile

Strings = Literal["old", "new"]

PROVIDERS = ("libtensorflow_framework.so", "libtensorflow_cc.so")
"""What the names of TensorFlow's libraries begin with; the first has Abseil's names and those of strings."""
_DT_STRTAB, _DT_STRSZ = 5, 10
_ABSEIL = re.compile(r"lts_(?P<release>\d{8})")
_IN_FILE = b"4absl12lts_"
_TAG = "B5cxx11"
# What is skipped to leave the types of a mangled name: literals, substitutions with a number, template parameters.
_TOKEN = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T[0-9A-Z]*_|\d+")


def abseil_of(names: Iterable[str]) -> tuple[str, ...]:
    """The releases of Abseil in these names: ``20230802``."""
    return tuple(sorted({each["release"] for one in names for each in _ABSEIL.finditer(one)}))


def of_framework(file: ElfFile) -> tuple[str | None, Strings | None]:
    """Abseil's release and the string ABI of TensorFlow's library. Raises InputError for damaged tables."""
    start, size = file.offset_of(file.tag(_DT_STRTAB)), file.tag(_DT_STRSZ)
    if start is None or size <= 0:
        return None, None
    at = file.find(_IN_FILE, start, size)
    release = file.bytes_at(at + len(_IN_FILE), 8).decode("ascii", "replace") if at >= 0 else None
    strings: Strings = "new" if file.find(b"cxx11", start, size) >= 0 else "old"
    return release if release and release.isdigit() else None, strings


def strings_of(names: Sequence[str], has: Callable[[str], bool] | None = None) -> Strings | None:
    """The string ABI of missing names; None where no name has a string, or they do not agree.

    ``has``: the framework defines a name. A returned string has no trace of the old ABI: the framework's name shows it,
    which differs by the tag alone.
    """
    new = any("__cxx11" in one or _TAG in one for one in names)
    old = any("Ss" in _types(one) for one in names if one.startswith("_Z"))
    if not new and not old and has is not None:
        old = any(has(other) for one in names for other in tagged(one))
    return None if new == old else "new" if new else "old"


def tagged(name: str) -> Iterator[str]:
    """The mangled name with the tag of the new string ABI behind each identifier in turn."""
    for end in _identifiers(name):
        yield name[:end] + _TAG + name[end:]


def _identifiers(name: str) -> Iterator[int]:
    """Where the identifiers of a mangled name end."""
    at = 2 if name.startswith("_Z") else len(name)
    while at < len(name):
        token = _TOKEN.match(name, at)
        at = at + 1 if token is None else token.end()
        if token is not None and token[0].isdigit():
            at += int(token[0][:5])
            if at <= len(name):
                yield at


def _types(name: str) -> str:
    """A mangled name without its identifiers."""
    found, at = [], 2
    while at < len(name):
        token = _TOKEN.match(name, at)
        if token is None:
            found.append(name[at])
            at += 1
        else:
            at = token.end() + (int(token[0][:5]) if token[0].isdigit() else 0)
            found.append(" ")
    return "".join(found)


# The generation of NumPy's C interface that a library was compiled for, by the module that it imports.
#
# ``import_array`` of NumPy 1.x's headers imports ``numpy.core._multiarray_umath``; that of NumPy 2's imports
# ``numpy._core._multiarray_umath`` and, where it is not there, the other one: such a library works with both.
NUMPY_ONE, NUMPY_TWO = b"numpy.core._multiarray_umath", b"numpy._core._multiarray_umath"
