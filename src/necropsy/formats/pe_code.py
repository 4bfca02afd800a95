"""Machine code of a 64-bit PE library, and where its calls to other DLLs go through. Addresses are RVAs.

Layouts of the import address table and base relocations: Microsoft's "PE Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

from necropsy.formats import pe_imports
from necropsy.formats.pe import Image
from necropsy.formats.pe_relocations import Relocations


class PeCode:
    """One image; see ``call_graph.MachineCode``."""

    has_leaves = True

    def __init__(self, image: Image) -> None:
        self._image = image

    def some(self, address: int, size: int) -> bytes:
        """The bytes at ``address``, as they are when the image is loaded."""
        return self._image.some(address, size)

    def slot(self, address: int) -> tuple[str, int] | None:
        """The imported function whose address the loader writes to ``address``."""
        name = self._slots.get(address)
        return (name, 0) if name is not None else None

    def addresses(self) -> Iterator[int]:
        """What the loader changes where the image is not loaded where its linker wanted it."""
        for place in Relocations(self._image, self._image.image_base).places():
            data = self._image.at(place, 8)
            if data is not None:
                yield struct.unpack("<Q", data)[0] - self._image.image_base

    @cached_property
    def _slots(self) -> dict[int, str]:
        return {
            address: wanted if isinstance(wanted, str) else f"{dll}!#{wanted}"
            for address, dll, wanted in pe_imports.slots(self._image)
        }
