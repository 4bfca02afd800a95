"""The user's lines behind the code that TensorFlow's autograph generates: its file is gone when the run is over.

The generated function carries its ``ag_source_map``, a dict of ``LineLocation(filename, lineno)`` to
``OriginInfo(loc=Location(filename, lineno, col_offset), function_name, ...)`` (autograph/pyct/origin_info.py). It is
read from memory, of CPython 3.11 to 3.13, whose frames know their function.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_attributes import dict_entries
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.model import Frame

GENERATED = "__autograph_generated_file"
_FUNCTION_DICT = 88
_LONGEST_PATH = 4096
_Place = tuple[str, int]


def with_origins(
    memory: Memory, standing: Sequence[Standing], python: tuple[Frame, ...], deadline: float
) -> tuple[Frame, ...]:
    """``python`` with the user's source and line in the place of generated ones, as far as they are mapped.

    ``standing``: the thread's frames in memory, innermost first; ``deadline``: monotonic, in seconds.
    """
    if not standing or standing[0].layout.counts:
        return python
    reader = _Maps(memory, tagged=standing[0].layout.code == 0)
    origins: dict[_Place, tuple[str, int, str | None]] = {}
    wanted = {(one.source, one.line) for one in python if one.source and GENERATED in one.source and one.line}
    generated = (one for one in standing if one.source is not None and GENERATED in one.source)
    for at, origin in (each for one in generated for each in reader.of_frame(one)):
        if at in wanted:
            origins[at] = origin
        if len(origins) == len(wanted) or time.monotonic() > deadline:
            break
    return tuple(_mapped(one, origins) for one in python)


def _mapped(frame: Frame, origins: dict[_Place, tuple[str, int, str | None]]) -> Frame:
    found = origins.get((frame.source or "", frame.line or 0))
    if found is None:
        return frame
    source, line, function = found
    return msgspec.structs.replace(frame, source=source, line=line, function=function or frame.function)


class _Maps:
    def __init__(self, memory: Memory, *, tagged: bool) -> None:
        self._memory = memory
        self._objects = ObjectReader(memory, tagged=tagged)
        self._function = 16 if tagged else 0

    def of_frame(self, frame: Standing) -> Iterator[tuple[_Place, tuple[str, int, str | None]]]:
        function = self._memory.u64(frame.address + self._function) or 0
        if self._name(function) != "function":
            return
        attributes = self._memory.u64(function + _FUNCTION_DICT) or 0
        for key, value in self._entries(attributes):
            if self._objects.text(key) != "ag_source_map":
                continue
            for generated, origin in self._entries(value):
                at, found = self._place(generated), self._origin(origin)
                if at is not None and found is not None:
                    yield at, found

    def _name(self, address: int) -> str | None:
        kind = self._objects.type_of(address)
        return kind.name if kind is not None else None

    def _entries(self, address: int) -> Iterator[tuple[int, int]]:
        return dict_entries(self._memory, self._objects, address)

    def _items(self, address: int) -> tuple[int, ...]:
        kind = self._objects.type_of(address)
        return (self._objects.items(address, kind) or ()) if kind is not None else ()

    def _place(self, address: int) -> _Place | None:
        """Of a ``LineLocation`` or a ``Location``."""
        items = self._items(address)
        if len(items) not in {2, 3}:
            return None
        path = self._objects.text(items[0], _LONGEST_PATH)
        line = self._objects.argument("line", items[1])
        if not path or line is None or line.type != "int" or line.value is None or int(line.value) < 1:
            return None
        return path, int(line.value)

    def _origin(self, address: int) -> tuple[str, int, str | None] | None:
        items = self._items(address)
        place = self._place(items[0]) if len(items) == 4 else None
        return (*place, self._objects.text(items[1])) if place is not None else None
