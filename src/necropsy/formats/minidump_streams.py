"""Readers of a minidump's streams. Layouts: Microsoft Learn, ``minidumpapiset.h`` (packed to 4 bytes)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from necropsy.formats.minidump_file import MOST, FilePlace, MinidumpFile
from necropsy.formats.minidump_modules import padded
from necropsy.formats.minidump_records import (
    ARCHITECTURES,
    PLATFORMS,
    ExceptionRecord,
    HandleRecord,
    MemoryInfos,
    MiscInfo,
    Range,
    SystemInfo,
    ThreadRecord,
)

_SYSTEM = struct.Struct("<HHHBBIIIIIHH")
_CPU_AT = 32
_VENDOR = 12
_THREAD = struct.Struct("<IIIIQQIIII")
_THREAD_EX_SIZE = 64
_EXCEPTION = struct.Struct("<I4xIIQQI4x")
_PARAMETERS_AT, _MOST_PARAMETERS = 40, 15
_CONTEXT_AT = 160
_LOCATION = struct.Struct("<II")
_MISC = struct.Struct("<IIIIII")
_MISC_HAS_PID, _MISC_HAS_TIMES = 1, 2
_BUILD_AT, _BUILD_SIZE = 232, 520
_LIST_HEADER = struct.Struct("<III")
_MEMORY_INFO_HEADER = struct.Struct("<IIQ")
_MEMORY_INFO = struct.Struct("<QQI4xQIII4x")
_THREAD_INFO = struct.Struct("<IIIIQQQQQQ")
_THREAD_EXITED = 0x4
"""``MINIDUMP_THREAD_INFO_EXITED_THREAD``."""
_THREAD_NAME = struct.Struct("<IQ")
_HANDLES_HEADER = struct.Struct("<IIII")
_HANDLE = struct.Struct("<QII")
_DESCRIPTOR = struct.Struct("<QII")
_DESCRIPTOR64 = struct.Struct("<QQ")
_MOST_RANGES = 1 << 18


def system(file: MinidumpFile, place: FilePlace) -> SystemInfo | None:
    """``MINIDUMP_SYSTEM_INFO``."""
    found = file.unpack(_SYSTEM, place.offset)
    if found is None:
        return None
    architecture, _, _, processors, product, major, minor, build, platform, service_pack, _, _ = found
    vendor = None
    if architecture == 0 and place.size >= _CPU_AT + _VENDOR:
        vendor = file.piece(place.offset + _CPU_AT, _VENDOR).decode("ascii", "replace").strip("\0 ")
    return SystemInfo(
        architecture=ARCHITECTURES.get(architecture),
        platform=PLATFORMS.get(platform),
        platform_id=platform,
        version=(major, minor, build),
        service_pack=file.string(service_pack) or None,
        processors=processors,
        product_type=product,
        cpu=vendor if vendor and vendor.isascii() and vendor.isprintable() else None,
    )


def exception(file: MinidumpFile, place: FilePlace) -> ExceptionRecord | None:
    """``MINIDUMP_EXCEPTION_STREAM``; a record that is cut off behind its code is one without parameters."""
    found = file.unpack(_EXCEPTION, place.offset)
    if found is None:
        return None
    tid, code, flags, record, address, count = found
    parameters: list[int] = []
    for index in range(min(count, _MOST_PARAMETERS)):
        value = file.unpack(_U64, place.offset + _PARAMETERS_AT + 8 * index)
        if value is None:
            break
        parameters.append(value[0])
    if count > _MOST_PARAMETERS:
        # A count that cannot be says nothing of the parameters either.
        file.tell(f"exception: {count:,} parameters, of at most {_MOST_PARAMETERS}; none is believed")
        parameters = []
    where = file.unpack(_LOCATION, place.offset + _CONTEXT_AT)
    context = file.context(*where) if where is not None else b""
    return ExceptionRecord(code, flags, address, tuple(parameters), tid, context, record)


def threads(file: MinidumpFile, place: FilePlace, *, extended: bool = False) -> tuple[ThreadRecord, ...]:
    """``MINIDUMP_THREAD_LIST`` or, ``extended``, ``MINIDUMP_THREAD_EX_LIST``."""
    step = _THREAD_EX_SIZE if extended else _THREAD.size
    rows = file.most("threads", padded(file, "threads", place, _THREAD, step))
    return tuple(_thread(file, at) for at in rows)


def _thread(file: MinidumpFile, at: int) -> ThreadRecord:
    fields = _THREAD.unpack_from(file.data, at)
    tid, suspended, _, _, teb, low, size, stack_at, context_size, context_at = fields
    # A dump with full memory has the stack among all the rest, and no place for it here.
    stack = Range(low, size, stack_at) if size and low + size <= 1 << 64 else None
    context = file.context(context_size, context_at)
    return ThreadRecord(tid=tid, teb=teb, stack=stack, context=context, suspended=suspended)


def thread_names(file: MinidumpFile, place: FilePlace) -> dict[int, str]:
    """``MINIDUMP_THREAD_NAME_LIST``: thread id to name; those that cannot be read are left out."""
    rows = file.most("thread names", padded(file, "thread names", place, _THREAD_NAME, _THREAD_NAME.size))
    names: dict[int, str] = {}
    for at in rows:
        tid, rva = _THREAD_NAME.unpack_from(file.data, at)
        name = file.string(rva)
        if name:
            names.setdefault(tid, name[:1000])
    return names


class ThreadInfo(NamedTuple):
    """``start`` address of the thread, when it was ``created`` (100 ns since 1601), and whether it had ``exited``."""

    start: int
    created: int
    exited: bool


def thread_infos(file: MinidumpFile, place: FilePlace) -> dict[int, ThreadInfo]:
    """``MINIDUMP_THREAD_INFO_LIST``, by the thread's id."""
    found = file.unpack(_LIST_HEADER, place.offset)
    if found is None:
        return {}
    header, step, count = found
    end = place.offset + place.size
    rows = file.rows("thread infos", _THREAD_INFO, place.offset + header, count=count, step=step, end=end)
    infos: dict[int, ThreadInfo] = {}
    for at in file.most("thread infos", rows):
        tid, flags, _, _, created, _, _, _, start, _ = _THREAD_INFO.unpack_from(file.data, at)
        infos.setdefault(tid, ThreadInfo(start, created, bool(flags & _THREAD_EXITED)))
    return infos


