"""How much stack one call asked for, where Windows ended it amid of asking.

A function with a frame of a page or more calls ``__chkstk`` first (MinGW: ``___chkstk_ms``), which touches the pages of
the frame one by one from above, so that the guard page is hit in order (Microsoft Learn, *Prolog and epilog*; GCC's
``libgcc/config/i386/cygwin.S``). The stack pointer is moved afterwards.
"""

from __future__ import annotations

from necropsy.model import Crash, Frame, Stack
from necropsy.predicates import on_windows

_FAR = 64 << 10
"""Bytes below the stack pointer: what pushes and small frames touch is nearer."""
_IMPOSSIBLE = 1 << 40
"""Bytes: no stack is so large, so that the register held something else."""


def asked_at_once(crash: Crash, stack: Stack, largest: Frame | None) -> int | None:
    """Bytes that one call asked for on Windows, where the page that was touched lies far below the stack pointer.

    None where they are known from a frame, or where what was touched is near. In MinGW's helper rax has what is left of
    them, in Microsoft's all of them; of another instruction only the distance is known.
    """
    address, pointer = crash.fault.address if crash.fault is not None else None, stack.pointer
    if address is None or pointer is None or pointer - address < _FAR or not on_windows(crash):
        return None
    text = crash.instruction.text if crash.instruction is not None else None
    told = (crash.registers or {}).get("rax", 0)
    if text == "or qword ptr [rcx], 0":
        told += pointer - address
    elif text not in {"mov byte ptr [r11], 0", "test byte ptr [r11], r11b"}:
        told = 0
    asked = told if pointer - address <= told < _IMPOSSIBLE else pointer - address
    return asked if largest is None or (largest.stack_bytes or 0) < asked else None
