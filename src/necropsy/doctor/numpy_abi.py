"""The generation of NumPy's C interface that a library was compiled for, without loading it.

``import_array`` of NumPy 1.x's headers imports ``numpy.core._multiarray_umath``; that of NumPy 2's imports
``numpy._core._multiarray_umath`` and, where it is not there, the other one: such a library works with both.
"""

from __future__ import annotations

import os

_ONE, _TWO = b"numpy.core._multiarray_umath", b"numpy._core._multiarray_umath"
_LARGEST = 64 << 20
"""Bytes; larger files are those of frameworks, of which tables tell."""
_CHUNK = 1 << 20


def generation(path: str) -> int | None:
    """1 or 2; None for a library that does not use it, and for one that is too large or cannot be read."""
    found = False
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                return None
            tail = b""
            while data := file.read(_CHUNK):
                text = tail + data
                if _TWO in text:
                    return 2
                found = found or _ONE in text
                tail = text[-len(_TWO) :]
    except OSError:
        return None
    return 1 if found else None
