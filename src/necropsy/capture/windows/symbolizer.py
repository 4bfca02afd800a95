"""Function, source line and inlined calls at a place in an image.

By debug information (PDB, or the DWARF that MinGW writes) through symbolic, which is an extra; by MinGW's symbol table;
by exports. An export names a place only where it is shown to be in the same function: of TensorFlow's 47,633 exports
13,643 begin a function of the unwind tables, and the nearest one is mostly another function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.symbols import demangle, readable
from necropsy.capture.windows.modules import LoadedModule, ModuleImages
from necropsy.errors import InputError
from necropsy.formats import demangle_itanium
from necropsy.formats.coff_symbols import CoffSymbols
from necropsy.formats.minidump_records import file_name
from necropsy.formats.pe import X64, X86, Image
from necropsy.model import Gap

Symbols = Callable[[int], tuple[str | None, str | None, int | None] | None]
"""The function, the source file and the line at an address, as the debugger of a live process knows them."""
_LARGEST_DEBUG_FILE = 512 << 20
_LONGEST_S = 8.0
"""For opening debug information, all files together; beyond it names come from tables alone."""
_LONGEST_THUNK = 64
"""Bytes of a function without an entry of its own that are looked through for its beginning."""


class InlinedCall(NamedTuple):
    """A call at a place: the function, the source file and the line, each where it is known."""

    function: str | None
    source: str | None = None
    line: int | None = None


class Symbolizer:
    """Answers for one process; each place is asked about once."""

    def __init__(self, images: ModuleImages, folders: Sequence[Path] = (), symbols: Symbols | None = None) -> None:
        """``folders``: where PDBs are looked for, besides the images' own; ``symbols``: who reads them instead."""
        self._images, self._folders, self._symbols = images, tuple(folders), symbols
        self._known: dict[int, tuple[CodeLocation, ...]] = {}
        self._debug: dict[int, Any] = {}
        self._tables: dict[int, CoffSymbols | None] = {}
        self._left_s = _LONGEST_S
        self._gaps: dict[str, Gap] = {}

    def gaps(self) -> tuple[Gap, ...]:
        """Why names are missing."""
        return tuple(self._gaps.values())

    def at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        """The calls at ``pc``, innermost first: those inlined there, then the function itself.

        ``exact``: the thread is at ``pc``, which is not where a call returns to: the call itself is before that.
        """
        key = pc << 1 | exact
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(pc, pc if exact or pc == 0 else pc - 1)
        return found

    def _find(self, pc: int, looked_up: int) -> tuple[CodeLocation, ...]:
        loaded = self._images.at(looked_up)
        if loaded is None:
            return (CodeLocation(pc, None, None, None, executable=True, unwinds=False),)
        rva = looked_up - loaded.low
        image = loaded.image
        executable = image is None or (section := image.section_at(rva)) is None or section.executable
        calls = self._calls(loaded, image, rva) if image is not None and executable else ()
        calls = calls or (InlinedCall(None),)
        return tuple(
            CodeLocation(
                pc=pc,
                function=call.function,
                module=loaded.name,
                offset=pc - loaded.low,
                source=call.source,
                line=call.line,
                executable=executable,
                inline=index < len(calls) - 1,
                unwinds=loaded.unwinder is not None,
            )
            for index, call in enumerate(calls)
        )

    def _calls(self, loaded: LoadedModule, image: Image, rva: int) -> tuple[InlinedCall, ...]:
        calls = self._by_debug_information(loaded, image, rva)
        name = self._by_symbol_table(loaded, image, rva)
        if calls and calls[-1].function is not None:
            return (*calls[:-1], calls[-1]._replace(function=_whole(calls[-1].function, name)))
        name = name or by_export(loaded, image, rva)
        return (InlinedCall(readable(name)),) if name else calls

    # -- tables -------------------------------------------------------------------------------------------------------

    def _by_symbol_table(self, loaded: LoadedModule, image: Image, rva: int) -> str | None:
        if loaded.low not in self._tables:
            self._tables[loaded.low] = CoffSymbols(image) if image.symbol_table[1] and not image.mapped else None
        table = self._tables[loaded.low]
        if table is None:
            return None
        begin, end = extent(loaded, rva)
        found = table.function_before(max(rva, begin), begin if begin < end else 0)
        # Where no entry covers the place, the function before it may have one, and end with it.
        if found is None or (begin == end and extent(loaded, found[0]) != (found[0], found[0])):
            return None
        # The C compiler of 32-bit x86 puts an underscore before each name.
        return found[1].removeprefix("_") if image.machine == X86 else found[1]

    # -- debug information --------------------------------------------------------------------------------------------

    def _by_debug_information(self, loaded: LoadedModule, image: Image, rva: int) -> tuple[InlinedCall, ...]:
        if self._symbols is not None:
            called = self._symbols(loaded.low + rva)
            if called is None:
                return ()
            function, source, line = called
            return (InlinedCall(_plain(function) if function else None, source, line),)
        if loaded.low not in self._debug:
            started = time.monotonic()
            self._debug[loaded.low] = self._open(loaded, image)
            self._left_s -= time.monotonic() - started
        cache = self._debug[loaded.low]
        if cache is None:
            return ()
        try:
            found = cache.lookup(rva)
            if len(found) == 1 and not found[0].line and not belongs(loaded, image, found[0].sym_addr, rva):
                return ()  # without lines it is the nearest symbol, however far
            return tuple(map(_call, found))
        except Exception:  # noqa: BLE001 - whatever symbolic finds wrong with a file that lies: it names nothing
            return ()

    def _open(self, loaded: LoadedModule, image: Image) -> Any:
        candidates = self._debug_files(loaded, image)
        if not candidates:
            return None
        try:
            from symbolic.debuginfo import Archive
        except ImportError:
            why = "symbolic is not installed, so PDB and DWARF were not read: pip install 'necropsy[symbols]'"
            self._gaps["symbols"] = Gap(part="symbols", why=why)
            return None
        for path in candidates:
            if self._left_s <= 0:
                why = "reading debug information took too long: the other names are from symbol tables and exports"
                self._gaps["symbols"] = Gap(part="symbols", why=why)
                return None
            try:
                if path.stat().st_size > _LARGEST_DEBUG_FILE:
                    why = f"{path.name} was not read: more than {_LARGEST_DEBUG_FILE >> 20} MiB of debug information"
                    self._gaps[str(path)] = Gap(part="symbols", why=why)
                    continue
                for one in Archive.open(str(path)).iter_objects():
                    if _fits(one, image) and one.features & {"debug", "symtab"}:
                        return one.make_symcache()
            except Exception as error:  # noqa: BLE001 - as above
                self._gaps[str(path)] = Gap(part="symbols", why=f"{path.name} cannot be read: {error}")
        return None

    def _debug_files(self, loaded: LoadedModule, image: Image) -> list[Path]:
        """The PDB that belongs to the image, else the image itself, if it has sections of DWARF."""
        found: list[Path] = []
        codeview = image.codeview or loaded.module.codeview
        if codeview is not None and codeview.kind == "RSDS" and codeview.path:
            name = file_name(codeview.path)
            key = f"{codeview.identity}{codeview.age:x}"
            places = [loaded.file.parent / name] if loaded.file is not None else []
            for folder in self._folders:
                places += [folder / name, folder / name / key / name, folder / name / key.upper() / name]
            found = [path for path in dict.fromkeys(places) if path.is_file()]
            found = found or self._images.named(name)
        # Long names of sections stand in the table of strings: /4, /19 ... are what .debug_info and others are called.
        if loaded.file is not None and any(one.name.startswith(("/", ".debug")) for one in image.sections):
            found.append(loaded.file)
        return found


