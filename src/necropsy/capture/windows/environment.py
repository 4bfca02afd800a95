"""What a process on Windows says of itself: its variables, as far as its own blocks lie in the memory at hand.

``PEB`` and ``RTL_USER_PROCESS_PARAMETERS``: Microsoft Learn for their beginnings, ntdll's public symbols for the rest.
"""

from __future__ import annotations

from necropsy.capture.process.environment_names import is_harmless
from necropsy.capture.windows.minidump_memory import Memory

_PEB_OF_TEB, _PARAMETERS_OF_PEB = 0x60, 0x20
_VARIABLES, _VARIABLES_SIZE = 0x80, 0x3F0
_LARGEST = 1 << 20
_SMALLEST = 4


def variables(memory: Memory, teb: int) -> dict[str, str] | None:
    """The variables that change how native code behaves; None where they are not at hand."""
    block = memory.u64(teb + _PEB_OF_TEB) if teb else None
    parameters = memory.u64(block + _PARAMETERS_OF_PEB) if block else None
    start = memory.u64(parameters + _VARIABLES) if parameters else None
    size = memory.u64(parameters + _VARIABLES_SIZE) if parameters else None
    if not start or not size or not _SMALLEST <= size <= _LARGEST:
        return None
    data = memory.some(start, size)
    if not data:
        return None
    words = data[: len(data) & ~1].decode("utf-16-le", "replace").split("\0\0", 1)[0].split("\0")
    # Windows' own hidden ones, of the current folder of each drive, begin with the sign itself.
    pairs = (word.partition("=") for word in words if not word.startswith("="))
    return {name: value for name, _, value in sorted(pairs) if is_harmless(name.upper())}
