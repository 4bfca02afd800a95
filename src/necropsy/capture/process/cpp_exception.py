"""The C++ exception in flight: its type and ``what()``, read from the objects of the C++ runtime.

Layouts: Itanium C++ ABI, Exception Handling 2.2 (``__cxa_exception`` ends with the unwind header, the thrown object
follows it); ``std::runtime_error`` and ``std::logic_error`` of libstdc++ hold a pointer to their text right after their
vtable pointer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from necropsy.capture.process.cxx_type_info import TypeInfo, TypeInfoReader
from necropsy.capture.process.memory import Memory
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
        self._types = TypeInfoReader(memory, maps)

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
        kind = self._types.at(info) if info else None
        if kind is None:
            return None
        return CppException(type=kind.name, what=self._what(kind, header + self._after), where="memory")

    def _what(self, kind: TypeInfo, thrown: int) -> str | None:
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

    def _text_of_base(self, kind: TypeInfo, thrown: int, depth: int) -> int | None:
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
