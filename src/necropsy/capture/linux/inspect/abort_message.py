"""What glibc said before it aborted."""

from __future__ import annotations

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.memory import Memory

_LONGEST = 4096


def abort_message(memory: Memory, files: MappedFiles) -> str | None:
    """What glibc printed before it aborted, from its ``__abort_msg``; None where it aborted for no reason of its own.

    ``struct abort_msg_s {unsigned int size; char msg[];}`` (glibc, include/stdlib.h; the symbol is GLIBC_PRIVATE, kept
    for debuggers). musl has none.
    """
    libc = files.named("libc.so.6", "libc-2.")
    variable = None if libc is None else libc.symbol("__abort_msg")
    pointer = None if variable is None else memory.u64(variable)
    if not pointer:
        return None
    text = memory.c_string(pointer + 4, _LONGEST)
    return text.strip() or None if text is not None else None
