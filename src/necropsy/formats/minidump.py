"""Reads a minidump: of MiniDumpWriteDump (Windows Error Reporting, procdump, Task Manager, wine), Crashpad, Breakpad.

Dumps are untrusted and may be cut off: each size is checked against the file, each count against what can be there.
Streams may come in any order, twice, or not at all. Layout: Microsoft Learn, ``minidumpapiset.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from necropsy.errors import InputError
from necropsy.formats import minidump_breakpad, minidump_modules, minidump_streams
from necropsy.formats.minidump_file import FilePlace, MinidumpFile
from necropsy.formats.minidump_records import Data, MemoryRanges, Minidump, Range, ThreadRecord
from necropsy.formats.minidump_streams import ThreadInfo

_T = TypeVar("_T")
_K = TypeVar("_K")
_V = TypeVar("_V")
SIGNATURE = b"MDMP"
_HEADER = struct.Struct("<4sIIIIIQ")
_DIRECTORY = struct.Struct("<III")
_MOST_STREAMS = 4096
_MOST_OF_ONE = 4
"""Streams of one type that are looked at."""

_THREADS, _MODULES, _MEMORY, _EXCEPTION, _SYSTEM, _THREADS_EX, _MEMORY64 = 3, 4, 5, 6, 7, 8, 9
_COMMENT, _COMMENT_WIDE, _HANDLES, _UNLOADED, _MISC = 10, 11, 12, 14, 15
_MEMORY_INFOS, _THREAD_INFOS, _THREAD_NAMES = 16, 17, 24
_BREAKPAD_INFO, _ASSERTION, _CRASHPAD_INFO = 0x47670001, 0x47670002, 0x43500001
_UNIX = {
    0x47670003: "cpu",
    0x47670004: "status",
    0x47670005: "release",
    0x47670006: "command",
    0x47670007: "environ",
    0x47670009: "maps",
}
_READ = frozenset(
    {
        *(_THREADS, _MODULES, _MEMORY, _EXCEPTION, _SYSTEM, _THREADS_EX, _MEMORY64, _COMMENT, _COMMENT_WIDE, _HANDLES),
        *(_UNLOADED, _MISC, _MEMORY_INFOS, _THREAD_INFOS, _THREAD_NAMES, _BREAKPAD_INFO, _ASSERTION, _CRASHPAD_INFO),
        *_UNIX,
    }
)


def parse(data: Data) -> Minidump:
    """The minidump in ``data``, damage in ``gaps``. Raises InputError where it is not one, or has no stream."""
    if data[:4] != SIGNATURE:
        raise InputError("not a minidump")
    if len(data) < _HEADER.size:
        raise InputError("a minidump that ends in its header")
    _, _, count, directory, _, written, flags = _HEADER.unpack_from(data)
    file = MinidumpFile(data)
    places = _Places(file, directory, count)
    if not places.found:
        raise InputError("a minidump without anything in it" + (", it was cut off" if count else ""))
    return _assembled(file, places, written, flags)


class _Places:
    """Where each stream is, those of one type in the order of the directory."""

    def __init__(self, file: MinidumpFile, directory: int, count: int) -> None:
        rows = file.rows("streams", _DIRECTORY, directory, count=count, step=_DIRECTORY.size, end=file.size)
        self.found: dict[int, list[FilePlace]] = {}
        self.lost: set[int] = set()
        """Those beyond the end of the file."""
        self.cut = len(rows) < count
        """The directory is incomplete."""
        for at in file.most("streams", rows, _MOST_STREAMS):
            kind, size, offset = _DIRECTORY.unpack_from(file.data, at)
            if kind not in _READ or not size:
                continue
            if not 0 < offset < file.size:
                file.tell(f"stream {kind:#x}: it is beyond the end of the file")
                self.lost.add(kind)
                continue
            same = self.found.setdefault(kind, [])
            if FilePlace(offset, size) not in same and len(same) < _MOST_OF_ONE:
                same.append(FilePlace(offset, size))

    def __getitem__(self, kind: int) -> list[FilePlace]:
        return self.found.get(kind, [])


def _assembled(file: MinidumpFile, places: _Places, written: int, flags: int) -> Minidump:
    streams, breakpad = minidump_streams, minidump_breakpad
    threads = _first(streams.threads(file, one) for one in places[_THREADS])
    threads = threads or _first(streams.threads(file, one, extended=True) for one in places[_THREADS_EX]) or ()
    names = _merged(streams.thread_names(file, one) for one in places[_THREAD_NAMES])
    infos = _merged(streams.thread_infos(file, one) for one in places[_THREAD_INFOS])
    assertions = [breakpad.assertion(file, one) for one in places[_ASSERTION]]
    requesting = [breakpad.requesting_thread(file, one) for one in places[_BREAKPAD_INFO]]
    exception = _first(streams.exception(file, one) for one in places[_EXCEPTION])
    return Minidump(
        data=file.data,
        written=written,
        flags=flags,
        system=_first(streams.system(file, one) for one in places[_SYSTEM]),
        exception=exception,
        exception_lost=exception is None and (places.cut or _EXCEPTION in places.lost or bool(places[_EXCEPTION])),
        threads=tuple(_completed(one, names, infos) for one in threads),
        modules=_first(minidump_modules.modules(file, one) for one in places[_MODULES]) or (),
        unloaded=_first(minidump_modules.unloaded(file, one) for one in places[_UNLOADED]) or (),
        memory=MemoryRanges(file.data, _memory(file, places, threads)),
        memory_infos=_first(streams.memory_infos(file, one) for one in places[_MEMORY_INFOS]),
        handles=_first(streams.handles(file, one) for one in places[_HANDLES]),
        misc=_first(streams.misc(file, one) for one in places[_MISC]),
        comments=tuple(_comments(file, places)),
        assertion=next((one for one in assertions if one is not None), None),
        requesting_tid=next((one for one in requesting if one is not None), None),
        annotations=_merged(breakpad.crashpad_annotations(file, one) for one in places[_CRASHPAD_INFO]),
        unix=breakpad.unix(
            {name: breakpad.text(file, places[kind][0]) for kind, name in _UNIX.items() if places[kind]}
        ),
        gaps=tuple(file.gaps),
    )


def _first(found: Iterable[_T | None]) -> _T | None:
    return next((one for one in found if one), None)


def _merged(found: Iterable[dict[_K, _V]]) -> dict[_K, _V]:
    merged: dict[_K, _V] = {}
    for one in found:
        merged = one | merged
    return merged


def _completed(one: ThreadRecord, names: dict[int, str], infos: dict[int, ThreadInfo]) -> ThreadRecord:
    info = infos.get(one.tid)
    if info is None:
        return replace(one, name=names.get(one.tid))
    return replace(
        one, name=names.get(one.tid), start=info.start or None, created=info.created or None, exited=info.exited
    )


def _memory(file: MinidumpFile, places: _Places, threads: Iterable[ThreadRecord]) -> Iterator[Range]:
    streams = minidump_streams
    for kind, reader in ((_MEMORY64, streams.memory64), (_MEMORY, streams.memory)):
        yield from chain.from_iterable(reader(file, one) for one in places[kind])
    for thread in threads:
        if thread.stack is not None:
            yield from streams.within(file, thread.stack)


def _comments(file: MinidumpFile, places: _Places) -> Iterator[str]:
    for kind in (_COMMENT, _COMMENT_WIDE):
        for place in places[kind]:
            said = minidump_streams.comment(file, place, wide=kind == _COMMENT_WIDE)
            if said:
                yield said
