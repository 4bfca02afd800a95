"""The modules of a minidump, loaded and unloaded: names, versions, and debug files.

Layouts: Microsoft Learn, ``MINIDUMP_MODULE``, ``VS_FIXEDFILEINFO``; for the CodeView records RSDS and NB10, LLVM's
``CVDebugInfo.h`` and Breakpad's ``MDCVInfoELF``.
"""

from __future__ import annotations

import struct

from necropsy.formats.minidump_file import FilePlace, MinidumpFile
from necropsy.formats.minidump_records import CodeView, ModuleRecord, UnloadedModule

_MODULE = struct.Struct("<QIIII13IIIII16x")
_VERSION_SIGNATURE = 0xFEEF04BD
_UNLOADED_HEADER = struct.Struct("<III")
_UNLOADED = struct.Struct("<QIIII")
_LARGEST_CODEVIEW = 4096
_LONGEST_PATH = 1024
_GUID = struct.Struct("<IHH8s")


def padded(file: MinidumpFile, what: str, place: FilePlace, layout: struct.Struct, step: int) -> range:
    """The rows of a list that begins with their number, in 32 bits.

    Breakpad and others align the rows with 4 bytes after the number; the size of the stream says so.
    """
    count = file.number(place.offset)
    if count is None:
        if place.size:
            file.tell(f"{what}: they are beyond the end of the file")
        return range(0)
    skipped = 8 if place.size == 8 + count * step else 4
    return file.rows(
        what, layout, place.offset + skipped, count=count, step=step, end=place.offset + max(place.size, skipped)
    )


def modules(file: MinidumpFile, place: FilePlace) -> tuple[ModuleRecord, ...]:
    """``MINIDUMP_MODULE_LIST``; one of no size or without a base is left out, an address lies in none of it."""
    rows = file.most("modules", padded(file, "modules", place, _MODULE, _MODULE.size))
    found = [_module(file, at) for at in rows]
    return tuple(one for one in found if one.size and one.base and one.base + one.size <= 1 << 64)


def _module(file: MinidumpFile, at: int) -> ModuleRecord:
    fields = _MODULE.unpack_from(file.data, at)
    base, size, checksum, timestamp, name = fields[:5]
    signature, _, high, low, product_high, product_low = fields[5:11]
    cv_size, cv_at = fields[18:20]
    known = signature == _VERSION_SIGNATURE
    return ModuleRecord(
        path=file.string(name) or "",
        base=base,
        size=size,
        timestamp=timestamp,
        checksum=checksum,
        version=_version(high, low) if known else None,
        product_version=_version(product_high, product_low) if known else None,
        codeview=_codeview(file.piece(cv_at, min(cv_size, _LARGEST_CODEVIEW))) if cv_at else None,
    )


def _version(high: int, low: int) -> str | None:
    parts = (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF)
    return ".".join(map(str, parts)) if any(parts) else None


def _codeview(record: bytes) -> CodeView | None:
    kind = record[:4]
    if kind == b"RSDS" and len(record) >= 24:
        first, second, third, rest = _GUID.unpack_from(record, 4)
        (age,) = struct.unpack_from("<I", record, 20)
        return CodeView("RSDS", f"{first:08X}{second:04X}{third:04X}{rest.hex().upper()}", age, _text(record[24:]))
    if kind == b"NB10" and len(record) >= 16:
        _, stamp, age = struct.unpack_from("<III", record, 4)
        return CodeView("NB10", f"{stamp:08X}", age, _text(record[16:]))
    if kind == b"LEpB" and len(record) > 4:
        return CodeView("ELF", record[4:].hex(), 0, None)
    return None


def _text(name: bytes) -> str | None:
    return name[:_LONGEST_PATH].split(b"\0", 1)[0].decode("utf-8", "replace") or None


def unloaded(file: MinidumpFile, place: FilePlace) -> tuple[UnloadedModule, ...]:
    """``MINIDUMP_UNLOADED_MODULE_LIST``."""
    found = file.unpack(_UNLOADED_HEADER, place.offset)
    if found is None:
        return ()
    header, step, count = found
    rows = file.rows(
        "unloaded modules", _UNLOADED, place.offset + header, count=count, step=step, end=place.offset + place.size
    )
    kept = []
    for at in file.most("unloaded modules", rows):
        base, size, _, timestamp, name = _UNLOADED.unpack_from(file.data, at)
        kept.append(UnloadedModule(file.string(name) or "", base, size, timestamp))
    return tuple(kept)
