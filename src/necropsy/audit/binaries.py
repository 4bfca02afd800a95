"""A built library -> what its functions take of the stack: frames, recursion, and the deepest path of each kernel."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from necropsy.audit.depth import CallDepths
from necropsy.errors import InputError, NoInputError
from necropsy.formats import demangle_itanium, frame_sizes
from necropsy.formats.call_graph import CallGraph, FunctionCalls, MachineCode
from necropsy.formats.coff_symbols import CoffSymbols
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_code import ElfCode
from necropsy.formats.elf_dynamic import MACHINES
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.formats.frame_sizes import FrameSizes
from necropsy.formats.pe import X64, Image, in_bytes
from necropsy.formats.pe_code import PeCode
from necropsy.model import Address, Binary, CallCycle, CallPath, Gap, StackFrame

WIDE = 8
"""A frame of an eighth of the stack is worth a finding, because a few such calls fill it."""
_MOST_FUNCTIONS = 20_000
"""Maximum functions followed below one library's kernels, about 3 s."""
_MOST_PATHS = 200
_KERNEL = re.compile(
    r"_ZN\w*(?:7ComputeEPN10tensorflow15OpKernelContextE|12ComputeAsyncEPN10tensorflow15OpKernelContextESt8functionIFvvEE)"
    r"|\?Compute(?:Async)?@\S+@@\w+XPEAVOpKernelContext@tensorflow@@\S*"
)
_DECORATED = re.compile(r"\?(\w+)@((?:\w+@)*\w+)@@")
"""Microsoft's decorated member names, innermost scope first."""
# Of the standard library: as deep as the logarithm of the number of elements, or as a limit that they set themselves.
_SHALLOW = re.compile(
    r"_Rb_tree<?.*::_M_(?:erase|copy)|std::__(?:introsort_loop|introselect|adjust_heap|merge_adaptive\w*"
    r"|merge_without_buffer|inplace_stable_sort|stable_sort_adaptive\w*|chunk_insertion_sort)\b"
)


def look(path: str, stack: int, *, top: int = 10, follow: bool = True) -> tuple[Binary, tuple[Gap, ...]]:
    """Read the library at ``path``, for a stack of ``stack`` bytes, with its ``top`` largest frames.

    ``follow``: trace calls from its kernels. Raises ``NoInputError`` if it is missing or unreadable, ``InputError`` if
    it is not an x86-64 library or has no unwind tables.
    """
    try:
        with Path(path).open("rb") as file:
            try:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise InputError(f"{path} is empty") from None
        with data:
            view = _of_pe(in_bytes(data)) if data[:2] == b"MZ" else _of_elf(ElfFile(data), len(data))
            return _look(view, path, stack, top, follow=follow)
    except InputError as error:
        raise InputError(f"{path} is not a library that can be checked: {error}") from None
    except struct.error as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except FileNotFoundError:
        raise NoInputError(f"there is no file {path}") from None
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from None


def _of_elf(elf: ElfFile, size: int) -> _View:
    needed = max((one.offset + one.file_size for one in elf.segments), default=0)
    if needed > size:
        raise InputError(f"it is cut off: it has {size:,} bytes of at least {needed:,}")
    machine = MACHINES.get(elf.machine, str(elf.machine))
    if machine != "x86_64":
        raise InputError(f"it is for {machine}, and only x86-64 is read")
    names = FunctionTable(elf)

    def symbol(start: int) -> str | None:
        named = names.at(start)
        return named[0] if named is not None and named[1] == start else None

    return _View("linux", frame_sizes.of_elf(elf), ElfCode(elf), symbol)


def _of_pe(image: Image) -> _View:
    if image.machine != X64:
        raise InputError("it is not for x86-64, and nothing else is read")
    names = CoffSymbols(image)

    def symbol(start: int) -> str | None:
        named = names.function_before(start, start) or image.export_in(start, start + 1, start)
        return named[1] if named is not None else None

    return _View("win32", frame_sizes.of_pe(image), PeCode(image), symbol)


def _look(view: _View, path: str, stack: int, top: int, *, follow: bool) -> tuple[Binary, tuple[Gap, ...]]:
    functions = view.functions
    if not len(functions):
        raise InputError("it has no unwind tables (built with -fno-asynchronous-unwind-tables?)")
    gaps = []
    if functions.unknown:
        gaps.append(Gap(part="frames", why=f"the frames of {functions.unknown} functions were not understood"))
    found = Binary(
        path=path,
        system=view.system,
        functions=len(functions),
        stack=stack,
        frames=tuple(view.frame(one) for one in functions.largest(top)),
    )
    if not follow:
        return found, tuple(gaps)
    try:
        view.graph = CallGraph(view.code, functions)
    except ImportError:
        return found, (*gaps, Gap(part="calls", why="capstone is not installed"))
    return _followed(found, view, gaps), tuple(gaps)


