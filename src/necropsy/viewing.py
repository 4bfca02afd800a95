"""``list``, ``show``, ``open`` and ``attach``: what is there of earlier deaths, and of processes that live."""

from __future__ import annotations

import gzip
import os
import shlex
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from necropsy import report_archive, serialize, store
from necropsy.capture.linux.core import core_compression
from necropsy.document import of_crash
from necropsy.errors import InputError, NecropsyError, NoCoreError, NoInputError, UnreadableReportError
from necropsy.model import Document, Process, Subject
from necropsy.reports import listing, rendered
from necropsy.rules import page


def place() -> Path:
    """The reports folder, existing or not; raises ``NoInputError`` without a home folder or NECROPSY_OUTPUT."""
    found = store.folder()
    if found is None:
        raise NoInputError("there is no home folder, so no reports are kept; set NECROPSY_OUTPUT=DIR")
    return found


def rows(*, rule: str | None = None, since: datetime | None = None, grouped: bool = True) -> list[listing.ListingRow]:
    """The kept reports, newest first; a damaged one gets a row that says so. Raises ``NoInputError`` without a folder.

    ``rule`` and ``since`` filter by time, and by verdict or a profile's finding. ``grouped``: the newest report of each
    signature, with a count.
    """
    found = []
    for number, path in enumerate(store.kept(place()), start=1):
        if since is not None and moment_of(path) < since.timestamp():
            continue
        identity = store.identity_of(path)
        document, problem = None, None
        try:
            document = report_archive.read(path)
        except NecropsyError as error:
            problem = str(error)
        row = listing.ListingRow(
            identity, store.short(identity), store.worker_of(path), document, problem, number=number
        )
        found_too = {one.rule for one in document.findings} if document is not None else set()
        if rule is None or row.rule == rule or rule in found_too:
            found.append(row)
    return listing.grouped(found) if grouped else found


def table(
    rows: Sequence[listing.ListingRow], form: str = "text", *, width: int | None = None, color: bool = False
) -> str:
    """The rows in one of ``FORMATS``; as text, a sentence where there are none."""
    if form == "json":
        return listing.as_json(rows)
    if form == "markdown":
        return listing.as_markdown(rows)
    if form == "html":
        return listing.as_html(rows)
    if not rows:
        return f"No such reports are kept in {place()}: `necropsy run COMMAND` keeps one of each crash.\n"
    return listing.render(rows, width=width, color=color)


def moment_of(path: Path) -> float:
    """When a kept report was made, in seconds since 1970: by its id, or else by its file."""
    made = listing.made_at(store.identity_of(path))
    if made is not None:
        return made.timestamp()
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def file_named(word: str) -> Path | None:
    """The file named by ``word``; None if it is a report's ID. Raises ``NoInputError`` for a missing path or a URL."""
    if "://" in word:
        raise NoInputError(f"{word} is a URL: download the file first, then: necropsy open FILE")
    path = Path(word)
    try:
        if path.is_file() or (path.exists() and not path.is_dir()):
            return path
    except OSError as error:
        raise NoInputError(f"cannot read {word}: {error.strerror or error}") from error
    if os.sep in word or path.suffix:
        raise NoInputError(f"there is no file {word}")
    return None


