"""Programs that look for leaks when they end: LeakSanitizer traces its own process for that, and fails under a tracer.

The sanitizer then ends a healthy program with an error. So a process must not be traced at its end if it carries the
runtime of AddressSanitizer or LeakSanitizer (linked, linked statically, or preloaded), and leak detection is not
switched off. The sanitizer itself reports what it dies of.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

_DYNAMIC, _LOAD = 2, 1
_SYMTAB = 2
_NEEDED, _STRTAB, _DYNSYM, _STRSZ = 1, 5, 6, 10
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LARGEST_TABLE = 256 << 20
_MOST_REMEMBERED = 4096
_LEAK_CHECK, _ADDRESSES = b"__lsan_do_leak_check", b"__asan_init"
_OFF = frozenset({"0", "no", "false"})
_OPTIONS = {"address": ("ASAN_OPTIONS", "LSAN_OPTIONS"), "leak": ("LSAN_OPTIONS",)}
"""By sanitizer: the variables that it reads, the last of which wins (asan_flags.cpp, lsan.cpp)."""


class LeakSanitizer:
    """Which processes look for leaks. What was found in a program's file is remembered."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], str | None] = {}

    def is_in(self, pid: int) -> bool:
        """The program that the process has just executed looks for leaks when it ends. Never raises."""
        try:
            sanitizer = self._linked(pid) or _preloaded(pid)
            return sanitizer is not None and _detects_leaks(
                sanitizer, _variables(pid, b"ASAN_OPTIONS", b"LSAN_OPTIONS")
            )
        except (OSError, struct.error):
            return False

    def _linked(self, pid: int) -> str | None:
        handle = os.open(f"/proc/{pid}/exe", os.O_RDONLY | os.O_CLOEXEC)
        try:
            about = os.fstat(handle)
            file = (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size)
            if file not in self._known:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[file] = _File(handle).sanitizer()
            return self._known[file]
        finally:
            os.close(handle)


def _sanitizer_of(library: str) -> str | None:
    """By the name of a runtime: libasan.so.8, liblsan.so.0, libclang_rt.asan-x86_64.so, libclang_rt.asan.so."""
    name = library.rpartition("/")[2]
    if name.startswith(("libasan", "libclang_rt.asan")):
        return "address"
    return "leak" if name.startswith(("liblsan", "libclang_rt.lsan")) else None


def _preloaded(pid: int) -> str | None:
    words = _variables(pid, b"LD_PRELOAD").get("LD_PRELOAD", "").replace(":", " ").split()
    return next((found for found in map(_sanitizer_of, words) if found), None)


def _variables(pid: int, *names: bytes) -> Mapping[str, str]:
    """Those of these variables that exec passed to the process; of a repeated one, the first."""
    data = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    found: dict[str, str] = {}
    for name in names:
        _, there, rest = data.partition(b"\0" + name + b"=")
        if there:
            found[os.fsdecode(name)] = os.fsdecode(rest.partition(b"\0")[0])
    return found


def _detects_leaks(sanitizer: str, variables: Mapping[str, str]) -> bool:
    """It does unless ``detect_leaks`` is off; options are separated by spaces, commas and colons (sanitizer_flags)."""
    detects = True
    for variable in _OPTIONS[sanitizer]:
        for option in variables.get(variable, "").replace(",", ":").replace(" ", ":").split(":"):
            name, _, value = option.partition("=")
            if name == "detect_leaks":
                detects = value.strip("'\"") not in _OFF
    return detects


class _File:
    """An untrusted ELF file for x86-64 or AArch64: read, not mapped, as it may shrink meanwhile."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._handle, size, offset) if offset >= 0 and 0 <= size <= _LARGEST_TABLE else b""

    def sanitizer(self) -> str | None:
        head = self._read(0, _HEADER.size)
        if head[:6] != b"\x7fELF\x02\x01":
            return None
        fields = _HEADER.unpack(head)
        segments = list(_SEGMENT.iter_unpack(self._read(fields[5], fields[10] * _SEGMENT.size)))
        return self._dynamic(segments) or self._static(fields[6], fields[12])

    def _dynamic(self, segments: list[tuple[int, ...]]) -> str | None:
        dynamic = next((self._read(one[2], one[5]) for one in segments if one[0] == _DYNAMIC), b"")
        entries = list(struct.iter_unpack("<qQ", dynamic[: len(dynamic) // 16 * 16]))
        tags = dict(reversed(entries))

        def offset(address: int) -> int:
            loads = (one for one in segments if one[0] == _LOAD and one[3] <= address < one[3] + one[5])
            return next((address - one[3] + one[2] for one in loads), -1)

        strings = self._read(offset(tags.get(_STRTAB, 0)), tags.get(_STRSZ, 0)) if _STRTAB in tags else b""
        for tag, value in entries:
            found = _sanitizer_of(_string(strings, value)) if tag == _NEEDED else None
            if found:
                return found
        # Linkers put the names right behind the symbols.
        size = tags.get(_STRTAB, 0) - tags.get(_DYNSYM, 0)
        return _carries(strings, lambda: self._read(offset(tags.get(_DYNSYM, 0)), size // _SYMBOL.size * _SYMBOL.size))

    def _static(self, offset: int, count: int) -> str | None:
        sections = list(_SECTION.iter_unpack(self._read(offset, count * _SECTION.size)))
        table = next((one for one in sections if one[1] == _SYMTAB and one[6] < len(sections)), None)
        if table is None:
            return None
        names = sections[table[6]]
        size = table[5] // _SYMBOL.size * _SYMBOL.size
        return _carries(self._read(names[4], names[5]), lambda: self._read(table[4], size))


def _string(strings: bytes, at: int) -> str:
    return strings[at : max(strings.find(b"\0", at), at)].decode("utf-8", "replace")


def _carries(strings: bytes, symbols: Callable[[], bytes]) -> str | None:
    """The sanitizer whose runtime is defined, not only referred to, by these symbols."""
    at = strings.find(b"\0" + _LEAK_CHECK + b"\0") + 1
    if not at or not any(one[0] == at and one[3] for one in _SYMBOL.iter_unpack(symbols())):
        return None
    return "address" if b"\0" + _ADDRESSES + b"\0" in strings else "leak"
