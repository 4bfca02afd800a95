"""Refused libraries of custom ops, compared with the TensorFlow that was mapped in the process.

A process that could not load an op ends by an exception: it is not read like one that dies of a signal. Its mappings
are kept, and files are read only where its words name a library whose symbol was not found.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.errors import InputError
from necropsy.formats import op_abi
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import has, undefined
from necropsy.model import Crash, Environment, Library, Op

_REFUSED = re.compile(r"(?P<path>/[^\s:'\"]+): undefined symbol: _Z")
_MOST_SYMBOLS, _MOST_MISSING, _MOST_OPS = 200_000, 200, 4
_FRAMEWORK = op_abi.PROVIDERS[0].encode()


def mapped(pid: int) -> tuple[str, ...]:
    """Paths of the libraries that are mapped; none where TensorFlow's is not among them."""
    with suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_bytes()
        if _FRAMEWORK in maps:
            names = (line.split(None, 5)[-1] for line in maps.splitlines() if b".so" in line)
            return tuple(dict.fromkeys(os.fsdecode(one) for one in names))
    return ()


def added(ends: Mapping[int, Crash], processes: Iterable[Traced], tail: str | None) -> dict[int, Crash]:
    """``ends``, and for each process that was refused an op what is wrong with that."""
    found = dict(ends)
    for one in processes:
        texts = (tail or "", one.said.text if one.said is not None else "") if one.libraries else ()
        paths = dict.fromkeys(match["path"] for text in texts for match in _REFUSED.finditer(text))
        ops = [op for path in list(paths)[:_MOST_OPS] if (op := _op(path, one.libraries)) is not None]
        if ops:
            libraries = tuple(Library(path=path, distribution="tensorflow") for path in _first(one.libraries)[:2])
            about = Environment(ops=tuple(ops), libraries=libraries)
            crash = found.get(one.pid) or Crash(pid=one.pid)
            found[one.pid] = msgspec.structs.replace(crash, environment=about)
    return found


def _first(libraries: Sequence[str]) -> list[str]:
    return sorted(libraries, key=lambda one: not _is_framework(one))


def _is_framework(path: str) -> bool:
    return path.rpartition("/")[2].startswith(op_abi.PROVIDERS)


def _op(path: str, libraries: Sequence[str]) -> Op | None:
    """The symbols that it lacks in the mapped libraries; None where it cannot be read, or lacks none."""
    with ExitStack() as stack, suppress(OSError, ValueError, InputError):
        wanted = undefined(_opened(path, stack), _MOST_SYMBOLS)
        names = [one.name for one in wanted or () if one.version is None]
        frameworks: list[ElfFile] = []
        for each in _first(libraries):
            if not names:
                return None
            with suppress(OSError, ValueError, InputError):
                file = _opened(each, stack)
                frameworks += [file] if _is_framework(each) else []
                names = [name for name in names if not has(file, name)]
        if not names or not frameworks:
            return None
        abseil, strings = op_abi.of_framework(frameworks[0])
        return Op(
            path=path,
            missing=tuple(names[:_MOST_MISSING]),
            wants_abseil=op_abi.abseil_of(names),
            has_abseil=abseil,
            wants_strings=op_abi.strings_of(
                names[:_MOST_MISSING], lambda name: any(has(one, name) for one in frameworks)
            ),
            has_strings=strings,
        )
    return None


def _opened(path: str, stack: ExitStack) -> ElfFile:
    with open(path, "rb") as file:  # noqa: PTH123 - mmap wants a descriptor
        return ElfFile(stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))
