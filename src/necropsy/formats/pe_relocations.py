"""Base relocations of an image that is loaded at another address. Layout: "PE Format", section ".reloc"."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.formats.pe import Image

_DIRECTORY = 5
_PAGE = 4096
_DIR64 = 10
_MOST_BLOCKS = 1 << 20
_U64 = struct.Struct("<Q")


class Relocations:
    """The places in one image that hold addresses; the list of pages is read at the first question."""

    def __init__(self, image: Image, base: int) -> None:
        """``base``: where the image is loaded."""
        self._image, self._moved = image, base - image.image_base
        self._pages: dict[int, tuple[int, int]] | None = None

    def some(self, rva: int, size: int) -> bytes:
        """As ``Image.some``, with addresses as they are where it is loaded."""
        data = self._image.some(rva, size)
        if not self._moved or not data:
            return data
        if self._pages is None:
            self._pages = self._blocks()
        places = [
            at
            for page in range(rva - 7 & -_PAGE, rva + len(data), _PAGE)
            for at in self._in_page(page)
            if rva - 8 < at < rva + len(data)
        ]
        if not places:
            return data
        changed = bytearray(data)
        for at in places:
            word = self._image.at(at, 8)
            if word is None:
                continue
            moved = _U64.pack(_U64.unpack(word)[0] + self._moved & (1 << 64) - 1)
            skipped = max(rva - at, 0)
            start = max(at - rva, 0)
            piece = moved[skipped : skipped + len(changed) - start]
            changed[start : start + len(piece)] = piece
        return bytes(changed)

    def places(self) -> Iterator[int]:
        """Where all of them are, as RVAs."""
        if self._pages is None:
            self._pages = self._blocks()
        for page in self._pages:
            yield from self._in_page(page)

    def _blocks(self) -> dict[int, tuple[int, int]]:
        at, size = self._image.directory(_DIRECTORY)
        end = at + size
        pages: dict[int, tuple[int, int]] = {}
        for _ in range(_MOST_BLOCKS):
            head = self._image.at(at, 8) if at + 8 <= end else None
            if head is None:
                break
            page, count = struct.unpack("<II", head)
            if count < 8:
                break
            pages[page] = at + 8, count - 8
            at += count
        return pages

    def _in_page(self, page: int) -> list[int]:
        at, size = (self._pages or {}).get(page, (0, 0))
        rows = self._image.some(at, min(size, 2 * _PAGE)) if size else b""
        entries = struct.unpack(f"<{len(rows) // 2}H", rows[: len(rows) & ~1])
        return [page + (entry & 0xFFF) for entry in entries if entry >> 12 == _DIR64]
