"""TensorFlow's kernels in memory: the node and the op that one runs, and its input tensors.

``tensorflow::OpKernel`` holds the names of its node and op as two ``string_view`` side by side, the version of the
graph after them and the names of the inputs before them (core/framework/op_kernel.h). The executor keeps the context
of the running kernel on its stack (``OpKernelContext::Params``): the kernel, and some fields on the inputs. Where these
are differs between versions: they are searched for by their form, which must fit exactly.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.capture.linux.inspect import node_attributes
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.cxx_type_info import TypeInfo, TypeInfoReader
from necropsy.capture.process.eager_tensor import Tensor, tensor_at
from necropsy.capture.process.memory import Memory
from necropsy.model import Argument

IN_MEMORY = "the kernel object in memory"
"""How the operation is known."""
IN_KERNEL = "the kernel in memory"
"""Where the arguments of a call were read that no frame of Python makes."""
_KERNEL = "tensorflow::OpKernel"
_IDENTIFIER = re.compile(r"[A-Z_][\w>]{1,100}\Z")
_INPUT = re.compile(r"[a-z]\w{0,60}\Z")
_HIGHEST_VERSION = 100_000
_SEARCHED = 0x300
_LARGEST_STACK = 32 << 10
_MOST_INPUTS = 64
_PARAMS_SEARCHED = 0x180
_CONTEXT_SEARCHED = 64
"""Bytes of ``Params`` in which the pointer to the kernel is."""
_NAMES = 64
"""Bytes of a ``gtl::FlatMap`` of names: two of them stand before the node's name, the inputs' first."""
_BUCKET = 8 + 8 * 16 + 8 * 8
"""Of that map: eight marks, eight names, eight ranges."""
_USED = 2
"""The lowest mark of an entry that is in use."""


@dataclass(frozen=True)
class Kernel:
    """A kernel: its ``node``, its ``op``, and its inputs' names (a list's items numbered), None if unreadable."""

    address: int
    node: str
    op: str
    is_own: bool
    """It is TensorFlow's own kernel, none of a library that was loaded."""
    inputs: tuple[str, ...] | None


