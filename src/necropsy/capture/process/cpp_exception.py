"""The C++ exception in flight: its type and ``what()``, read from the objects of the C++ runtime.

Layouts: Itanium C++ ABI, Exception Handling 2.2 (``__cxa_exception`` ends with the unwind header, the thrown object
follows it) and 2.9.5 (type information); ``std::runtime_error`` and ``std::logic_error`` of libstdc++ hold a pointer
to their text right after their vtable pointer.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.symbols import demangle_type
from necropsy.model import CppException, Stack

_PRIMARY = {0x474E5543432B2B00, 0x434C4E47432B2B00}  # "GNUCC++\0", "CLNGC++\0"
_DEPENDENT = {0x474E5543432B2B01, 0x434C4E47432B2B01}
_TYPE_BEFORE_HEADER = 80
_HANDLERS_BEFORE_HEADER = 40
_OBJECT_AFTER_HEADER = 32
_SEARCHED = 512 << 10
_MOST_CANDIDATES = 20_000
_DEEPEST = 16
_LONGEST_WHAT = 4096
_NAME = re.compile(r"\*?[A-Za-z0-9_.$]{1,2000}\Z")
_WITH_TEXT = {"std::runtime_error", "std::logic_error"}
_FIXED = {
    *("std::bad_alloc", "std::bad_cast", "std::bad_typeid", "std::bad_exception", "std::bad_array_new_length"),
    "std::exception",
}
"""Their ``what()`` is their name (libstdc++, libsupc++/*.cc)."""
_OTHER_FIXED = {
    "std::bad_function_call": "bad_function_call",
    "std::bad_weak_ptr": "bad_weak_ptr",
    "std::bad_optional_access": "bad optional access",
    "std::bad_any_cast": "bad any_cast",
}
_OWN_WHAT = {"std::filesystem::filesystem_error", "std::experimental::filesystem::filesystem_error"}
"""They override ``what()`` with a text that lies elsewhere."""


@dataclass(frozen=True)
class _Type:
    """A ``std::type_info``: its demangled name, and each base with the offset of its part of the object."""

    name: str
    bases: tuple[tuple[_Type, int], ...]


class ModulePlace(Protocol):
    """What is known of the memory at an address."""

    @property
    def writable(self) -> bool:
        """It may be written."""

    @property
    def is_file(self) -> bool:
        """A file is mapped there."""


class ModulePlaces(Protocol):
    """The mappings of a process, or what stands for them."""

    def at(self, address: int) -> ModulePlace | None:
        """What lies at ``address``; None for nothing."""


class Files(Protocol):
    """The libraries of a process."""

    def at(self, address: int) -> object | None:
        """The one that is mapped at ``address``."""

    def named(self, *starts: str) -> object | None:
        """The first whose name begins so."""


def _readable(text: str) -> str:
    if (known := demangle_type(text)) is not None:
        return known
    whole = f"_ZTS{text.removeprefix('*')}"
    from necropsy.formats import demangle_itanium

    return text if (name := demangle_itanium.readable(whole)) == whole else name


class CppExceptionReader:
    """Reads exceptions of one process."""

    def __init__(
        self,
        memory: Memory,
        maps: ModulePlaces,
        files: Files | None,
        *,
        object_after_header: int = _OBJECT_AFTER_HEADER,
    ) -> None:
        """``files``: None where nobody can tell whose code a virtual function is."""
        self._memory, self._maps, self._files, self._after = memory, maps, files, object_after_header

    def at_header(self, header: int) -> CppException | None:
        """The exception with this unwind header; None where none is there."""
        return self._exception(header)

    def in_flight(self, stack: Stack) -> CppException | None:
        """The uncaught exception, or None: while the runtime looks for a handler, its header is on the stack."""
        found: CppException | None = None
        for header in self._headers(stack):
            exception = self._exception(header)
            if exception is None:
                continue
            count = self._memory.exactly(header - _HANDLERS_BEFORE_HEADER, 4)
            # terminate() catches what it ends for: that one is the cause, others may be leftovers.
            if count is not None and struct.unpack("<i", count)[0] != 0:
                return exception
            found = found or exception
        return found

    def _headers(self, stack: Stack) -> Iterator[int]:
        if stack.pointer is None or stack.high is None:
            return
        top = self._memory.some(stack.pointer, min(_SEARCHED, max(stack.high - stack.pointer, 0)))
        seen: set[int] = set()
        for (value,) in struct.iter_unpack("<Q", top[: len(top) & ~7]):
            if value in seen or value % 8 or not 0x1000 <= value < 1 << 47 or len(seen) > _MOST_CANDIDATES:
                continue
            seen.add(value)
            one = self._maps.at(value)
            if one is None or not one.writable or one.is_file:
                continue
            for header in (value, value - self._after):
                kind = self._memory.u64(header)
                if kind in _PRIMARY:
                    yield header
                elif kind in _DEPENDENT:
                    # A copy made by rethrow_exception: its first word points to the object of the first one.
                    primary = self._memory.u64(header - _TYPE_BEFORE_HEADER)
                    if primary and self._memory.u64(primary - self._after) in _PRIMARY:
                        yield primary - self._after

    def _exception(self, header: int) -> CppException | None:
        info = self._memory.u64(header - _TYPE_BEFORE_HEADER)
        kind = self._type(info, 0) if info else None
        if kind is None:
            return None
        return CppException(type=kind.name, what=self._what(kind, header + self._after), where="memory")

    def _type(self, address: int, depth: int) -> _Type | None:
        head = self._memory.exactly(address, 16)
        if head is None or depth > _DEEPEST:
            return None
        vtable, name_at = struct.unpack("<QQ", head)
        text = self._memory.c_string(name_at, 2048)
        if text is None or not _NAME.match(text) or self._maps.at(vtable) is None:
            return None
        return _Type(_readable(text), tuple(self._bases(address, vtable, depth)))

    def _bases(self, address: int, vtable: int, depth: int) -> Iterator[tuple[_Type, int]]:
        # The vtable of a type_info is that of its own kind; its type_info, before it, says which kind.
        own = self._memory.u64(vtable - 8)
        name_at = self._memory.u64(own + 8) if own else None
        kind = self._memory.c_string(name_at, 64) if name_at else None
        if kind == "N10__cxxabiv120__si_class_type_infoE":
            base = self._memory.u64(address + 16)
            found = self._type(base, depth + 1) if base else None
            if found is not None:
                yield found, 0
        elif kind == "N10__cxxabiv121__vmi_class_type_infoE":
            head = self._memory.exactly(address + 16, 8)
            count = struct.unpack("<II", head)[1] if head else 0
            for index in range(min(count, _DEEPEST)):
                entry = self._memory.exactly(address + 24 + index * 16, 16)
                if entry is None:
                    return
                base, flags = struct.unpack("<Qq", entry)
                found = self._type(base, depth + 1)
                if found is not None and not flags & 1:  # a virtual base lies where the object says
                    yield found, flags >> 8

    def _what(self, kind: _Type, thrown: int) -> str | None:
        if kind.name in _FIXED:
            return kind.name
        if kind.name in _OTHER_FIXED:
            return _OTHER_FIXED[kind.name]
        if kind.name in {"char const*", "char*"}:
            pointer = self._memory.u64(thrown)
            return self._memory.c_string(pointer, _LONGEST_WHAT) if pointer else None
        if kind.name == "std::string":
            head = self._memory.exactly(thrown, 16)
            pointer, size = struct.unpack("<QQ", head) if head else (0, 0)
            data = self._memory.exactly(pointer, min(size, _LONGEST_WHAT))
            return None if data is None else data.decode("utf-8", "replace")
        at = self._text_of_base(kind, thrown, 0)
        if at is None or self._overrides_what(at):
            return None
        pointer = self._memory.u64(at + 8)
        return self._memory.c_string(pointer, _LONGEST_WHAT) if pointer else None

    def _overrides_what(self, part: int) -> bool:
        """Whether ``what()``, the third virtual function, is the program's own code: only that knows its text."""
        vtable = self._memory.u64(part)
        function = self._memory.u64(vtable + 16) if vtable else None
        runtime = self._files.named("libstdc++.so") if self._files is not None else None
        if function is None or runtime is None or self._files is None:
            return False
        file = self._files.at(function)
        return file is not None and file is not runtime

    def _text_of_base(self, kind: _Type, thrown: int, depth: int) -> int | None:
        """Where the part of the object is that is a ``runtime_error`` or a ``logic_error``."""
        if kind.name in _OWN_WHAT or depth > _DEEPEST:
            return None
        if kind.name in _WITH_TEXT:
            return thrown
        for base, offset in kind.bases:
            found = self._text_of_base(base, thrown + offset, depth + 1)
            if found is not None:
                return found
        return None
