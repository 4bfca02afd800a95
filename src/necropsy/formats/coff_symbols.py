"""COFF symbol table of a PE file, as MinGW writes it. Layout: "PE Format", section "COFF Symbol Table"."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from necropsy.formats.pe import Image

_ROW = struct.Struct("<8sIHHBB")
_MOST_ROWS = 4 << 20
_AT_ONCE = 65536
_EXTERNAL, _STATIC = 2, 3
_FUNCTION = 0x20
_LONGEST_NAME = 16_384


class CoffSymbols:
    """The functions of one file, by address; names are read when they are asked for."""

    def __init__(self, image: Image) -> None:
        """Read the table of an image in a file; where it is cut off, what there is."""
        self._image = image
        start, count = image.symbol_table
        self._strings = start + _ROW.size * count
        code = {number: one.rva for number, one in enumerate(image.sections, 1) if one.executable}
        found: list[tuple[int, int]] = []
        left_out = 0
        """Rows that belong to the symbol before."""
        for first in range(0, min(count, _MOST_ROWS), _AT_ONCE):
            at = start + _ROW.size * first
            rows = image.raw(at, _ROW.size * min(_AT_ONCE, count - first))
            for index in range(len(rows) // _ROW.size):
                if left_out:
                    left_out -= 1
                    continue
                _, value, section, kind, storage, left_out = _ROW.unpack_from(rows, _ROW.size * index)
                # What is written in assembly has no kind; but static symbols without one are sections.
                named = (storage == _EXTERNAL and kind in {0, _FUNCTION}) or (storage == _STATIC and kind == _FUNCTION)
                if named and section in code:
                    found.append((code[section] + value, at + _ROW.size * index))
            if len(rows) < _ROW.size * _AT_ONCE:
                break
        found.sort()
        self._rvas = array("Q", (rva for rva, _ in found))
        self._rows = array("Q", (row for _, row in found))

    def function_before(self, rva: int, begin: int = 0) -> tuple[int, str] | None:
        """The function that begins last in ``[begin, rva]``: its RVA and its name. The first of several names there."""
        index = bisect_right(self._rvas, rva) - 1
        if index < 0 or self._rvas[index] < begin:
            return None
        while index and self._rvas[index - 1] == self._rvas[index]:
            index -= 1
        name = self._name(self._rows[index])
        return (self._rvas[index], name) if name else None

    def _name(self, row: int) -> str | None:
        raw = self._image.raw(row, 8)
        if len(raw) < 8:
            return None
        zeros, offset = struct.unpack("<II", raw)
        data = raw + b"\0" if zeros else self._image.raw(self._strings + offset, _LONGEST_NAME)
        end = data.find(b"\0")
        return data[:end].decode("utf-8", "replace") if end > 0 else None
