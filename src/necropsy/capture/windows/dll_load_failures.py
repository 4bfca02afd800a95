"""Libraries that a program failed to load while it ran, by the debug events and the files.

The system maps a library before it looks for its imports, and tells the debugger of each mapping. Where one is not
found, it unmaps the library, none of whose code has run (R. Chen, *The case of the DLL that refuses to load*, The Old
New Thing, 2013). So a library failed to load if an import was never mapped beside it; the import table and the folders
show which. wine leaves the library mapped, and reports no end.

While the program runs only the events are kept. All reading is done when it has ended, or is about to, and is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from necropsy.capture.windows.dll_events import DllEvents, MappedDll
from necropsy.errors import InputError
from necropsy.formats import pe, pe_imports
from necropsy.formats.minidump_records import file_name
from necropsy.model import Message

WHERE = "debug events and import tables"
API_SETS = ("api-ms-", "ext-ms-")
"""Names that the loader turns into those of other DLLs; no such files are needed."""
_MOST_TOLD = 16
_SECONDS = 1.0


@dataclass(frozen=True)
class SearchPlaces:
    """Where a process' DLLs are looked for, in order.

    ``always``: the program's folder and Windows' own. ``by_default``: the working folder and those of PATH, in which an
    import of Python does not look since 3.8 (``LOAD_LIBRARY_SEARCH_DEFAULT_DIRS``). Folders that the program added, as
    by os.add_dll_directory(), are not known; but libraries in them were mapped from there.
    """

    always: tuple[Path, ...]
    by_default: tuple[Path, ...]
    windows: Path | None = None
    """Windows' own folder."""


@dataclass(frozen=True, kw_only=True)
class FailedLoad:
    """A load that failed: ``load`` is what the program requested, ``importer`` what needs ``library``.

    ``lies``: its folder, where it was not looked for. ``function``: the one that it lacks. ``unfit``: its file, for
    another processor. ``last``: nothing else was loaded after it.
    """

    load: MappedDll
    importer: MappedDll
    library: str
    looked: tuple[Path, ...] = ()
    lies: Path | None = None
    function: str | None = None
    unfit: Path | None = None
    last: bool = False

    def message(self, now: float) -> Message:
        """As the model says it; ``now``: the moment of the end."""
        load, importer = file_name(self.load.path), file_name(self.importer.path)
        fields = {"library": self.library, "load": load, "importer": importer, "path": self.importer.path}
        if self.function is not None:
            kind, text = "undefined-symbol", f"{self.library} has no {self.function}, which {importer} imports"
            fields["symbol"] = self.function
        elif self.unfit is not None:
            kind, text = "bad-library-file", f"{self.unfit} is for another processor than {importer}, which imports it"
            fields |= {"text": "its file is for another processor", "file": str(self.unfit)}
        else:
            kind, text = "missing-library", f"{self.library} was not found, which {importer} imports"
            looked = "; ".join(map(str, self.looked))
            fields["looked"] = looked
            text += f"; looked for in {looked}"
            if self.lies is not None:
                fields["lies"] = str(self.lies)
                text += f"; the file is in {self.lies}"
        if load != importer:
            text += f"; {load} was to be loaded"
        fields["seconds"] = f"{max(0.0, now - self.load.at):.3f}"
        if self.last:
            fields["last"] = "yes"
        return Message(kind=kind, text=text, where=WHERE, fields=fields)


@dataclass(frozen=True)
class ReadLoad:
    """What was read of an image."""

    imports: tuple[str, ...]
    machine: int
    size: int
    """Once it is loaded."""

    @classmethod
    def of(cls, image: pe.Image) -> ReadLoad:
        """What is wanted of an image."""
        return cls(image.imports, image.machine, image.size_of_image)


