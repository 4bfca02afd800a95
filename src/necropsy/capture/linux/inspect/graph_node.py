"""The lines of Python that put a node into TensorFlow's graph, from the stack trace that the graph keeps.

A ``FuncGraph`` of Python points to the ``Graph`` of C++, whose vector of nodes is known by its form: a node's number is
its place in it. A node points to its ``StackTraceWrapper`` (python/util/tf_stack.cc), which is known by its type
information; it holds code objects with a line each, and the map from autograph's generated lines to the user's. Seen
in TensorFlow 2.20; where a version keeps these elsewhere, nothing is found. Since CPython 3.11 the numbers are lines,
before it they were instructions, which are not read.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.op_kernel import KernelReader
from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.cpython_offsets import Layout
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_attributes import attributes
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.model import Frame

_GRAPH = "FuncGraph"
_HOLDERS = {"ConcreteFunction", "OwnedIterator", "DatasetV2", "Function", "StructuredFunctionWrapper"}
"""Classes of Python whose objects hold a graph, or another one of these."""
_MOST_OBJECTS, _MOST_GRAPHS = 200, 32
_HOLDER_SEARCHED = 1024
"""Bytes of the object of C++ that the graph of Python points to; the graph is a part of it."""
_MOST_NODES, _FEWEST_NODES = 100_000, 3
_NUMBERS_AT = (16, 0)
"""Where a node has its number: in TensorFlow 2.20, and in versions before the trace stood first."""
_NODE_SEARCHED = 320
_DEFINITION = "tensorflow::NodeDef"
_TRACE = "tensorflow::AbstractStackTrace"
_LONGEST_TRACE, _TRACE_SEARCHED = 200, 128
_MOST_MAPPED = 2_000
_LONGEST_PATH = 4096
_Place = tuple[str, int]


class NodeReader:
    """Finds where the nodes of one process come from. ``deadline``: monotonic, in seconds."""

    def __init__(
        self, memory: Memory, maps: MemoryMap, kernels: KernelReader, standing: Sequence[Standing], deadline: float
    ) -> None:
        self._memory, self._maps, self._kernels, self._deadline = memory, maps, kernels, deadline
        self._standing = standing
        self._tagged = bool(standing) and standing[0].layout.code == 0
        self._objects = ObjectReader(memory, tagged=self._tagged)

    def origin(self, node: str, op: str) -> tuple[Frame, ...]:
        """The stack of Python that made a node, innermost first; empty where it is not found, or not for certain."""
        if not self._standing or self._standing[0].layout.counts:
            return ()
        layout = self._standing[0].layout
        found = set()
        for graph in self._graphs():
            for trace in self._traces(graph, node, op):
                frames = self._frames(trace, layout)
                if frames:
                    found.add(frames)
        return found.pop() if len(found) == 1 else ()

    # ------------------------------------------------------------ the graphs

    def _graphs(self) -> Iterator[int]:
        """The graphs that the objects hold whose methods run."""
        seen: set[int] = set()
        waiting = [one for frame in self._standing for one in self._self_of(frame)]
        count = 0
        for address in waiting:
            if address in seen or len(seen) > _MOST_OBJECTS or time.monotonic() > self._deadline:
                continue
            seen.add(address)
            for value in attributes(self._memory, self._objects, address):
                kind = self._objects.type_of(value)
                if kind is None or value in seen:
                    continue
                if kind.is_a(_GRAPH):
                    seen.add(value)
                    count += 1
                    if count <= _MOST_GRAPHS:
                        yield value
                elif kind.is_a(*_HOLDERS):
                    waiting.append(value)

    def _self_of(self, frame: Standing) -> Iterator[int]:
        first = self._memory.u64(frame.address + frame.layout.variables)
        kind = self._objects.type_of(first) if first else None
        if first and kind is not None and kind.is_a(*_HOLDERS):
            yield first

    # ------------------------------------------------------------ the node

    def _traces(self, graph: int, node: str, op: str) -> Iterator[int]:
        """Stack traces of the node in the graph of a ``FuncGraph``; an inlined node has a prefix there."""
        numbers, nodes = self._nodes(graph)
        definition = self._definition(nodes)
        if definition is None:
            return
        for at in nodes:
            if time.monotonic() > self._deadline:
                return
            texts = tuple(self._texts(at, definition))
            if any(kind == op and f"/{node}".endswith(f"/{name}") for name, kind in pairwise(texts)):
                # The next node may follow at once, with a trace of its own.
                words = self._words(at, 8) if numbers else self._words(at + definition + 16, 40)
                yield from (word for word in words if _TRACE in self._kernels.classes_of(word))

    def _nodes(self, graph: int) -> tuple[int, tuple[int, ...]]:
        """The nodes of a ``FuncGraph``, and the offset of a node's number."""
        kind = self._objects.type_of(graph)
        for holder in self._words(graph, kind.size) if kind is not None else ():
            if not self._is_data(holder) or self._objects.type_of(holder) is not None:
                continue
            words = self._words(holder, _HOLDER_SEARCHED)
            for at in range(len(words) - 2):
                found = self._vector(*words[at : at + 3])
                # Edges are numbered in the same way.
                if found is not None and self._definition(found[1]) is not None:
                    return found
        return 0, ()

    def _vector(self, begin: int, end: int, limit: int) -> tuple[int, tuple[int, ...]] | None:
        """Nodes, whose numbers are their places in the vector; gaps are removed nodes."""
        count = (end - begin) // 8
        if not _FEWEST_NODES <= count <= _MOST_NODES or end > limit or (begin | end | limit) % 8:
            return None
        if limit - end > 8 * _MOST_NODES or not self._is_data(begin) or not self._is_data(end - 8):
            return None
        data = self._memory.exactly(begin, 8 * count)
        pointers = struct.unpack(f"<{count}Q", data) if data is not None else ()
        if not pointers or not pointers[0] or not pointers[1]:
            return None
        for numbers in _NUMBERS_AT:
            if all(
                not one or (self._is_data(one) and self._memory.u32(one + numbers) == at)
                for at, one in enumerate(pointers)
            ):
                return numbers, tuple(one for one in pointers if one)
        return None

    def _texts(self, node: int, definition: int) -> Iterator[str]:
        """The strings of a node's definition: its name, then its op. ``definition``: offset of its properties."""
        properties = self._memory.u64(node + definition) or 0
        for (pointer,) in struct.iter_unpack("<Q", self._memory.exactly(properties + 8, 160) or b""):
            text = self._string(pointer & ~3)
            if text:
                yield text

    def _definition(self, nodes: Sequence[int]) -> int | None:
        """Where a node points to its ``NodeProperties``: they begin with the op, and the ``NodeDef`` follows."""
        for node in nodes[:_FEWEST_NODES]:
            for at, word in enumerate(self._words(node, _NODE_SEARCHED)):
                if self._is_data(word) and _DEFINITION in self._kernels.classes_of(word + 8):
                    return 8 * at
        return None

    def _string(self, at: int) -> str | None:
        head = self._memory.exactly(at, 16) if self._is_data(at) else None
        begin, size = struct.unpack("<QQ", head) if head is not None else (0, 0)
        if not 0 < size <= _LONGEST_PATH or not self._is_text(begin):
            return None
        data = self._memory.exactly(begin, size + 1)
        return data[:-1].decode() if data and data[-1] == 0 and data.isascii() and 0 not in data[:-1] else None

    # ------------------------------------------------------------ its trace

    def _frames(self, trace: int, layout: Layout) -> tuple[Frame, ...]:
        words = self._words(trace, _TRACE_SEARCHED)
        calls = next((one for each in (trace, *words) if (one := self._calls(each))), None)
        if calls is None:
            return ()
        maps: dict[_Place, tuple[str, int, str]] = {}
        for word in words:
            maps |= dict(self._source_map(word)) if self._is_data(word) else {}
        frames = []
        for at, (code, line) in enumerate(calls):
            source = self._objects.text(self._memory.u64(code + layout.file_name) or 0, _LONGEST_PATH)
            function = self._objects.text(self._memory.u64(code + layout.name) or 0)
            told = maps.get((source or "", line), (source, line, function))
            frames.append(Frame(index=at, kind="python", function=told[2], source=told[0], line=told[1]))
        return tuple(frames)

    def _words(self, at: int, size: int) -> tuple[int, ...]:
        data = self._memory.some(at, size)
        return struct.unpack(f"<{len(data) // 8}Q", data[: len(data) & ~7])

    def _calls(self, at: int) -> list[tuple[int, int]] | None:
        """An ``absl::InlinedVector`` of code objects with their lines in the object at ``at``."""
        if not self._is_data(at):
            return None
        words = self._words(at, _TRACE_SEARCHED)
        for place, tag in enumerate(words[:-1]):
            size, where = tag >> 1, words[place + 1] if tag & 1 else at + 8 * place + 8
            data = self._memory.exactly(where, 16 * size) if 1 < size <= _LONGEST_TRACE and where % 8 == 0 else None
            if data is None:
                continue
            calls = [(code, line) for code, line, _ in struct.iter_unpack("<Qii", data)]
            if all(line > 0 and self._is_code(code) for code, line in calls):
                return calls
        return None

    def _is_code(self, address: int) -> bool:
        kind = self._objects.type_of(address)
        return kind is not None and kind.name == "code"

    def _source_map(self, at: int) -> Iterator[tuple[_Place, tuple[str, int, str]]]:
        """A ``std::unordered_map`` of a file and line to a file, line and function."""
        head = self._words(at, 32)
        if len(head) < 4 or not 0 < head[3] <= _MOST_MAPPED:
            return
        node = head[2]
        for _ in range(head[3]):
            data = self._memory.exactly(node, 120) if self._is_data(node) else None
            key, source, name = (self._string(node + start) for start in (8, 48, 88)) if data else (None, None, None)
            if data is None or key is None or source is None:
                return
            (line,), (own,) = struct.unpack_from("<i", data, 40), struct.unpack_from("<i", data, 80)
            yield (key, line), (source, own, name or "")
            (node,) = struct.unpack_from("<Q", data)

    def _is_data(self, address: int) -> bool:
        return address % 8 == 0 and self._is_text(address)

    def _is_text(self, address: int) -> bool:
        one = self._maps.at(address) if 0x1000 <= address < 1 << 47 else None
        return one is not None and one.writable and not one.is_file
