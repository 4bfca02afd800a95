"""The cells that a watched kernel ran, in a map that it shares with its companion: which one runs, and its text.

``kernel_extension`` writes it: three 64-bit words (where the record of the running cell is, 0 for none; the end of all
records; 1 once Jupyter has asked the kernel to end), and from byte 32 on the records, each a 32-bit length and JSON.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

SIZE = 8 << 20
"""A page of it takes memory once it is written to."""
_FIRST = 32
_WORDS = struct.Struct("=QQQ")
_LENGTH = struct.Struct("=I")
_IPYTHON = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")
_SEED = 0xC70F6907


@dataclass(frozen=True)
class Cell:
    """A cell that ran."""

    count: int
    code: str
    header: dict[str, Any]
    """The header of the front end's request, by which a message is shown below the cell."""

    def line(self, number: int) -> str | None:
        """A line of the cell, counted from 1."""
        lines = self.code.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else None


@dataclass(frozen=True)
class CellLog:
    """What the kernel had written when it ended."""

    cells: tuple[Cell, ...] = ()
    running: Cell | None = None
    asked_to_end: bool = False

    def find(self, source: str) -> Cell | None:
        """The cell that was compiled under this file name; the latest, where a cell ran several times."""
        if (match := _IPYTHON.fullmatch(source)) is not None:
            return next((one for one in self.cells if one.count == int(match[1])), None)
        path = PurePath(source)
        if not path.parent.name.startswith("ipykernel_"):
            return None
        return next((one for one in reversed(self.cells) if file_stem(one.code) == path.stem), None)


def create() -> int:
    """An empty log, as a file descriptor."""
    handle = os.memfd_create("necropsy-cells", os.MFD_CLOEXEC)
    os.ftruncate(handle, SIZE)
    return handle


def read(handle: int) -> CellLog:
    """The log; what is damaged in it, by a program that wrote all over its memory, is left out."""
    size = os.fstat(handle).st_size
    if size < _FIRST:
        return CellLog()
    running, end, asked = _WORDS.unpack(os.pread(handle, _WORDS.size, 0))
    data = os.pread(handle, min(end, size, SIZE), 0)
    cells: dict[int, Cell] = {}
    place = _FIRST
    while place + _LENGTH.size <= len(data):
        length = _LENGTH.unpack_from(data, place)[0]
        text = data[place + _LENGTH.size : place + _LENGTH.size + length]
        cell = _cell(text) if len(text) == length else None
        if cell is None:
            break
        cells[place] = cell
        place += _LENGTH.size + length
    return CellLog(tuple(cells.values()), cells.get(running), asked != 0)


def _cell(text: bytes) -> Cell | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    match record.get("count"), record.get("code"), record.get("header"):
        case int(count), str(code), dict(header):
            return Cell(count, code, header)
        case _:
            return None


def file_stem(code: str) -> str:
    """The name of the file under which ipykernel compiles a cell: MurmurHash2 of its text."""
    data, mask, factor = code.encode("utf-8", "surrogatepass"), 0xFFFFFFFF, 0x5BD1E995
    found = _SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * factor & mask
        mixed = (mixed ^ mixed >> 24) * factor & mask
        found = (found * factor & mask) ^ mixed
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return str(found ^ found >> 15)
