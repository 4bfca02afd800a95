"""Arms the guard allocator around a call, if it was loaded with the process (``capture/linux/csrc/guard``)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, ContextManager, Dict, Optional

_VERSION = 1
_CLASSES, _CLASS, _COMPLAINT, _COUNTERS = 5, 9, 5, 3
"""How many sizes it has, and the words of 64 bits that its state has on each, on a complaint, and to count."""


class _State(ctypes.Structure):
    """The first part of ``struct guard_state`` (guard.h)."""

    _fields_ = [
        ("magic", ctypes.c_char * 16),
        ("version", ctypes.c_uint32),
        ("sizes", ctypes.c_uint32 * 5),
        ("inner", ctypes.c_uint64 * (_CLASSES * _CLASS + _COMPLAINT + _COUNTERS)),
        ("armed", ctypes.c_uint32),
        ("begin", ctypes.c_uint32),
        ("small", ctypes.c_uint32),
        ("small_left", ctypes.c_int32),
        ("fill", ctypes.c_int32),
        ("pattern", ctypes.c_uint32),
    ]


def is_loaded() -> bool:
    """The guard is in this process, in the version that is known here."""
    return _state() is not None


def _state() -> Optional[_State]:
    if os.name == "nt":
        return None
    try:
        state = _State.in_dll(ctypes.CDLL(None), "necropsy_guard")
    except ValueError:
        return None
    return state if state.magic == b"necropsy guard" and state.version == _VERSION else None


class Guard:
    """``inputs`` and ``call``: what to make the inputs and the call in.

    ``wanted``: whether blocks ``begin`` at a forbidden page (see policy.c), how many small blocks are guarded while the
    ``inputs`` are made, and during the ``call``, and the byte to ``fill`` new blocks with, if any. None: no guard.
    """

    def __init__(self, wanted: Optional[Dict[str, Any]]) -> None:
        self.inputs: ContextManager[None] = contextlib.nullcontext()
        self.call: ContextManager[None] = contextlib.nullcontext()
        state = _state()
        self.is_used = wanted is not None and state is not None
        """Calls are guarded."""
        if wanted is not None and state is not None:
            state.begin = bool(wanted["begin"])
            state.fill = wanted.get("fill", -1)
            self.inputs, self.call = _Armed(wanted["inputs"]), _Armed(wanted["call"])


class _Armed:
    def __init__(self, small_blocks: int) -> None:
        process = ctypes.CDLL(None)
        self._arm, self._disarm, self._blocks = process.necropsy_guard_arm, process.necropsy_guard_disarm, small_blocks

    def __enter__(self) -> None:
        self._arm(self._blocks)

    def __exit__(self, *_: object) -> None:
        self._disarm()
