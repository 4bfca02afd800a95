"""Streams that Breakpad and Crashpad add to Microsoft's.

Layouts: ``minidump_format.h`` of Breakpad (``MD_LINUX_*``, ``MDRawBreakpadInfo``, ``MDRawAssertionInfo``) and
``minidump_extensions.h`` of Crashpad (``MinidumpCrashpadInfo``).
"""

from __future__ import annotations

import re
import struct

from necropsy.formats.minidump_file import FilePlace, MinidumpFile
from necropsy.formats.minidump_records import Assertion, Unix

_INFO = struct.Struct("<III")
_REQUESTING_VALID = 2
_ASSERTION = struct.Struct("<256s256s256sII")
_LARGEST_TEXT = 1 << 20
_CRASHPAD = struct.Struct("<I16s16sIIII")
_PAIR = struct.Struct("<II")
_MODULE_LINK = struct.Struct("<III")
_MODULE = struct.Struct("<IIIIIII")
_ANNOTATION = struct.Struct("<IHHI")
_IS_STRING = 1
_MOST, _MOST_OF_ONE = 500, 100


def requesting_thread(file: MinidumpFile, place: FilePlace) -> int | None:
    """The thread that asked for the dump (``MDRawBreakpadInfo``)."""
    found = file.unpack(_INFO, place.offset)
    return found[2] if found is not None and found[0] & _REQUESTING_VALID else None


def assertion(file: MinidumpFile, place: FilePlace) -> Assertion | None:
    """What the C runtime told its handler of an invalid parameter or a pure virtual call (``MDRawAssertionInfo``)."""
    if not file.holds(place.offset, _ASSERTION.size):
        return None
    expression, function, source, line, kind = _ASSERTION.unpack_from(file.data, place.offset)
    texts = [part.decode("utf-16-le", "replace").split("\0", 1)[0] for part in (expression, function, source)]
    return Assertion(kind, texts[0], texts[1], texts[2], line)


def text(file: MinidumpFile, place: FilePlace) -> str:
    """A file that was copied as it is."""
    return file.piece(place.offset, min(place.size, _LARGEST_TEXT)).decode("utf-8", "replace")


def unix(found: dict[str, str]) -> Unix | None:
    """The copies of ``/proc``: ``cpu``, ``status``, ``release``, ``command``, ``environ``, ``maps``."""
    if not found:
        return None
    command = found.get("command")
    environ = found.get("environ")
    pairs = (one.partition("=") for one in (environ or "").split("\0") if "=" in one)
    return Unix(
        command=tuple(command.rstrip("\0").split("\0")) if command else None,
        variables={name: value for name, _, value in pairs} if environ is not None else None,
        status=found.get("status"),
        maps=found.get("maps"),
        release=_field(found.get("release"), "DISTRIB_DESCRIPTION"),
        cpu=_field(found.get("cpu"), "model name"),
    )


def _field(table: str | None, name: str) -> str | None:
    match = re.search(rf"^{name}\s*[:=]\s*\"?([^\"\n]+)", table or "", re.MULTILINE)
    return match[1].strip() if match else None


def crashpad_annotations(file: MinidumpFile, place: FilePlace) -> dict[str, str]:
    """What the program and its modules gave Crashpad to write along, by name; a module's own words as ``message``."""
    head = file.unpack(_CRASHPAD, place.offset) if file.holds(place.offset, _CRASHPAD.size) else None
    if head is None:
        return {}
    *_, simple_size, simple_at, modules_size, modules_at = head
    found = _simple(file, FilePlace(simple_at, simple_size))
    rows = _rows(file, FilePlace(modules_at, modules_size), _MODULE_LINK, _MOST)
    for at in rows:
        _, size, offset = _MODULE_LINK.unpack_from(file.data, at)
        if size < _MODULE.size or not file.holds(offset, _MODULE.size) or len(found) >= _MOST:
            continue
        _, list_size, list_at, module_size, module_at, objects_size, objects_at = _MODULE.unpack_from(file.data, offset)
        for index, row in enumerate(_rows(file, FilePlace(list_at, list_size), _ONE)):
            said = file.utf8(file.number(row) or 0)
            if said:
                found.setdefault("message" if not index else f"message {index + 1}", said)
        found = _simple(file, FilePlace(module_at, module_size)) | found
        for row in _rows(file, FilePlace(objects_at, objects_size), _ANNOTATION):
            name, kind, _, value = _ANNOTATION.unpack_from(file.data, row)
            key, said = file.utf8(name), file.utf8(value) if kind == _IS_STRING else None
            if key and said:
                found.setdefault(key, said)
    return dict(list(found.items())[:_MOST])


def _simple(file: MinidumpFile, place: FilePlace) -> dict[str, str]:
    found: dict[str, str] = {}
    for at in _rows(file, place, _PAIR):
        key, value = (file.utf8(rva) for rva in _PAIR.unpack_from(file.data, at))
        if key and value is not None:
            found.setdefault(key, value)
    return found


def _rows(file: MinidumpFile, place: FilePlace, layout: struct.Struct, most: int = _MOST_OF_ONE) -> range:
    count = file.number(place.offset) if place.offset and place.size >= 4 else None
    if not count:
        return range(0)
    end = place.offset + place.size
    return file.rows("annotations", layout, place.offset + 4, count=count, step=layout.size, end=end)[:most]


_ONE = struct.Struct("<I")