class _View:
    """Model objects for a file's functions; traced ones are known to take more or not."""

    def __init__(
        self,
        system: Literal["linux", "win32"],
        functions: FrameSizes,
        code: MachineCode,
        symbol: Callable[[int], str | None],
    ) -> None:
        """``symbol`` gives the mangled name of the function at an address."""
        self.system = system
        self.functions = functions
        self.code = code
        self._symbol = symbol
        self.graph: CallGraph | None = None
        self.known: dict[int, FunctionCalls] = {}

    def symbol(self, index: int) -> str | None:
        return self._symbol(self.functions.starts[index])

    def name(self, index: int) -> str:
        """The demangled name, or the address."""
        symbol = self.symbol(index)
        if symbol is None:
            return f"{self.functions.starts[index]:#x}"
        decorated = _DECORATED.match(symbol)
        if decorated is not None:
            return "::".join([*reversed(decorated[2].rstrip("@").split("@")), decorated[1]])
        return demangle_itanium.readable(symbol)

    def frame(self, index: int) -> StackFrame:
        known = self.known.get(index)
        return StackFrame(
            function=self.name(index),
            bytes=self.functions.frame(index),
            address=Address(self.functions.starts[index]),
            is_dynamic=known is not None and known.is_dynamic,
        )


def _followed(binary: Binary, view: _View, gaps: list[Gap]) -> Binary:
    graph = view.graph
    if graph is None:
        return binary
    named = {index: view.symbol(index) or "" for index in range(len(view.functions))}
    kernels = [index for index, symbol in named.items() if _KERNEL.fullmatch(symbol)]
    roots = kernels or graph.in_data() or list(named)
    depths = CallDepths(view.functions.frame, graph.calls, _MOST_FUNCTIONS)
    depths.reach(roots)
    view.known = depths.known
    if depths.is_cut:
        gaps.append(Gap(part="calls", why=f"calls were followed through {_MOST_FUNCTIONS:,} functions only"))
    if len(roots) > _MOST_PATHS:
        gaps.append(
            Gap(part="paths", why=f"the depth below {len(roots) - _MOST_PATHS:,} further functions was not measured")
        )
    circles = [one for one in depths.circles() if not any(_SHALLOW.search(view.name(each)) for each in one)]
    turning = {each for one in circles for each in one}
    wide = [one for one in depths.known if view.functions.frame(one) * WIDE >= binary.stack]
    paths = []
    below = {}
    for root in roots[:_MOST_PATHS]:
        below[root] = depths.below(root)
        paths.append(_path(root, below[root], depths, view, turning, is_kernel=bool(kernels)))
    return msgspec.structs.replace(
        binary,
        cycles=tuple(_cycle(one, depths, view, below) for one in circles),
        paths=tuple(sorted(paths, key=lambda one: (-one.bytes, one.frames[0].function))),
        wide=tuple(sorted(map(view.frame, wide), key=lambda one: -one.bytes)),
    )


def _path(
    root: int, below: Sequence[int], depths: CallDepths, view: _View, turning: set[int], *, is_kernel: bool
) -> CallPath:
    bytes_, path = depths.deepest(root)
    outside: dict[str, None] = {}
    indirect = 0
    for each in below:
        known = depths.known.get(each)
        indirect += known.indirect if known is not None else 1
        outside.update(dict.fromkeys(map(demangle_itanium.readable, known.outside)) if known is not None else {})
    return CallPath(
        frames=tuple(map(view.frame, path)),
        bytes=bytes_,
        indirect=indirect,
        outside=tuple(sorted(outside)),
        is_kernel=is_kernel,
        is_recursive=any(each in turning for each in below),
    )


def _cycle(circle: Sequence[int], depths: CallDepths, view: _View, below: dict[int, list[int]]) -> CallCycle:
    # Begin with the user's own function: what the standard library does in between is an effect.
    own = next((at for at, each in enumerate(circle) if not view.name(each).startswith("std::")), 0)
    circle = (*circle[own:], *circle[:own])
    entry = next((root for root, each in below.items() if circle[0] in each), circle[0])
    return CallCycle(frames=tuple(map(view.frame, circle)), bytes=depths.turn(circle), entry=view.name(entry))
