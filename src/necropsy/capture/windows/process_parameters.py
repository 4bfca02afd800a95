"""What a process was started with, read from its memory: arguments, folder, variables.

``RTL_USER_PROCESS_PARAMETERS``, to which the ProcessEnvironmentBlock points. The offsets are those of x64 Windows since
Vista; of the two structures ``winternl.h`` documents a part, debuggers' symbols the rest.
"""

from __future__ import annotations

import struct

from necropsy.capture.process.memory import Memory
from necropsy.secrets.names import is_harmless

_PARAMETERS_AT = 0x20
_FOLDER_AT, _LINE_AT, _VARIABLES_AT, _VARIABLES_SIZE_AT = 0x38, 0x70, 0x80, 0x3F0
_UNICODE_STRING = struct.Struct("<HH4xQ")
_LONGEST_VARIABLES = 1 << 20


class ProcessParameters:
    """Of one process; every part is None where it cannot be read."""

    def __init__(self, memory: Memory, peb: int) -> None:
        self._memory = memory
        self._at = memory.u64(peb + _PARAMETERS_AT) or 0

    @property
    def folder(self) -> str | None:
        """Its working folder."""
        return self._string(_FOLDER_AT)

    @property
    def command(self) -> tuple[str, ...] | None:
        """Its arguments, as most programs take their command line apart."""
        line = self._string(_LINE_AT)
        return split(line) if line else None

    @property
    def variables(self) -> dict[str, str] | None:
        """Its environment as it is now."""
        at = self._memory.u64(self._at + _VARIABLES_AT) if self._at else None
        size = self._memory.u64(self._at + _VARIABLES_SIZE_AT) if self._at else None
        if not at or not size:
            return None
        text = self._memory.some(at, min(size, _LONGEST_VARIABLES)).decode("utf-16-le", "replace")
        pairs = (entry.partition("=") for entry in text.split("\0\0")[0].split("\0"))
        # Names that begin with "=" hold the folder of each drive.
        return {name: value for name, found, value in pairs if name and found}

    def _string(self, offset: int) -> str | None:
        head = self._memory.exactly(self._at + offset, _UNICODE_STRING.size) if self._at else None
        if head is None:
            return None
        size, _, at = _UNICODE_STRING.unpack(head)
        data = self._memory.exactly(at, size) if at else None
        return None if data is None else data.decode("utf-16-le", "replace")


def split(line: str) -> tuple[str, ...]:
    """A command line as words, by the rules of Microsoft's C runtime: *Parsing C command-line arguments*."""
    words: list[str] = []
    word, quoted, begun, at = "", False, False, 0
    while at < len(line):
        slashes = 0
        while at < len(line) and line[at] == "\\":
            slashes, at = slashes + 1, at + 1
        here = line[at : at + 1]
        if here == '"':
            word += "\\" * (slashes // 2)
            begun = True
            if slashes % 2:
                word += '"'
            elif quoted and line[at + 1 : at + 2] == '"':
                word += '"'
                at += 1
            else:
                quoted = not quoted
        else:
            word += "\\" * slashes
            begun = begun or bool(slashes)
            if here and here in " \t" and not quoted:
                if begun:
                    words.append(word)
                word, begun = "", False
            elif here:
                word, begun = word + here, True
        at += 1
    return (*words, word) if begun else tuple(words)


# What a process on Windows says of itself: its variables, as far as its own blocks lie in the memory at hand.
#
# ``PEB`` and ``RTL_USER_PROCESS_PARAMETERS``: Microsoft Learn for their beginnings, ntdll's symbols for the rest.
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