def _fits(one: Any, image: Image) -> bool:
    """The debug file was made with the image: its id is what the image names; the image itself always fits."""
    if one.file_format != "pdb" or image.codeview is None:
        return bool(one.file_format == "pe")
    wanted = f"{image.codeview.identity}{image.codeview.age:x}".casefold()
    return str(one.debug_id).replace("-", "").casefold() == wanted


def _call(one: Any) -> InlinedCall:
    name = one.symbol or None
    return InlinedCall(_plain(name) if name else None, one.full_path or None, one.line or None)


def _whole(called: str, symbol: str | None) -> str:
    """The symbol's name, where debug information has lost its first underscore, or classes and parameters."""
    if symbol is None:
        return called
    if symbol.lstrip("_") == called.lstrip("_"):
        return symbol
    # On Windows there is mostly no demangler at hand: then the qualified name alone is read.
    found = demangle(symbol) or demangle_itanium.readable(symbol)
    if "::" in called or "(" in called or "anonymous" in found:
        return called  # where no name is, two demanglers write different words
    name = found.split("(", 1)[0]
    return found if name == called or name.endswith(f"::{called}") else called


def _plain(name: str) -> str:
    """The demangled name. symbolic removes the first underscore of each name in DWARF.

    So what was mangled begins with ``Z``; a function has its parameters behind the name, a word such as Zoo has not.
    """
    if name.startswith("Z"):
        found = demangle(f"_{name}")
        if found is not None and (found.endswith((")", "const", "&")) or "::" in found):
            return found
    return readable(name)


# -- functions and exports ----------------------------------------------------------------------------------------


def extent(loaded: LoadedModule, rva: int) -> tuple[int, int]:
    """Where a name for ``rva`` must be: its part of the function, or the first one of a chain; empty without entry."""
    unwinder, image = loaded.unwinder, loaded.image
    if unwinder is None or image is None:
        return rva, rva
    try:
        part = image.function(rva)
        if part is None:
            return rva, rva
        first = unwinder.primary(part)
    except InputError:
        return rva, rva
    return first.begin, first.end


def by_export(loaded: LoadedModule, image: Image, rva: int) -> str | None:
    """The export that lies in the same function; of a function without an entry, one from which code leads to here."""
    begin, end = extent(loaded, rva)
    if begin < end:
        found = image.export_in(begin, end, rva if begin <= rva < end else begin)
    else:
        found = image.export_in(max(rva - _LONGEST_THUNK, 0), rva + 1, rva)
    return found[1] if found is not None and belongs(loaded, image, found[0], rva) else None


def belongs(loaded: LoadedModule, image: Image, symbol: int, rva: int) -> bool:
    """Whether what begins at ``symbol`` is the function around ``rva``: by the tables, else by the instructions."""
    begin, end = extent(loaded, rva)
    if begin < end:
        return begin <= symbol < end
    return 0 <= rva - symbol <= _LONGEST_THUNK and _leads(image, symbol, rva)


def _leads(image: Image, start: int, rva: int) -> bool:
    """Whether the instructions from ``start`` on come to ``rva`` without leaving before."""
    try:
        import capstone
    except ImportError:
        return start == rva
    if image.machine not in {X64, X86}:
        return start == rva
    code = image.some(start, rva - start + 16)
    at = start
    mode = capstone.CS_MODE_64 if image.machine == X64 else capstone.CS_MODE_32
    for address, size, mnemonic, _ in capstone.Cs(capstone.CS_ARCH_X86, mode).disasm_lite(code, start):
        at = address
        if address >= rva:
            break
        if mnemonic in {"ret", "jmp", "int3", "hlt", "ud2"}:
            return False
        at = address + size
    return at == rva
