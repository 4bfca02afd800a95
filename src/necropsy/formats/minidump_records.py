"""What a minidump says, as values. Layouts and meanings: Microsoft Learn, ``minidumpapiset.h``."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from mmap import mmap
from typing import NamedTuple

Data = bytes | mmap
"""The whole file; one that is mapped is read where it is looked at only."""

ARCHITECTURES = {
    0: "x86",
    1: "MIPS",
    2: "Alpha",
    3: "PowerPC",
    5: "ARM",
    6: "IA-64",
    9: "x64",
    12: "ARM64",
    0x8001: "SPARC",
    0x8002: "PowerPC 64",
    0x8003: "ARM64",
    0x8004: "MIPS64",
    0x8005: "RISC-V",
    0x8006: "RISC-V 64",
}
"""``PROCESSOR_ARCHITECTURE_*`` of winnt.h, and those that Breakpad added (``minidump_cpu_*.h``)."""
WINDOWS, LINUX, ANDROID = 2, 0x8201, 0x8203
PLATFORMS = {
    0: "Windows",
    1: "Windows",
    WINDOWS: "Windows",
    3: "Windows CE",
    0x8000: "Unix",
    0x8101: "macOS",
    0x8102: "iOS",
    LINUX: "Linux",
    0x8202: "Solaris",
    ANDROID: "Android",
    0x8204: "PlayStation 3",
    0x8205: "Native Client",
    0x8206: "Fuchsia",
}
"""``VER_PLATFORM_*`` of winnt.h, and Breakpad's ``MD_OS_*``."""
COMMITTED, RESERVED, FREE = 0x1000, 0x2000, 0x10000
"""``MEM_COMMIT``, ``MEM_RESERVE``, ``MEM_FREE``: the state of a piece of the address space."""
GUARD = 0x100
"""``PAGE_GUARD`` in ``protect``."""


class Range(NamedTuple):
    """``size`` bytes of memory from ``address`` on; they lie in the file at ``offset``."""

    address: int
    size: int
    offset: int


