"""Names by dbghelp, which is part of Windows: it reads the PDBs of a live process' modules, and DWARF on wine.

Source: Microsoft Learn, ``dbghelp.h``. A PDB is looked for beside its module and where ``_NT_SYMBOL_PATH`` says, and
is taken only where its signature is the module's.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from necropsy.capture.windows import winapi
from necropsy.formats.minidump_records import ModuleRecord

_WINDOWS: Any = ctypes
_OPTIONS = 0x2 | 0x10 | 0x200 | 0x80000
"""SYMOPT_UNDNAME, _LOAD_LINES, _FAIL_CRITICAL_ERRORS (no dialogs), _NO_PROMPTS."""
_LONGEST_NAME = 1024
_SYMBOL = struct.Struct("<II16xIIQI4xQQIIIII")
_SYMBOL_SIZE = 88
_NAME_AT = 84
_LINE = struct.Struct("<I4xQI4xQQ")
_EXPORT = 0x200
"""``SYMFLAG_EXPORT``: the nearest export, which is mostly another function."""
_LONGEST_S = 8.0


class Call(NamedTuple):
    """What stands at an address: the function, the source file and the line, each where it is known."""

    function: str | None
    source: str | None = None
    line: int | None = None


class Symbols:
    """Of one process; to be closed. Each module is loaded when an address in it is asked for."""

    def __init__(self, process: winapi.Handle, modules: Sequence[ModuleRecord]) -> None:
        """Nothing is read yet. Raises OSError where dbghelp is not available."""
        self._process, self._modules = process, tuple(modules)
        self._api = _library()
        self._loaded: dict[int, bool] = {}
        self._left_s = _LONGEST_S
        self._system = _system(modules)
        self._api.SymSetOptions(_OPTIONS)
        if not self._api.SymInitializeW(process, _search_path(modules, self._system), 0):
            raise winapi.failure()

    def __enter__(self) -> Symbols:  # noqa: PYI034 - typing.Self is younger than Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._api.SymCleanup(self._process)

    def at(self, address: int) -> Call | None:
        """What stands there; None where there is no debug information for it."""
        if self._left_s <= 0 or not self._load(address):
            return None
        started = time.monotonic()
        try:
            function = self._function(address)
            return None if function is None else Call(function, *self._line(address))
        finally:
            self._left_s -= time.monotonic() - started

    def _load(self, address: int) -> bool:
        module = next((one for one in self._modules if one.base <= address < one.base + one.size), None)
        if module is None or self._is_of_the_system(module):
            return False
        if module.base not in self._loaded:
            started = time.monotonic()
            base = self._api.SymLoadModuleExW(self._process, None, module.path, None, module.base, module.size, None, 0)
            self._loaded[module.base] = bool(base)
            self._left_s -= time.monotonic() - started
        return self._loaded[module.base]

    def _is_of_the_system(self, module: ModuleRecord) -> bool:
        """The system's own have no PDB here, unless the user has said where; their exports name them well."""
        return module.path.casefold().startswith(self._system) and not os.environ.get("_NT_SYMBOL_PATH")

    def _function(self, address: int) -> str | None:
        space = ctypes.create_string_buffer(_SYMBOL_SIZE + 2 * _LONGEST_NAME)
        _SYMBOL.pack_into(space, 0, _SYMBOL_SIZE, *(0,) * 11, _LONGEST_NAME)
        beyond = ctypes.c_uint64()
        if not self._api.SymFromAddrW(self._process, address, ctypes.byref(beyond), ctypes.byref(space)):
            return None
        _, _, _, _, _, flags, _, _, _, _, _, length, _ = _SYMBOL.unpack_from(space)
        if flags & _EXPORT:
            return None
        name = space.raw[_NAME_AT : _NAME_AT + 2 * min(length, _LONGEST_NAME)].decode("utf-16-le", "replace")
        return name.rstrip("\0") or None

    def _line(self, address: int) -> tuple[str | None, int | None]:
        space = ctypes.create_string_buffer(_LINE.pack(_LINE.size, 0, 0, 0, 0))
        beyond = ctypes.c_uint32()
        if not self._api.SymGetLineFromAddrW64(self._process, address, ctypes.byref(beyond), ctypes.byref(space)):
            return None, None
        _, _, number, name, _ = _LINE.unpack(space.raw[: _LINE.size])
        return (ctypes.wstring_at(name) or None if name else None), number or None


def _library() -> Any:
    library = _WINDOWS.WinDLL("dbghelp", use_last_error=True)
    pointer, number, text, address = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_wchar_p, ctypes.c_uint64
    library.SymSetOptions.argtypes = (number,)
    library.SymInitializeW.argtypes = (pointer, text, ctypes.c_int)
    library.SymCleanup.argtypes = (pointer,)
    library.SymLoadModuleExW.argtypes = (pointer, pointer, text, text, address, number, pointer, number)
    library.SymLoadModuleExW.restype = address
    library.SymFromAddrW.argtypes = (pointer, address, pointer, pointer)
    library.SymGetLineFromAddrW64.argtypes = (pointer, address, pointer, pointer)
    return library


def _system(modules: Sequence[ModuleRecord]) -> tuple[str, ...]:
    """The folders of the system's DLLs: Windows' folder, and that of ntdll.dll (wine's is elsewhere)."""
    folders = [one.path.rpartition("\\")[0] for one in modules if one.name.casefold() == "ntdll.dll"]
    return tuple(one.casefold() for one in (os.environ.get("SYSTEMROOT", "C:\\Windows"), *folders) if one)


def _search_path(modules: Sequence[ModuleRecord], system: tuple[str, ...]) -> str:
    """The modules' own folders, except the system's, and what the user has set for debuggers."""
    folders = dict.fromkeys(one.path.rpartition("\\")[0] for one in modules)
    own = [one for one in folders if one and not one.casefold().startswith(system)]
    asked = os.environ.get("_NT_SYMBOL_PATH")
    return ";".join([*own[:64], *([asked] if asked else [])])
