"""Which DLL the loader did not find: not its status, but the import tables of the loaded ones show it.

Where a program looks for DLLs: Microsoft Learn, *Dynamic-link library search order* (safe search mode, no manifest).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from necropsy.capture.windows.debuggee import Debuggee
from necropsy.capture.windows.dll_load_failures import DllSearch, ReadLoad, SearchPlaces, is_virtual, opened
from necropsy.capture.windows.live_target import LiveMemory
from necropsy.capture.windows.process_parameters import ProcessParameters
from necropsy.formats.minidump_records import file_name
from necropsy.model import Message

NOT_FOUND = 0xC0000135
GIVES_UP = frozenset({NOT_FOUND, 0xC0000138, 0xC0000139, 0xC000007B, 0xC0000142})
"""STATUS_DLL_NOT_FOUND, _ORDINAL_NOT_FOUND, _ENTRYPOINT_NOT_FOUND, _INVALID_IMAGE_FORMAT, _DLL_INIT_FAILED."""
WHERE = "import tables"
_MOST = 2000


def missing(process: Debuggee) -> tuple[Message, ...]:
    """The DLLs that are imported, directly or not, and that lie nowhere where the loader looks."""
    program = process.executable
    if program is None:
        return ()
    found = not_found(Path(program), tuple(places(Path(program), *_given(process))))
    return tuple(
        Message(
            kind="missing-library",
            text=f"{name} was not found, which {importer} imports",
            where=WHERE,
            fields={"library": name, "text": f"{importer} imports it", "loader": importer},
        )
        for name, importer in found
    )


def failed(process: Debuggee, known: dict[str, ReadLoad | None]) -> tuple[tuple[Message, ...], bool]:
    """The libraries that it failed to load, and whether all were looked at; ``known``: images read so far."""
    program = process.executable
    if program is None:
        return (), True
    variables, folder = _given(process)
    *always, windows = _always(Path(program), variables)
    by_default = tuple(_by_default(variables, folder))
    search = DllSearch(process.loads, SearchPlaces((*always, windows), by_default, windows), known)
    now = time.monotonic()
    return tuple(one.message(now) for one in search.failed()), search.complete


def _given(process: Debuggee) -> tuple[dict[str, str], str | None]:
    """Its variables, or else our own, and its working folder."""
    parameters = ProcessParameters(LiveMemory(process.handle), process.peb) if process.peb else None
    variables = parameters.variables if parameters is not None else None
    return variables or dict(os.environ), parameters.folder if parameters is not None else None


def places(program: Path, variables: dict[str, str], folder: str | None) -> Iterator[Path]:
    """The folders in which a program's DLLs are looked for, in order."""
    yield from _always(program, variables)
    yield from _by_default(variables, folder)


def _always(program: Path, variables: dict[str, str]) -> tuple[Path, ...]:
    """Its own folder and Windows' three, which come last."""
    upper = {name.upper(): value for name, value in variables.items()}
    windows = Path(upper.get("SYSTEMROOT") or upper.get("WINDIR") or "C:\\Windows")
    return program.parent, windows / "System32", windows / "System", windows


def _by_default(variables: dict[str, str], folder: str | None) -> Iterator[Path]:
    upper = {name.upper(): value for name, value in variables.items()}
    if folder:
        yield Path(folder)
    for one in upper.get("PATH", "").split(";"):
        if one.strip():
            yield Path(one.strip().strip('"'))


def not_found(program: Path, folders: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Each DLL that is in none of the folders, and the file that imports it, the nearest to the program first."""
    waiting, seen = [program], {program.name.casefold()}
    lacking: list[tuple[str, str]] = []
    while waiting and len(seen) < _MOST:
        path = waiting.pop(0)
        for name in _imports(path):
            if name.casefold() in seen or is_virtual(name):
                continue
            seen.add(name.casefold())
            file = next((one / name for one in folders if _is_file(one / name)), None)
            if file is None:
                lacking.append((name, file_name(str(path))))
            elif file.parent.name.casefold() not in {"system32", "system"}:
                waiting.append(file)  # Windows' own are whole
    return tuple(lacking)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _imports(path: Path) -> tuple[str, ...]:
    with opened(str(path)) as image:
        return image.imports if image is not None else ()
