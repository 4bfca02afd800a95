"""The generation of NumPy's C interface that a library was compiled for, without loading it."""

from __future__ import annotations

import os

from necropsy.formats.numpy_import import ONE, TWO

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
                if TWO in text:
                    return 2
                found = found or ONE in text
                tail = text[-len(TWO) :]
    except OSError:
        return None
    return 1 if found else None
