"""Function, inlined calls and source line of a program counter; looked up once for each distinct one.

drgn answers where it is installed (it has wheels for Linux x86-64 only). One of its programs knows the files without
their debug information, for the names of functions: reading the DWARF of a large library takes longer than all else
together. A second one, with the debug information, is asked for inlined calls and lines, for a limited time.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from necropsy.capture.linux.inspect import modules as mapped
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.linux.unwind.symbol_tables import GeneratedCode
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.symbols import demangle, plain, readable
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

_LONGEST_DEBUG_S = 3.0
"""For all questions to debug information together; beyond it names come from symbol tables alone."""


class Symbolizer:
    """Answers for one process."""

    def __init__(self, maps: MemoryMap, memory: Memory, files: MappedFiles) -> None:
        """Nothing is read yet. Raises ImportError where drgn is not installed."""
        import drgn

        self._drgn = drgn
        self._maps, self._memory, self._files = maps, memory, files
        self._generated = GeneratedCode(memory, files).function
        machine = getattr(drgn.Architecture, memory.processor.name.upper())
        self._program, self._debug = (drgn.Program(drgn.Platform(machine)) for _ in range(2))
        self.unreadable: list[str] = []
        """Files that could not be opened: their frames have no names."""
        self._told: set[int] = set()
        """The files that the first program knows, by their lowest addresses."""
        self._added: set[int] = set()
        """The same of the second one."""
        self._vdso: int | None = None
        self._left_s = _LONGEST_DEBUG_S
        self._known: dict[int, tuple[CodeLocation, ...]] = {}

    def close(self) -> None:
        """Give back the file that was made for drgn."""
        if self._vdso is not None:
            os.close(self._vdso)
            self._vdso = None

    def _tell(self, address: int) -> None:
        file = self._files.at(address)
        if file is not None:
            self._add_file(file.path, file.low, file.high, file.readable_path)
            return
        one = self._maps.at(address)
        data = mapped.vdso_image(self._maps, self._memory) if one is not None and one.path == "[vdso]" else None
        if one is None or data is None or one.low in self._told:
            return
        self._vdso = os.memfd_create("vdso")
        os.write(self._vdso, data)
        self._add_file("[vdso]", one.low, one.high, f"/proc/self/fd/{self._vdso}")

    def _add_file(self, name: str, low: int, high: int, path: str) -> None:
        if low in self._told:
            return
        self._told.add(low)
        try:
            module = self._program.extra_module(name, low, create=True)
            module.address_ranges = [(low, high)]
            module.debug_file_status = self._drgn.ModuleFileStatus.DONT_WANT
            module.try_file(path, force=True)
            if module.wants_loaded_file():
                self.unreadable.append(name)
        except (OSError, ValueError, LookupError, self._drgn.MissingDebugInfoError):
            self.unreadable.append(name)

    def at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        """The calls at ``pc``, innermost first: those inlined there, then the function itself.

        ``exact``: the thread is at ``pc``, which is not where a call returns to: the call itself is before that.
        """
        key = pc << 1 | exact
        found = self._known.get(key)
        if found is None:
            # Over a destroyed frame the return address may be 0, and before 0 there is nothing.
            found = self._known[key] = tuple(self._find(pc, pc if exact or pc == 0 else pc - 1))
        return found

    def _find(self, pc: int, looked_up: int) -> list[CodeLocation]:
        file = self._files.at(looked_up)
        module = file.name if file else self._kernel_code(looked_up)
        offset = pc - file.low if file else None
        executable = self._maps.executable_at(looked_up)
        # Where a jump into data ended there may be a symbol: that of a variable, which called nothing.
        symbol = self._symbol(looked_up) if executable else None
        unwinds = None if file is None else file.has_unwind_info(looked_up)
        calls: list[tuple[str | None, str | None, int | None]] = self._inlined(file, looked_up) or [(None, None, None)]
        return [
            CodeLocation(
                pc=pc,
                function=(symbol or name) if index == len(calls) - 1 else name,
                module=module,
                offset=offset,
                source=source,
                line=line,
                executable=executable,
                inline=index < len(calls) - 1,
                unwinds=unwinds,
            )
            for index, (name, source, line) in enumerate(calls)
        ]

    def _symbol(self, address: int) -> str | None:
        if self._files.at(address) is None and self._kernel_code(address) is None:
            generated = self._generated(address)
            return None if generated is None else generated[0]
        self._tell(address)
        try:
            symbol = self._program.symbol(address)
        except Exception:  # noqa: BLE001 - there is none, or the file's symbol table lies
            return None
        # A symbol without a size covers nothing: the nearest export is no name for a static function.
        covers = symbol.address <= address < symbol.address + symbol.size
        return readable(symbol.name) if covers else None

    def _kernel_code(self, address: int) -> str | None:
        one = self._maps.at(address)
        return one.path if one is not None and one.path in {"[vdso]", "[vsyscall]"} else None

    def _inlined(self, file: MappedFile | None, address: int) -> list[tuple[str | None, str | None, int | None]]:
        """Name, source file and line of each call at ``address``, innermost first, by debug information."""
        if file is None or self._left_s <= 0:
            return []
        started = time.monotonic()
        try:
            self._add(file)
            # drgn takes these for return addresses, and looks at the byte before them.
            trace = self._debug.stack_trace_from_pcs([address + 1])
            return [self._call(trace[index]) for index in range(len(trace))]
        except Exception:  # noqa: BLE001 - whatever drgn finds wrong with a file that lies: it names nothing
            return []
        finally:
            self._left_s -= time.monotonic() - started

    def _call(self, frame: Any) -> tuple[str | None, str | None, int | None]:
        name = frame.function_name
        try:
            location = frame.source()
        except LookupError:
            return _demangled(name), None, None
        return _demangled(name), location.filename or None, location.line or None

    def _add(self, file: MappedFile) -> None:
        if file.low in self._added:
            return
        self._added.add(file.low)
        module = self._debug.extra_module(file.path, file.low, create=True)
        module.address_ranges = [(file.low, file.high)]
        module.try_file(file.readable_path, force=True)
        if module.wants_debug_file() and (apart := of(file)) is not None:
            module.try_file(apart)


def _demangled(name: str | None) -> str | None:
    return None if name is None else demangle(name) or plain(name)


# Debug information in files of their own: what distributions put into packages named ``-dbg`` or ``-debuginfo``.
#
# Looked for where gdb looks (its manual, *Debugging Information in Separate Files*), on this machine only: under the
# library's build ID, and under the name that it gives in ``.gnu_debuglink``. A file is taken only where its build ID is
# the library's. Nothing is ever asked of a server.
ROOT = "/usr/lib/debug"
LARGEST = 512 << 20
"""Bytes of a file that is opened: a larger one would take longer than names are worth at a death."""
C_LIBRARY = re.compile(r"(?:libc|libm|libmvec|libpthread|libdl|librt|libresolv|ld(?:-linux[\w-]*)?)[-.]")
"""Deaths count for their callers: with their inner names a death would differ where a machine lacks them."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MOST_SECTIONS = 1024
_PROGBITS = 1
_LONGEST_NAME = 255
_NAME = re.compile(rb"[^/\0]{1,255}")