def memory(file: MinidumpFile, place: FilePlace) -> Iterator[Range]:
    """``MINIDUMP_MEMORY_LIST``."""
    rows = padded(file, "memory", place, _DESCRIPTOR, _DESCRIPTOR.size)
    for at in file.most("memory", rows, _MOST_RANGES):
        address, size, offset = _DESCRIPTOR.unpack_from(file.data, at)
        yield from within(file, Range(address, size, offset))


def memory64(file: MinidumpFile, place: FilePlace) -> Iterator[Range]:
    """``MINIDUMP_MEMORY64_LIST``: the ranges lie in the file one behind the other."""
    found = file.unpack(_DESCRIPTOR64, place.offset)
    if found is None:
        return
    count, offset = found
    end = place.offset + place.size
    rows = file.rows("memory", _DESCRIPTOR64, place.offset + 16, count=count, step=16, end=end)
    for at in file.most("memory", rows, _MOST_RANGES):
        address, size = _DESCRIPTOR64.unpack_from(file.data, at)
        yield from within(file, Range(address, size, offset))
        offset += size


def within(file: MinidumpFile, one: Range) -> Iterator[Range]:
    """The range as far as it lies within the file and the address space."""
    size = min(one.size, max(file.size - one.offset, 0), max((1 << 64) - one.address, 0))
    if size < one.size:
        file.tell("memory: some of it is beyond the end of the file, the dump was cut off")
    if size > 0 and one.offset > 0:
        yield Range(one.address, size, one.offset)


def memory_infos(file: MinidumpFile, place: FilePlace) -> MemoryInfos | None:
    """``MINIDUMP_MEMORY_INFO_LIST``."""
    found = file.unpack(_MEMORY_INFO_HEADER, place.offset)
    if found is None:
        return None
    header, step, count = found
    start = place.offset + header
    rows = file.rows("memory infos", _MEMORY_INFO, start, count=count, step=step, end=place.offset + place.size)
    rows = file.most("memory infos", rows, _MOST_RANGES)
    return MemoryInfos(file.data, start, step, len(rows)) if rows else None


def handles(file: MinidumpFile, place: FilePlace) -> tuple[HandleRecord, ...] | None:
    """``MINIDUMP_HANDLE_DATA_STREAM``."""
    found = file.unpack(_HANDLES_HEADER, place.offset)
    if found is None:
        return None
    header, step, count, _ = found
    rows = file.rows("handles", _HANDLE, place.offset + header, count=count, step=step, end=place.offset + place.size)
    kept = []
    for at in file.most("handles", rows, MOST):
        handle, kind, name = _HANDLE.unpack_from(file.data, at)
        kept.append(HandleRecord(handle, file.string(kind) or None, file.string(name) or None))
    return tuple(kept)


def misc(file: MinidumpFile, place: FilePlace) -> MiscInfo | None:
    """``MINIDUMP_MISC_INFO`` to ``MINIDUMP_MISC_INFO_5``."""
    found = file.unpack(_MISC, place.offset)
    if found is None:
        return None
    size, flags, pid, created, user, kernel = found
    size = min(size, place.size)
    has_times = bool(flags & _MISC_HAS_TIMES)
    build = None
    if size >= _BUILD_AT + _BUILD_SIZE:
        text = file.piece(place.offset + _BUILD_AT, _BUILD_SIZE)
        build = text[: len(text) & ~1].decode("utf-16-le", "replace").split("\0", 1)[0] or None
    return MiscInfo(
        pid=pid if flags & _MISC_HAS_PID else None,
        created=created if has_times else None,
        user_s=user if has_times else None,
        kernel_s=kernel if has_times else None,
        build=build,
    )


def comment(file: MinidumpFile, place: FilePlace, *, wide: bool) -> str | None:
    """What somebody wrote along: ``CommentStreamA`` or, ``wide``, ``CommentStreamW``."""
    data = file.piece(place.offset, min(place.size, 64 << 10))
    text = data[: len(data) & ~1].decode("utf-16-le", "replace") if wide else data.decode("utf-8", "replace")
    return text.split("\0", 1)[0].strip() or None


_U64 = struct.Struct("<Q")