def browsed(document: Document, out: Path | None) -> str:
    """Open the document as a page in the browser and say where it is; raises ``NecropsyError`` if writing fails."""
    import webbrowser

    try:
        if out is None:
            handle, name = tempfile.mkstemp(prefix="necropsy-", suffix=".html")
            os.close(handle)
            out = Path(name)
        with report_archive.private(out) as file:
            file.write(rendered(document, "html", pages=page).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise NecropsyError(f"cannot write {out or 'a temporary file'}: {error.strerror or error}") from error
    shown = webbrowser.open(out.absolute().as_uri())
    return f"necropsy: the page is {out}" if shown else f"necropsy: no browser was found; the page is {out}"


def save_core(path: Path, target: Path, pid: int | None) -> str:
    """Unpack a report's core to ``target`` and say how to use it; raises ``NoInputError`` or ``NecropsyError``."""
    try:
        report_archive.write_core(path, target, pid)
    except OSError as error:
        raise NecropsyError(f"cannot write {target}: {error.strerror or error}") from error
    reports = report_archive.read(path).reports
    environments = [one.crash.environment for one in reports if pid is None or one.crash.pid == pid]
    program = next((one.executable for one in environments if one is not None and one.executable), "PROGRAM")
    from necropsy.capture.open_minidump import is_minidump

    if is_minidump(target):
        return f"Look at it with WinDbg or Visual Studio, or with: necropsy open {shlex.quote(str(target))}"
    return f"Look at it with: gdb {shlex.quote(program)} {shlex.quote(str(target))}"


def opened(path: Path, images: Sequence[Path] = ()) -> Document:
    """The document of a kept report or JSON file, or what a core or minidump shows.

    ``images``: folders with the programs and libraries of the machine that it is from. Raises ``NoInputError`` if the
    file is missing or may not be read, and ``InputError`` if it is none of these.
    """
    try:
        other = path.exists() and not path.is_file()
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if other:
        raise NoInputError(f"{path} is not a file")
    if report_archive.is_zip(path):
        if report_archive.is_capsule(path):
            return report_archive.read(path)
        with _dump_in_archive(path) as dump:
            return msgspec.structs.replace(opened(dump, images), subject=_subject_of(dump, path))
    try:
        with path.open("rb") as file:
            head = file.read(64)
            is_json = head.lstrip()[:1] == b"{"
            file.seek(0)
            if is_json:
                data = file.read(report_archive.LARGEST + 1)
            elif head.startswith(_PACKED):
                data = _packed_json(file, path)
                is_json = bool(data)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if is_json and len(data) <= report_archive.LARGEST:
        try:
            return serialize.loads(data)
        except UnreadableReportError as error:
            raise UnreadableReportError(f"{path} is {error}") from None
    return _diagnosed(path, images)


def _packed_json(file: BinaryIO, path: Path) -> bytes:
    """A report that was compressed afterwards; empty where something else is packed, or nothing that can be read."""
    from necropsy.explanation import archives

    try:
        with archives.unpacked(file, str(path)) as packed:
            data = packed.read(64)
            return data + packed.read(report_archive.LARGEST) if data.lstrip()[:1] == b"{" else b""
    except Exception:  # noqa: BLE001 - zlib's, lzma's and zstd's errors have no common root
        return b""


_DUMPS = (b"\x7fELF", b"MDMP")
_PACKED = (b"\x1f\x8b", b"\xfd7", b"\x28\xb5")
_LARGEST = 8 << 30
"""Unpacked bytes of a dump; a larger one must be unpacked by hand."""


@contextmanager
def _dump_in_archive(path: Path) -> Iterator[Path]:
    """Extract a zip archive's only core or minidump to a file; raises ``InputError`` if that is not possible."""
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="necropsy-") as folder:
        try:
            found = [one for one in archive.infolist()[:1000] if not one.is_dir() and _head(archive, one) in _DUMPS]
            if len(found) != 1:
                holds = f"with {len(found)} dumps: unpack it, and open one of them"
                none = "without a dump or a report; `necropsy explain` reads its logs"
                raise InputError(f"{path} is a zip archive {holds if found else none}")
            if found[0].file_size > _LARGEST:
                raise InputError(f"{path} holds a dump of more than {_LARGEST >> 30} GiB: unpack it first")
            target = Path(folder) / (Path(found[0].filename).name or "dump")
            with archive.open(found[0]) as packed, target.open("xb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)  # zipfile gives no more than the size that it says
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            raise InputError(f"{path} cannot be unpacked: {error}") from None
        yield target


def _head(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    with archive.open(one) as file:
        return file.read(4)


def _subject_of(dump: Path, path: Path) -> Subject:
    from necropsy.capture import open_minidump

    return Subject(kind="minidump" if open_minidump.is_minidump(dump) else "core", path=str(path))


def _diagnosed(path: Path, images: Sequence[Path]) -> Document:
    from necropsy.capture import open_minidump

    if open_minidump.is_minidump(path):
        return _of_minidump(path, images)
    if _is_packed_minidump(path):
        with tempfile.TemporaryDirectory(prefix="necropsy-") as folder:
            dump = Path(folder) / path.stem
            with path.open("rb") as file, dump.open("xb") as out:
                core_compression.unpack(file, out)
            return msgspec.structs.replace(_of_minidump(dump, images), subject=_subject_of(dump, path))
    if sys.platform != "linux":
        raise InputError(f"{path} is not a minidump or a necropsy report; core files are read on Linux only so far")
    from necropsy.capture import open_core
    from necropsy.rules import crash_rules

    if not open_core.is_core(path):
        kind = (
            "a program or a library, not a core file: `necropsy run` runs programs"
            if open_core.is_elf(path)
            else "not a core file, minidump or necropsy report; `necropsy explain` reads logs"
        )
        raise InputError(f"{path} is {kind}")
    crash = open_core.read(path, images=images)
    process = Process(pid=crash.pid, exit=crash.exit) if crash.pid is not None else None
    return of_crash(crash, Subject(kind="core", path=str(path)), crash_rules(), process)


def _is_packed_minidump(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) in _PACKED and file.seek(0) == 0 and core_compression.head(file, 4) == _DUMPS[1]
    except (OSError, InputError):
        return False


def _of_minidump(path: Path, images: Sequence[Path]) -> Document:
    from necropsy.capture import open_minidump
    from necropsy.rules import crash_rules

    crash = open_minidump.read(path, images=images)
    process = Process(pid=crash.pid, exit=crash.exit) if crash.pid is not None else None
    return of_crash(crash, Subject(kind="minidump", path=str(path)), crash_rules(), process)


def newest_core() -> Path:
    """The newest core or minidump here, or among the system's; raises ``NoInputError`` if there is none."""
    from necropsy.capture import open_minidump

    found = [open_minidump.newest()]
    if sys.platform == "linux":
        from necropsy.capture import open_core

        found.append(open_core.newest())
    paths = [path for path in found if path is not None]
    if not paths:
        raise NoCoreError("no core file or minidump is in this folder, and the system keeps none that may be read")
    return max(paths, key=lambda path: path.stat().st_mtime)


def attached(pid: int, *, python_locals: bool, core_file: Path | None) -> Document:
    """What a running process is doing; it continues as soon as it is read. ``core_file``: where to write a core.

    Raises ``NoInputError`` (no such process), ``AttachRefusedError``, or ``NecropsyError`` (not Linux, core failed).
    """
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy attach` does not work on {sys.platform} yet")
    from necropsy.capture.linux.supervise.attach import attach
    from necropsy.rules import crash_rules

    command = _command(pid)
    if core_file is None:
        crash = attach(pid, python_locals=python_locals)
    else:
        try:
            with tempfile.TemporaryFile() as packed:
                crash = attach(pid, python_locals=python_locals, core=packed)
                packed.seek(0)
                with gzip.open(packed) as plain, report_archive.private(core_file) as out:
                    shutil.copyfileobj(plain, out, 1 << 20)
        except OSError as error:
            raise NecropsyError(f"cannot write {core_file}: {error.strerror or error}") from error
    process = Process(pid=pid, command=command, exit=crash.exit)
    return of_crash(crash, Subject(kind="process", command=command), crash_rules(), process)


def _command(pid: int) -> tuple[str, ...] | None:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return tuple(os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")) if data else None