def of(file: MappedFile) -> str | None:
    """The path of the file with the debug information of ``file``; None where there is none that fits it."""
    if C_LIBRARY.match(file.name):
        return None
    build_id = file.build_id
    if build_id is None or len(build_id) < 4:
        return None
    return next((str(path) for path in _candidates(file, build_id) if _fits(path, build_id)), None)


def _candidates(file: MappedFile, build_id: str) -> Iterator[Path]:
    yield Path(ROOT, ".build-id", build_id[:2], f"{build_id[2:]}.debug")
    name = _linked(file.elf) if file.elf is not None else None
    if name is None:
        return
    folder = Path(file.path).parent
    yield from (folder / name, folder / ".debug" / name, Path(f"{ROOT}{folder}", name))


def _linked(elf: ElfFile) -> str | None:
    """The name in ``.gnu_debuglink``: a name, padding to 4 bytes, and a checksum, in a section that is never loaded.

    The section is found by its form; the build ID of the file that it names confirms it.
    """
    try:
        rows = list(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))
        for _, kind, flags, _, offset, size, *_ in rows:
            if kind != _PROGBITS or flags or not 8 <= size <= _LONGEST_NAME + 9:
                continue
            name = elf.bytes_at(offset, size).split(b"\0", 1)[0]
            if (len(name) + 4 & ~3) + 4 == size and _NAME.fullmatch(name) and name not in {b".", b".."}:
                return name.decode("utf-8", "surrogateescape")
    except InputError:
        return None
    return None


def _fits(path: Path, build_id: str) -> bool:
    """Whether an ordinary file is there, not too large, whose build ID is the library's."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST:
            return False
        with path.open("rb") as opened:
            return ElfFile(opened.read(_HEAD)).build_id() == build_id
    except (OSError, ValueError, InputError):
        return False


_HEAD = 1 << 20
"""How many bytes of a file are read for its headers and notes."""