class DllSearch:
    """Looks for the failed loads of one process."""

    def __init__(
        self,
        loads: DllEvents,
        places: SearchPlaces,
        known: dict[str, ReadLoad | None] | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        """``known``: what was read before, by its path; more is put there. ``seconds``: after these nothing is read."""
        self._all, self._forgotten, self._places = loads.all(), loads.forgotten, places
        self._until = time.monotonic() + seconds
        self._images = known if known is not None else {}
        self.complete = True
        """All that counts could be read in that time."""

    def failed(self) -> tuple[FailedLoad, ...]:
        """One for each library that the program asked for in vain, the last ones, in their order."""
        found: dict[MappedDll, FailedLoad] = {}
        for one in reversed(self._all[1:]):  # the program itself came first
            if len(found) >= _MOST_TOLD or not self._has_time():
                break
            if one.begun <= self._forgotten or self._is_windows(one):
                continue
            failed = self._why(one)
            other = found.get(failed.load) if failed is not None else None
            # What is nowhere comes first, then what is nearest to the library that was asked for.
            if failed is not None and (other is None or _rank(failed) < _rank(other)):
                found[failed.load] = failed
        return tuple(sorted(found.values(), key=lambda one: one.load.begun))

    def _is_windows(self, one: MappedDll) -> bool:
        """Windows' own are complete."""
        windows = self._places.windows
        return windows is not None and one.path.casefold().startswith(f"{windows}\\".casefold())

    def _why(self, one: MappedDll) -> FailedLoad | None:
        read = self._read(one.path)
        if read is None:
            return None
        beside = {other.name: other for other in self._all if other is not one and other.beside(one)}
        absent = [dll for dll in read.imports if dll.casefold() not in beside and not is_virtual(dll)]
        if absent:
            return self._absent(one, read, absent)
        return self._lacking(one, beside) if one.ended is not None else None

    def _absent(self, one: MappedDll, read: ReadLoad, absent: Sequence[str]) -> FailedLoad | None:
        """The first that is nowhere: behind it, the loader did not look."""
        load = self._asked_for(one)
        folders = [Path(load.path).parent, *self._places.always]
        if not load.name.endswith(".pyd"):
            folders += self._places.by_default
        looked = tuple(dict.fromkeys(folders))
        for dll in absent:
            file = _first(dll, (*looked, Path(one.path).parent))
            if file is not None:
                other = self._read(str(file))
                if other is not None and other.machine != read.machine:
                    return self._told(load, one, dll, unfit=file)
                continue  # why it was not loaded cannot be seen
            lies = _first(dll, (*self._places.by_default, *self._folders))
            if lies is None or len(absent) == 1:
                return self._told(load, one, dll, looked=looked, lies=lies.parent if lies is not None else None)
        return None

    def _lacking(self, one: MappedDll, beside: dict[str, MappedDll]) -> FailedLoad | None:
        with opened(one.path) as image:
            rows = tuple(pe_imports.wanted(image)) if image is not None else ()
        for dll in dict.fromkeys(dll for dll, _ in rows):
            other = beside.get(dll.casefold())
            if other is None or self._is_windows(other):
                continue
            with opened(other.path) as image:
                exports = pe_imports.Exports(image) if image is not None else None
                for _, function in (row for row in rows if row[0] == dll and exports is not None):
                    if not self._has_time():
                        return None
                    if exports is not None and exports.offers(function) is False:
                        name = f"ordinal {function}" if isinstance(function, int) else function
                        return self._told(self._asked_for(one), one, file_name(other.path), function=name)
        return None

    def _told(
        self,
        load: MappedDll,
        importer: MappedDll,
        library: str,
        *,
        looked: tuple[Path, ...] = (),
        lies: Path | None = None,
        function: str | None = None,
        unfit: Path | None = None,
    ) -> FailedLoad:
        return FailedLoad(
            load=load,
            importer=importer,
            library=library,
            looked=looked,
            lies=lies,
            function=function,
            unfit=unfit,
            last=self._is_last(load),
        )

    def _asked_for(self, one: MappedDll) -> MappedDll:
        """The library for which this one was mapped: the first of those that import each other up to it."""
        top = one
        for other in reversed(self._all[1:]):
            if other.begun < top.begun and other.beside(top):
                read = self._read(other.path)
                if read is not None and top.name in {dll.casefold() for dll in read.imports}:
                    top = other
        return top

    def _is_last(self, load: MappedDll) -> bool:
        """All that was mapped after it was mapped for it."""
        after = [one for one in self._all if one.begun > load.begun]
        wanted, waiting = {load.name}, [load]
        while waiting:
            read = self._read(waiting.pop().path)
            names = {dll.casefold() for dll in read.imports} - wanted if read is not None else set()
            wanted |= names
            waiting += [one for one in after if one.name in names]
        return all(one.name in wanted for one in after)

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        """Those from which anything was loaded."""
        return tuple(dict.fromkeys(Path(one.path).parent for one in self._all))

    def _has_time(self) -> bool:
        if time.monotonic() > self._until:
            self.complete = False
        return self.complete

    def _read(self, path: str) -> ReadLoad | None:
        if path not in self._images:
            if not self._has_time():
                return None
            with opened(path) as image:
                self._images[path] = ReadLoad.of(image) if image is not None else None
        return self._images[path]


def _rank(failed: FailedLoad) -> tuple[bool, int]:
    return failed.lies is not None, failed.importer.begun


def is_virtual(dll: str) -> bool:
    """It is the name of a set of functions, not of a file."""
    return dll.casefold().startswith(API_SETS)


def _first(dll: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        with suppress(OSError, ValueError):
            if (folder / dll).is_file():
                return folder / dll
    return None


@contextmanager
def opened(path: str) -> Iterator[pe.Image | None]:
    """The image in a file; None where it cannot be read."""
    with ExitStack() as stack:
        image = None
        with suppress(OSError, ValueError, InputError):
            image = pe.in_file(stack.enter_context(Path(path).open("rb", buffering=0)))
        yield image
