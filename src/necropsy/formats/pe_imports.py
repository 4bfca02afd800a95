"""What a PE image imports from each DLL, and whether another image exports it.

Layouts of the import lookup table and the export directory: Microsoft's "PE Format". As the loader does it, the sorted
table of names is bisected in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.formats.pe import Image

_EXPORT, _IMPORT = 0, 1
_ROW = struct.Struct("<5I")
_MOST_DLLS, _MOST_WANTED = 4096, 1 << 16


def wanted(image: Image) -> Iterator[tuple[str, str | int]]:
    """Each function that is imported, in order: the DLL, and the function's name or its ordinal."""
    return ((dll, one) for _, dll, one in slots(image))


def slots(image: Image) -> Iterator[tuple[int, str, str | int]]:
    """As ``wanted``, each with the RVA that the loader writes the function's address to."""
    start, size = image.directory(_IMPORT)
    left = _MOST_WANTED
    for index in range(_MOST_DLLS if size else 0):
        row = image.at(start + _ROW.size * index, _ROW.size)
        if row is None or not any(row):
            return
        lookup, _, _, name, addresses = _ROW.unpack(row)
        dll = image.text(name)
        # Without a lookup table (Borland's linker) the addresses replace it, until they are bound.
        for place, one in _looked_up(image, lookup or addresses, left) if dll else ():
            left -= 1
            yield addresses + place, dll or "", one
        if left <= 0:
            return


def _looked_up(image: Image, at: int, most: int) -> Iterator[tuple[int, str | int]]:
    """What each row of a table names, and the row's offset in bytes."""
    width = 8 if image.is_64 else 4
    by_number = 1 << (8 * width - 1)
    for index in range(most):
        data = image.at(at + width * index, width)
        entry = int.from_bytes(data or b"", "little")
        if not entry:
            return
        if entry & by_number:
            yield width * index, entry & 0xFFFF
        elif (text := image.text((entry & 0x7FFFFFFF) + 2)) is not None:  # behind a hint of two bytes
            yield width * index, text


class Exports:
    """What an image offers, by name and by number, other images' functions that it passes on among them."""

    def __init__(self, image: Image) -> None:
        """Of an image without exports, nothing is offered."""
        self._image = image
        start, size = image.directory(_EXPORT)
        header = image.at(start, 40) if size >= 40 else None
        fields = struct.unpack_from("<6I", header, 16) if header is not None else (0,) * 6
        self._first, self._count, self._named, self._functions, self._names, _ = fields

    def offers(self, function: str | int) -> bool | None:
        """It has this function; None where its tables cannot be read."""
        if isinstance(function, int):
            index = function - self._first
            if not 0 <= index < self._count:
                return False
            data = self._image.at(self._functions + 4 * index, 4)
            return None if data is None else any(data)
        low, high = 0, self._named
        while low < high:
            middle = (low + high) // 2
            data = self._image.at(self._names + 4 * middle, 4)
            name = self._image.text(int.from_bytes(data, "little")) if data is not None else None
            if name is None:
                return None
            if name == function:
                return True
            # By their bytes, as linkers sort them.
            if name.encode("utf-8", "replace") < function.encode("utf-8", "replace"):
                low = middle + 1
            else:
                high = middle
        return False
