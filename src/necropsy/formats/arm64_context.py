"""``ARM64_NT_CONTEXT`` as registers. Layout: winnt.h (Windows SDK), and Breakpad's older form of it.

Windows: ContextFlags and Cpsr of 32 bits each, then x0 to x28, fp, lr, sp and pc. Breakpad's older form
(``MDRawContextARM64_Old``) has flags of 64 bits and puts Cpsr behind pc; the 33 numbers between lie at the same place.
"""

from __future__ import annotations

import struct

_NAMES = (*(f"x{number}" for number in range(29)), "fp", "lr", "sp", "pc")
_AT = 8
_OLD = 0x80000000
"""In the flags of Breakpad's older form."""


def registers(context: bytes) -> dict[str, int] | None:
    """``x0`` to ``x28``, ``fp``, ``lr``, ``sp``, ``pc`` and ``cpsr``; None where the context is cut off before."""
    if len(context) < _AT + 8 * len(_NAMES) + 4:
        return None
    values = dict(zip(_NAMES, struct.unpack_from(f"<{len(_NAMES)}Q", context, _AT), strict=True))
    flags, cpsr = struct.unpack_from("<II", context)
    if flags & _OLD:
        (cpsr,) = struct.unpack_from("<I", context, _AT + 8 * len(_NAMES))
    return values | {"cpsr": cpsr}
