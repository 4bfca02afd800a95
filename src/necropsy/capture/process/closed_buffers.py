"""Python variables whose memory is gone or explains it: arrays whose data are there, and mappings that were closed.

CPython 3.8 to 3.13 (``Modules/mmapmodule.c``: a closed ``mmap`` has lost its address and keeps its size), and
``multiprocessing.shared_memory``, which drops its mapping when it is closed.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from necropsy.capture.process.call_arguments import variables
from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Mappings, Memory
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.capture.process.unmapped_owner import Candidate
from necropsy.model import Address, Former

_MOST_VARIABLES = 2000
_OPTIMIZED = 1
_PAGE = 4096
_HEAD = 16
_LARGEST_RANK, _LARGEST = 32, 1 << 47
_SHARED = "SharedMemory"


@dataclass(frozen=True)
class Array:
    """An array of NumPy's: the variable that holds it, and where its data are; a view of others may reach further."""

    name: str
    low: int
    size: int


@dataclass(frozen=True)
class Closed:
    """A mapping that was closed: ``kind`` as its class is called, ``name`` of shared memory."""

    variable: str
    kind: str
    size: int
    name: str | None = None


@dataclass(frozen=True)
class Seen:
    """What the variables of some frames tell."""

    arrays: tuple[Array, ...] = ()
    closed: tuple[Closed, ...] = ()

    def candidates(self) -> Iterator[Candidate]:
        """The addresses of the arrays."""
        for one in self.arrays:
            yield Candidate(one.low, f"the array `{one.name}`")


def look(memory: Memory, values: Values, frames: Sequence[Standing]) -> Seen:
    """What the variables of these frames tell, the innermost first."""
    arrays: dict[int, Array] = {}
    closed: dict[int, Closed] = {}
    for name, address in itertools.chain.from_iterable(_variables(memory, values, one) for one in frames):
        kind = values.type_name(address)
        if kind == "numpy.ndarray" and (array := _array(memory, name, address)) is not None:
            arrays[address] = array  # the outer frame's name is the user's
        elif kind == "mmap.mmap":
            head = memory.exactly(address + _HEAD, 16)
            data, size = struct.unpack("<QQ", head) if head is not None else (1, 0)
            if data == 0 and size:
                closed.setdefault(address, Closed(name, "mmap.mmap", size))
        elif kind == _SHARED and (shared := _shared(values, name, address)) is not None:
            closed.setdefault(address, shared)
    return Seen(tuple(arrays.values()), tuple(closed.values()))


def _variables(memory: Memory, values: Values, frame: Standing) -> Iterator[tuple[str, int]]:
    flags = memory.u32(frame.code + frame.layout.flags)
    if flags is None:
        return
    if flags & _OPTIMIZED:
        yield from variables(memory, ObjectReader(memory, tagged=frame.layout.tagged), frame, parameters_only=False)
        return
    namespace = memory.u64(frame.address + frame.layout.namespace)
    if not namespace or values.type_name(namespace) != "dict":
        return
    for key, value in itertools.islice(values.entries(namespace), _MOST_VARIABLES):
        name = values.text(key)
        if name and not name.startswith("__"):
            yield name, value


def _array(memory: Memory, name: str, address: int) -> Array | None:
    """``PyArrayObject_fields``: of a view with negative strides the data begin before its address."""
    head = memory.exactly(address + _HEAD, 48)
    if head is None:
        return None
    data, rank, _pad, dimensions, strides, _base, kind = struct.unpack("<QiiQQQQ", head)
    if not 0 < rank <= _LARGEST_RANK or not data:
        return None
    sizes, steps = memory.exactly(dimensions, 8 * rank), memory.exactly(strides, 8 * rank)
    if sizes is None or steps is None or not kind:
        return None
    pairs = list(zip(struct.unpack(f"<{rank}q", sizes), struct.unpack(f"<{rank}q", steps), strict=True))
    if any(count <= 0 for count, _ in pairs):
        return None
    low = data + sum(step * (count - 1) for count, step in pairs if step < 0)
    high = data + sum(step * (count - 1) for count, step in pairs if step > 0) + 1
    return Array(name, low, high - low) if 0 < low < high < _LARGEST else None


def _shared(values: Values, name: str, address: int) -> Closed | None:
    found = values.attributes(address, ("_mmap", "_size", "_name"))
    mapped, size = found.get("_mmap"), found.get("_size")
    number = values.int_of(size) if size is not None and values.type_name(size) == "int" else None
    if mapped is None or values.type_name(mapped) != "NoneType" or number is None:
        return None
    return Closed(name, _SHARED, int(number), values.text(found["_name"]) if "_name" in found else None)


def of_variables(seen: Seen, maps: Mappings, address: int, candidates: Sequence[Candidate]) -> Former | None:
    """A closed mapping to whose address something leads: the beginning of an array's data, or a register."""
    array = next((one for one in seen.arrays if one.low <= address < one.low + one.size), None)
    starts = [Candidate(array.low, f"the array `{array.name}`")] if array is not None else candidates
    largest = max((one.size for one in seen.closed), default=0)
    fits = [
        one
        for one in starts
        if one.value % _PAGE == 0 and one.value and maps.at(one.value) is None and one.value <= address
    ]
    if array is None:
        fits = [one for one in fits if address - one.value < largest]
    if not fits:
        return None
    start = max(fits, key=lambda one: one.value)
    needed = array.size if array is not None else address - start.value + 1
    owners = [one for one in seen.closed if one.size >= needed]
    said = (
        f"{start.holder} = {start.value:#x}, the beginning of a page, as a mapping of a file or of shared memory begins"
    )
    if owners:
        said += "; closed and large enough: " + ", ".join(_in_words(one) for one in owners[:3])
    only = owners[0] if len(owners) == 1 else None
    return Former(
        kind="mmap",
        name=_in_words(only) if only is not None else None,
        low=Address(start.value),
        high=Address(start.value + only.size) if only is not None else None,
        holder=start.holder,
        seen=said,
        where="variables and registers",
    )


def _in_words(one: Closed) -> str:
    name = f" {one.name}" if one.name else ""
    return f"`{one.variable}` ({one.kind}{name}, {one.size:,} bytes)"
