"""What stands at a program counter: function, inlined calls, source line; asked once for each distinct one.

Unwinding must not look at DWARF: to find the inlined calls of every frame costs a hundred times what the frame itself
does. So the unwinder knows none of it, and a second program, with the debug information of the modules that occur, is
asked about the few program counters that a deep stack consists of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.linux.unwind import debug_files
from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.symbols import demangle, plain, readable

_LONGEST_DEBUG_S = 3.0
"""For all questions to debug information together; beyond it names come from symbol tables alone."""


class Symbolizer:
    """Answers for one process."""

    def __init__(
        self,
        program: Any,
        maps: MemoryMap,
        files: MappedFiles,
        tell: Callable[[int], object],
        generated: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """``program`` is drgn's, with the files but without their debug information.

        ``tell`` tells it of the file at an address, which it may not know yet; ``generated`` names the function of code
        that lies in no file.
        """
        import drgn

        self._program, self._maps, self._files, self._tell = program, maps, files, tell
        self._generated = generated
        self._debug = drgn.Program(drgn.Platform(drgn.Architecture.X86_64))
        self._added: set[int] = set()
        self._left_s = _LONGEST_DEBUG_S
        self._known: dict[int, tuple[CodeLocation, ...]] = {}

    def at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        """The calls at ``pc``, innermost first: those inlined there, then the function itself.

        ``exact`` says that ``pc`` is where the thread stands, not where a call returns to: the call itself is before.
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
        if module.wants_debug_file() and (apart := debug_files.of(file)) is not None:
            module.try_file(apart)


def _demangled(name: str | None) -> str | None:
    return None if name is None else demangle(name) or plain(name)