class KernelReader:
    """Reads the kernels of one process."""

    def __init__(self, memory: Memory, maps: MemoryMap, files: MappedFiles) -> None:
        self._memory, self._maps, self._files = memory, maps, files
        self._reader = TypeInfoReader(memory, maps)
        self._types: dict[int, TypeInfo | None] = {}

    def on_stack(self, low: int, high: int, wanted: str) -> Kernel | None:
        """The first kernel of class ``wanted``, or derived from it, that the stack at ``low`` to ``high`` points to."""
        seen: set[int] = set()
        for _, value in self._words(low, high):
            if value in seen or value % 8 or not 0x1000 <= value < 1 << 47:
                continue
            seen.add(value)
            if self._is_kernel(value, wanted) and (kernel := self._kernel(value)) is not None:
                return kernel
        return None

    def _is_kernel(self, address: int, wanted: str) -> bool:
        """Whether a kernel of class ``wanted`` is there. Other classes also have a ``Compute``: ``UnbatchResource``."""
        found = self._type_of(address)
        if found is None:
            return False
        names = {one.name for one in found.derivation()}
        return wanted in names and (_KERNEL in names or not found.is_whole)

    def inputs(self, kernel: Kernel, low: int, high: int) -> tuple[tuple[str, Tensor], ...] | None:
        """The inputs of ``kernel``, by the executor's frames from ``low`` to ``high``; None where they are not sure."""
        if not kernel.inputs:
            return None
        count = len(kernel.inputs)
        words = tuple(self._words(low, high))
        found = {each for at, value in words if value == kernel.address for each in self._given(at, count)}
        if not found:  # the context is on the heap, and the stack points to it
            places = dict.fromkeys(value for _, value in words if not low <= value < high and self._is_data(value))
            contexts = (at for place in places for at in self._pointing(place, kernel.address))
            found = {each for at in contexts for each in self._given(at, count)}
        return tuple(zip(kernel.inputs, found.pop(), strict=True)) if len(found) == 1 else None

    def attributes(self, kernel: Kernel) -> tuple[Argument, ...] | None:
        """The attributes of its node; None where they are not found."""
        return node_attributes.attributes(self._memory, kernel.address, self.classes_of)

    def classes_of(self, value: int) -> tuple[str, ...]:
        """The class of the object at ``value`` and its bases, by its type information; none where it has none."""
        found = self._type_of(value)
        return tuple(one.name for one in found.derivation()) if found is not None else ()

    def _type_of(self, value: int) -> TypeInfo | None:
        one = self._maps.at(value)
        if one is None or not one.writable or one.is_file:
            return None
        vtable = self._memory.u64(value)
        if vtable is None or self._files.at(vtable) is None:
            return None
        if vtable not in self._types:
            info = self._memory.u64(vtable - 8)
            self._types[vtable] = self._reader.at(info) if info and self._files.at(info) is not None else None
        return self._types[vtable]

    def _words(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        data = self._memory.some(low, min(high - low, _LARGEST_STACK))
        for at, (value,) in enumerate(struct.iter_unpack("<Q", data[: len(data) & ~7])):
            yield low + 8 * at, value

    def _pointing(self, place: int, kernel: int) -> Iterator[int]:
        """Which of the first fields of the object at ``place`` point to the kernel."""
        data = self._memory.some(place, _CONTEXT_SEARCHED)
        for at, (value,) in enumerate(struct.iter_unpack("<Q", data[: len(data) & ~7])):
            if value == kernel:
                yield place + 8 * at

    # ------------------------------------------------------------ the kernel

    def _kernel(self, address: int) -> Kernel | None:
        data = self._memory.some(address, _SEARCHED)
        for offset in range(8, len(data) - 39, 8):
            one, two, three, four, version = struct.unpack_from("<QQQQi", data, offset)
            if not 0 <= version < _HIGHEST_VERSION:
                continue
            # std::string_view of libstdc++ begins with the length, absl::string_view with the address.
            for name_size, name_at, type_size, type_at in ((one, two, three, four), (two, one, four, three)):
                if not (0 < name_size <= 400 and 1 < type_size <= 100):
                    continue
                name, kind = self._text(name_at, name_size), self._text(type_at, type_size)
                if name and kind and _IDENTIFIER.match(kind):
                    length_first = name_size == one
                    inputs = self._names(address + offset - 2 * _NAMES, length_first=length_first)
                    return Kernel(address, name, kind, self._is_own(address), inputs)
        return None

    def _is_own(self, address: int) -> bool:
        file = self._files.at(self._memory.u64(address) or 0)
        return file is not None and "tensorflow" in file.name

    def _names(self, at: int, *, length_first: bool) -> tuple[str, ...] | None:
        """The names of a ``NameRangeMap``, one for each position."""
        head = self._memory.exactly(at, 24)
        if head is None:
            return None
        power, array, end = _head(head)
        if power > 4 or end - array != _BUCKET << power:
            return None
        ranges: dict[int, tuple[int, str]] = {}
        for bucket in range(array, end, _BUCKET):
            data = self._memory.exactly(bucket, _BUCKET)
            if data is None:
                return None
            for place in (place for place in range(8) if data[place] >= _USED):
                pair = struct.unpack_from("<QQ", data, 8 + 16 * place)
                size, text_at = pair if length_first else pair[::-1]
                first, last = struct.unpack_from("<ii", data, 8 + 8 * 16 + 8 * place)
                name = self._text(text_at, size) if size <= 60 else None
                if name is None or not _INPUT.match(name) or not 0 <= first <= last <= _MOST_INPUTS:
                    return None
                if last > first:
                    ranges[first] = last, name
        return _flat(ranges)

    def _text(self, address: int, size: int) -> str | None:
        data = self._memory.exactly(address, size)
        return data.decode() if data and data.isascii() and data.decode().isprintable() else None

    # ------------------------------------------------------------ what it was given

    def _given(self, at: int, count: int) -> Iterator[tuple[Tensor, ...]]:
        """Tensors that the fields after ``Params::op_kernel`` at ``at`` lead to, ``count`` of them."""
        data = self._memory.some(at, _PARAMS_SEARCHED)
        for offset in range(8, len(data) - 15, 8):
            first, second = struct.unpack_from("<QQ", data, offset)
            places = [first] if second == count else []  # absl::Span
            head = self._memory.exactly(first, 16) if not places and self._is_data(first) else None
            if head is not None:  # a pointer to an absl::InlinedVector
                tag, inner = struct.unpack("<QQ", head)
                places = [inner if tag & 1 else first + 8] if tag >> 1 == count else []
            for place in places:
                tensors = self._tensors(place, count)
                if tensors is not None:
                    yield tensors

    def _tensors(self, at: int, count: int) -> tuple[Tensor, ...] | None:
        """An array of ``TensorValue``: a lock, which is null but for references, and the tensor."""
        data = self._memory.exactly(at, 16 * count) if self._is_data(at) else None
        if data is None:
            return None
        found = []
        for _, address in struct.iter_unpack("<QQ", data):
            tensor = tensor_at(self._memory, address) if self._is_data(address) else None
            if tensor is None:
                return None
            found.append(tensor)
        return tuple(found)

    def _is_data(self, address: int) -> bool:
        one = self._maps.at(address) if address and address % 8 == 0 else None
        return one is not None and one.writable and not one.is_file


def _head(data: bytes) -> tuple[int, int, int]:
    """Of a ``FlatRep``: how many buckets it has, as a power of two, and where they begin and end."""
    array, end = struct.unpack_from("<QQ", data, 8)
    return data[2], array, end


def _flat(ranges: dict[int, tuple[int, str]]) -> tuple[str, ...] | None:
    """A name for each position, if they follow each other without a gap."""
    names: list[str] = []
    for first, (last, name) in sorted(ranges.items()):
        if first != len(names):
            return None
        names += [name] if last - first == 1 else [f"{name}[{at}]" for at in range(last - first)]
    return tuple(names)