class MemoryRanges:
    """Memory in the dump, sorted by address, overlaps removed; three numbers a range: there may be 100,000s."""

    def __init__(self, data: Data, ranges: Iterable[Range] = ()) -> None:
        self._data = data
        self._starts, self._sizes, self._offsets = array("Q"), array("Q"), array("Q")
        end = 0
        for address, size, offset in sorted(ranges):
            cut = max(end - address, 0)
            if size <= cut:
                continue
            self._starts.append(address + cut)
            self._sizes.append(size - cut)
            self._offsets.append(offset + cut)
            end = address + size

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._starts, self._sizes, self._offsets)

    def at(self, address: int) -> Range | None:
        """The range that holds ``address``."""
        index = self._index(address)
        return None if index is None else Range(self._starts[index], self._sizes[index], self._offsets[index])

    def _index(self, address: int) -> int | None:
        if not 0 <= address < 1 << 64:
            return None
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address - self._starts[index] >= self._sizes[index]:
            return None
        return index

    def some(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``address`` on: as many as the dump holds without a hole, perhaps none."""
        pieces: list[bytes] = []
        while size > 0:
            index = self._index(address)
            if index is None:
                break
            skipped = address - self._starts[index]
            count = min(size, self._sizes[index] - skipped)
            start = self._offsets[index] + skipped
            piece = self._data[start : start + count]
            pieces.append(piece)
            if len(piece) < count:
                break
            address += count
            size -= count
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class MemoryInfo(NamedTuple):
    """A piece of the address space as VirtualQueryEx tells it; ``protect`` holds ``PAGE_*``, ``state`` ``MEM_*``."""

    base: int
    allocation_base: int
    allocation_protect: int
    size: int
    state: int
    protect: int
    type: int


class MemoryInfos:
    """All pieces of the address space, read where one is asked for."""

    _ROW = struct.Struct("<QQI4xQIII4x")

    def __init__(self, data: Data, offset: int, entry_size: int, count: int) -> None:
        self._data, self._offset, self._entry_size = data, offset, entry_size
        bases = [struct.unpack_from("<Q", data, offset + index * entry_size)[0] for index in range(count)]
        self._order = sorted(range(count), key=bases.__getitem__)
        self._bases = array("Q", sorted(bases))

    def __len__(self) -> int:
        return len(self._bases)

    def __getitem__(self, index: int) -> MemoryInfo:
        """The piece with this place in the order of addresses."""
        at = self._offset + self._order[index] * self._entry_size
        return MemoryInfo(*self._ROW.unpack_from(self._data, at))

    def at(self, address: int) -> MemoryInfo | None:
        """The piece that holds ``address``."""
        index = self.index_of(address)
        return None if index is None else self[index]

    def index_of(self, address: int) -> int | None:
        """The place of the piece that holds ``address``."""
        if not 0 <= address < 1 << 64:
            return None
        index = bisect_right(self._bases, address) - 1
        if index < 0:
            return None
        one = self[index]
        return index if address - one.base < one.size else None


@dataclass(frozen=True)
class SystemInfo:
    """The machine and its system; ``architecture`` and ``platform`` are None where they are unknown numbers."""

    architecture: str | None
    platform: str | None
    platform_id: int
    version: tuple[int, int, int]
    service_pack: str | None
    processors: int
    product_type: int
    cpu: str | None
    """What the processor calls itself (``GenuineIntel``), where the dump has it."""

    @property
    def is_windows(self) -> bool:
        """The process ran on Windows (or on wine)."""
        return self.platform_id in {0, 1, WINDOWS}


@dataclass(frozen=True)
class ExceptionRecord:
    """What killed the process. ``tid``: the thread; ``context``: its registers at the exception, perhaps empty.

    On Linux Breakpad puts the signal's number into ``code``, si_code into ``flags`` and si_addr into ``address``.
    """

    code: int
    flags: int
    address: int
    parameters: tuple[int, ...]
    tid: int
    context: bytes
    record: int = 0
    """Address of another record, of the exception that came before; 0 for none."""


@dataclass(frozen=True)
class ThreadRecord:
    """One thread. ``stack``: the part of its stack that the dump says it holds; ``start``: where it began to run."""

    tid: int
    teb: int
    stack: Range | None
    context: bytes
    name: str | None = None
    start: int | None = None
    exited: bool = False
    suspended: int = 0
    created: int | None = None
    """When it was made, in units of 100 ns since 1601."""


@dataclass(frozen=True)
class CodeView:
    """Debug file of a module; ``kind``: RSDS, NB10 (a PDB), ELF; ``identity``: GUID, build id, in hex; then ``age``."""

    kind: str
    identity: str
    age: int
    path: str | None


@dataclass(frozen=True)
class ModuleRecord:
    """A loaded image. ``timestamp`` and ``size`` are those of its PE header, by which its file is recognised."""

    path: str
    base: int
    size: int
    timestamp: int
    checksum: int
    version: str | None
    product_version: str | None
    codeview: CodeView | None

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return file_name(self.path)


def file_name(path: str) -> str:
    """The last part of a path of Windows or Unix."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


@dataclass(frozen=True)
class UnloadedModule:
    """An image that was unloaded before the end: an address in it is a call to code that is gone."""

    path: str
    base: int
    size: int
    timestamp: int


@dataclass(frozen=True)
class HandleRecord:
    """An open handle; ``type`` as the kernel calls it (``File``, ``Event``), ``name`` of the object if it has one."""

    handle: int
    type: str | None
    name: str | None


@dataclass(frozen=True)
class MiscInfo:
    """Times are in seconds: ``created`` since the epoch. ``build``: what the system's build calls itself."""

    pid: int | None = None
    created: int | None = None
    user_s: int | None = None
    kernel_s: int | None = None
    build: str | None = None


@dataclass(frozen=True)
class Assertion:
    """Breakpad's note of what the C runtime's handlers were told: ``kind`` 1 invalid parameter, 2 pure virtual call."""

    kind: int
    expression: str
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Unix:
    """What Breakpad copies of ``/proc`` on Linux."""

    command: tuple[str, ...] | None = None
    variables: dict[str, str] | None = None
    status: str | None = None
    maps: str | None = None
    release: str | None = None
    cpu: str | None = None


@dataclass(frozen=True)
class Minidump:
    """One minidump. What is absent is None or empty, what is damaged is in ``gaps`` besides."""

    data: Data
    written: int
    """Seconds since the epoch; 0 where it does not say."""
    flags: int
    system: SystemInfo | None
    exception: ExceptionRecord | None
    threads: tuple[ThreadRecord, ...]
    modules: tuple[ModuleRecord, ...]
    unloaded: tuple[UnloadedModule, ...]
    memory: MemoryRanges
    memory_infos: MemoryInfos | None
    handles: tuple[HandleRecord, ...] | None
    misc: MiscInfo | None
    comments: tuple[str, ...]
    assertion: Assertion | None = None
    requesting_tid: int | None = None
    """Breakpad: the thread that asked for the dump, where none crashed."""
    annotations: dict[str, str] = field(default_factory=dict)
    """What a program gave Crashpad to write along."""
    unix: Unix | None = None
    exception_lost: bool = False
    """There was an exception, or may have been one, in a part that is not there."""
    gaps: tuple[str, ...] = ()

    def thread(self, tid: int) -> ThreadRecord | None:
        """The thread with this id."""
        return next((one for one in self.threads if one.tid == tid), None)

    def module_at(self, address: int) -> ModuleRecord | None:
        """The module that holds ``address``."""
        return next((one for one in self.modules if one.base <= address < one.base + one.size), None)
