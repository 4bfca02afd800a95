"""Names of functions of the op's library, for the places where workers died: the same for all types of a template."""

from __future__ import annotations

import re
from pathlib import Path

from necropsy.capture.process.symbols import readable
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_symbols import FunctionTable

_INNERMOST = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]")
_OPERATOR = re.compile(r"\boperator\(\)")


def without_types(function: str) -> str:
    """``Gather::Compute`` for ``Gather<float, int>::Compute(Context*)``."""
    function, before = _OPERATOR.sub("operator_call", function), ""
    while function != before:
        before, function = function, _INNERMOST.sub("", function)
    return function.strip()


class FunctionNames:
    """The functions of one library, by their places in the file."""

    def __init__(self, library: Path) -> None:
        self._name = library.name
        self._elf: ElfFile | None = None
        try:
            self._elf = ElfFile(library.read_bytes())
            self._table = FunctionTable(self._elf)
        except (OSError, InputError):
            self._elf = None

    def of(self, place: str | None) -> str | None:
        """``my_op.so Gather::Compute`` for ``my_op.so+0x1a2b``; what cannot be named stays as it is."""
        if place is None or self._elf is None:
            return place
        file, _, offset = place.rpartition("+")
        if file != self._name:
            return place
        at = int(offset, 16)
        for segment in self._elf.segments:
            if segment.offset <= at < segment.offset + segment.file_size:
                found = self._table.at(at - segment.offset + segment.address)
                return place if found is None else f"{file} {without_types(readable(found[0]))}"
        return place
