"""Which DLL the loader did not find: its status does not say, the import tables of what it did load do.

Where a program looks for DLLs: Microsoft Learn, *Dynamic-link library search order* (safe search mode, no manifest).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from necropsy.capture.windows.debuggee import Debuggee
from necropsy.capture.windows.live import LiveMemory
from necropsy.capture.windows.parameters import Parameters
from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.minidump_records import file_name
from necropsy.model import Message

NOT_FOUND = 0xC0000135
GIVES_UP = frozenset({NOT_FOUND, 0xC0000138, 0xC0000139, 0xC000007B, 0xC0000142})
"""STATUS_DLL_NOT_FOUND, _ORDINAL_NOT_FOUND, _ENTRYPOINT_NOT_FOUND, _INVALID_IMAGE_FORMAT, _DLL_INIT_FAILED."""
WHERE = "import tables"
_API_SETS = ("api-ms-", "ext-ms-")
"""Names that the loader turns into those of other DLLs; no such files are needed."""
_MOST = 2000


def missing(process: Debuggee) -> tuple[Message, ...]:
    """The DLLs that are imported, directly or not, and that lie nowhere where the loader looks."""
    program = process.executable
    if program is None:
        return ()
    parameters = Parameters(LiveMemory(process.handle), process.peb) if process.peb else None
    variables = (parameters.variables if parameters is not None else None) or dict(os.environ)
    folder = parameters.folder if parameters is not None else None
    found = not_found(Path(program), tuple(places(Path(program), variables, folder)))
    return tuple(
        Message(
            kind="missing-library",
            text=f"{name} was not found, which {importer} imports",
            where=WHERE,
            fields={"library": name, "text": f"{importer} imports it", "loader": importer},
        )
        for name, importer in found
    )


def places(program: Path, variables: dict[str, str], folder: str | None) -> Iterator[Path]:
    """The folders in which a program's DLLs are looked for, in order."""
    upper = {name.upper(): value for name, value in variables.items()}
    windows = Path(upper.get("SYSTEMROOT") or upper.get("WINDIR") or "C:\\Windows")
    yield from (program.parent, windows / "System32", windows / "System", windows)
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
            if name.casefold() in seen or name.casefold().startswith(_API_SETS):
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
    with contextlib.suppress(OSError, InputError), path.open("rb", buffering=0) as file:
        return pe.in_file(file).imports
    return ()
