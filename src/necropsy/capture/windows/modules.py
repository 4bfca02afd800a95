"""The files that were loaded, which have the unwind tables of x64 Windows.

A file is used only where its TimeDateStamp and its size as an image are those of the loaded module, and nothing else
contradicts. A stack that was unwound by another build's tables looks clean.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from necropsy.capture.process.memory import Memory
from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.minidump_records import ModuleRecord, file_name
from necropsy.formats.pe import Image
from necropsy.formats.pe_relocations import Relocations
from necropsy.formats.x64_unwind import Unwinder
from necropsy.model import Gap

_IAT = 12
_MOST_FILES = 400_000
_LONGEST_LISTING_S = 10.0
_HEADERS = 0x400


class LoadedModule:
    """One module of the process, and its image, which is looked for at the first question."""

    def __init__(self, module: ModuleRecord, images: ModuleImages) -> None:
        self.module, self._images = module, images
        self.file: Path | None = None
        """The file that ``image`` is read from; None where it is read from memory."""

    @property
    def low(self) -> int:
        """Where it is loaded."""
        return self.module.base

    @property
    def high(self) -> int:
        """Its end."""
        return self.module.base + self.module.size

    @cached_property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.module.name

    @cached_property
    def image(self) -> Image | None:
        """The image itself; None where it is neither in a file here nor in the memory that was kept."""
        found = self._images.find(self.module)
        if found is not None:
            self.file, image = found
            return image
        return self._images.in_memory(self.module)

    @cached_property
    def unwinder(self) -> Unwinder | None:
        """Its unwind tables; None without an image, or for another processor than x64."""
        image = self.image
        if image is None or image.machine != pe.X64 or not image.has_functions:
            return None
        return Unwinder(image, lambda rva, size: self._images.memory.some(self.low + rva, size))

    def begin_of(self, address: int) -> int | None:
        """Where the function at ``address`` begins; None where no table tells."""
        image, unwinder = self.image, self.unwinder
        try:
            part = image.function(address - self.low) if image is not None and unwinder is not None else None
            return None if part is None or unwinder is None else self.low + unwinder.primary(part).begin
        except InputError:
            return None

    @cached_property
    def _relocations(self) -> Relocations | None:
        return None if self.image is None or self.image.mapped else Relocations(self.image, self.low)

    def initial(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes as they were when the image had been loaded; the program may have changed them since."""
        return b"" if self._relocations is None else self._relocations.some(address - self.low, size)

    def constant(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes that the program cannot have changed since it was loaded."""
        rva = address - self.low
        if self._relocations is None or self.image is None:
            return b""
        section = self.image.section_at(rva)
        if section is None or section.writable:
            return b""
        # The loader has put addresses of functions there, even where the section may only be read.
        low, length = self.image.directory(_IAT)
        if low <= rva < low + length:
            return b""
        if rva < low:
            size = min(size, low - rva)
        return self._relocations.some(rva, size)


class ModuleImages:
    """The modules of one process, by address."""

    def __init__(self, modules: Sequence[ModuleRecord], memory: Memory, folders: Sequence[Path] = ()) -> None:
        """``memory``: as it was kept; ``folders``: where images are looked for, with all that lies below."""
        self.modules = tuple(LoadedModule(one, self) for one in sorted(modules, key=lambda one: one.base))
        self._lows = [one.low for one in self.modules]
        self._kept, self._folders = memory, tuple(folders)
        self.memory: Memory = FilledMemory(memory, self)
        """The memory, where it has holes filled with what the images hold."""
        self._refused: dict[str, str] = {}
        self._missing: list[str] = []
        self._partly: list[str] = []
        self._listing_cut = False
        self._close = contextlib.ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._close.close()

    def at(self, address: int) -> LoadedModule | None:
        """The module that holds ``address``."""
        index = bisect_right(self._lows, address) - 1
        if index < 0:
            return None
        one = self.modules[index]
        return one if address < one.high else None

    # -- finding ------------------------------------------------------------------------------------------------------

    def find(self, module: ModuleRecord) -> tuple[Path, Image] | None:
        """The file that was loaded as this module, if it is here."""
        seen: set[Path] = set()
        refused: str | None = None
        for path in self._candidates(module):
            if path in seen:
                continue
            seen.add(path)
            image = self._opened(path)
            if image is None:
                continue
            differs = self._differs(image, module)
            if differs is None:
                return path, image
            refused = refused or f"{path.name} in {path.parent} is not what was loaded: {differs}"
        if refused is not None:
            self._refused[module.name] = refused
        self._missing.append(module.name)
        return None

    def in_memory(self, module: ModuleRecord) -> Image | None:
        """The image as it lies in the memory that was kept, where at least its headers do."""
        try:
            image = Image(lambda rva, size: self._kept.some(module.base + rva, size), mapped=True)
        except InputError:
            return None
        if image.size_of_image != module.size:
            return None
        table, _ = image.directory(3)
        if image.at(table, 12) is not None:
            self._missing.remove(module.name)
        return image

    def _candidates(self, module: ModuleRecord) -> Iterator[Path]:
        name = module.name
        for folder in self._folders:
            key = f"{module.timestamp:08X}{module.size:x}"
            for spelled in dict.fromkeys((key, key.lower(), key.upper())):
                yield folder / name / spelled / name
        yield from self._listing.get(name.casefold(), ())
        yield from _installed(module.path)

    def named(self, name: str) -> list[Path]:
        """Files of that name in the folders, for PDBs."""
        return self._listing.get(name.casefold(), [])

    @cached_property
    def _listing(self) -> dict[str, list[Path]]:
        wanted = {one.name.casefold() for one in self.modules}
        found: dict[str, list[Path]] = {}
        count, deadline = 0, time.monotonic() + _LONGEST_LISTING_S
        for folder in self._folders:
            if folder.is_file():
                found.setdefault(folder.name.casefold(), []).append(folder)
            for place, inner, files in os.walk(folder):
                inner.sort()
                for name in files:
                    if name.casefold() in wanted or name.casefold().endswith(".pdb"):
                        found.setdefault(name.casefold(), []).append(Path(place, name))
                count += len(files)
                if count > _MOST_FILES or time.monotonic() > deadline:
                    self._listing_cut = True
                    return found
        return found

    def _opened(self, path: Path) -> Image | None:
        try:
            if not path.is_file():
                return None
            # Read, not mapped: of a file that somebody makes shorter meanwhile, a mapping would kill us.
            file = path.open("rb", buffering=0)
        except OSError:
            return None
        try:
            image = pe.in_file(file)
        except InputError:
            file.close()
            return None
        self._close.callback(file.close)
        return image

    def _differs(self, image: Image, module: ModuleRecord) -> str | None:
        """The difference between the file and what was loaded."""
        if (image.timestamp, image.size_of_image) != (module.timestamp, module.size):
            return (
                f"TimeDateStamp {image.timestamp:#010x} and size {image.size_of_image:,}, "
                f"loaded were {module.timestamp:#010x} and {module.size:,}"
            )
        ours, theirs = image.codeview, module.codeview
        if ours is not None and theirs is not None and theirs.kind == ours.kind:
            key, other = (ours.identity.upper(), ours.age), (theirs.identity.upper(), theirs.age)
            if key != other:
                return "it belongs to another PDB"
        if image.checksum and module.checksum and image.checksum != module.checksum:
            return f"checksum {image.checksum:#x}, loaded was {module.checksum:#x}"
        return None

    # -- what is reported of it ----------------------------------------------------------------------------------------

    def gaps(self, architecture: str | None = "x64") -> tuple[Gap, ...]:
        """Which images that were asked for are not at hand; ``architecture``: None where they are none of Windows."""
        found = [Gap(part="images", why=why) for why in self._refused.values()]
        missing = [name for name in dict.fromkeys(self._missing) if name not in self._refused]
        if missing:
            names = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if missing[6:] else "")
            what = "tables" if architecture == "x64" else "code"
            why = f"not here: {names}; without their {what} callers are guessed. --images FOLDER says where they are"
            if architecture is None:
                why = "libraries of Linux and macOS are not read: functions have no names, and callers are guessed"
            found.append(Gap(part="images", why=why))
        if self._listing_cut:
            found.append(Gap(part="images", why="the folders hold too many files: not all of them were looked at"))
        return tuple(found)


class FilledMemory(Memory):
    """Memory whose holes are filled with what the images hold and programs do not change: code and constants."""

    def __init__(self, inner: Memory, images: ModuleImages) -> None:
        self._inner, self._images = inner, images

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        data = self._inner.some(address, size)
        if len(data) == size or size <= 0:
            return data
        pieces = [data]
        address, size = address + len(data), size - len(data)
        while size > 0:
            one = self._images.at(address)
            piece = b"" if one is None else one.constant(address, size)
            piece = piece or self._inner.some(address, size)
            if not piece:
                break
            pieces.append(piece)
            address, size = address + len(piece), size - len(piece)
        return b"".join(pieces)


def is_local(path: str, *, windows: bool) -> bool:
    r"""The path of a module may be opened: it is absolute, and on this machine.

    A dump may name anything. Windows asks for ``\\server\share`` over the network, and sends credentials along.
    """
    if windows:
        return len(path) > 2 and path[0].isalpha() and path[0].isascii() and path[1] == ":" and path[2] in "\\/"
    return path.startswith("/")


def _installed(path: str) -> Iterator[Path]:
    """Where the same file may be on this machine: at the same path, or in this Python and its packages."""
    parts = path.replace("\\", "/").split("/")
    if is_local(path, windows=os.name == "nt"):
        yield Path(path)
    folded = [part.casefold() for part in parts]
    if "site-packages" in folded:
        below = parts[folded.index("site-packages") + 1 :]
        if ".." not in below:
            for scheme in ("platlib", "purelib"):
                yield Path(sysconfig.get_path(scheme), *below)
    name = file_name(path)
    if name and name not in {".", ".."}:
        for folder in dict.fromkeys((sys.base_prefix, sys.prefix)):
            yield Path(folder, name)
            yield Path(folder, "DLLs", name)
