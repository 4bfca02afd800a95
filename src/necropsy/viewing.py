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
from pathlib import Path
from typing import Literal, get_args

import msgspec

from necropsy import capsule, record, store
from necropsy.capture.linux import unpack
from necropsy.document import of_crash
from necropsy.errors import InputError, NecropsyError, NoCoreError, NoInputError, UnreadableReportError
from necropsy.model import Document, Process, Subject
from necropsy.reports import listing

Format = Literal["text", "json", "markdown", "html"]
FORMATS: tuple[str, ...] = get_args(Format)


def rendered(document: Document, form: str, *, color: bool = False, width: int = 80) -> str:
    """The document in one of ``FORMATS``; colour and width are the text's only."""
    if form == "json":
        return record.dumps(document).decode()
    if document.kind == "dataset":
        from necropsy.reports import dataset

        return dataset.render(document, form, color=color, width=width)
    if form == "markdown":
        from necropsy.reports import markdown

        return markdown.render(document)
    if form == "html":
        from necropsy.reports.html import render

        return render(document)
    from necropsy.reports import text

    return text.render(document, color=color, width=width) or "No process died in this run.\n"


def place() -> Path:
    """The reports folder, be it there or not.

    Raises:
        NoInputError: there is no home folder, and NECROPSY_OUTPUT names none.

    """
    found = store.folder()
    if found is None:
        raise NoInputError("there is no home folder, so no reports are kept; NECROPSY_OUTPUT=DIR names a place")
    return found


def table(*, width: int | None, color: bool) -> str:
    """The kept reports, newest first; a sentence where there are none. A damaged one is a line that says so.

    Raises:
        NoInputError: there is no such folder, or it may not be read.

    """
    folder = place()
    rows = []
    for path in store.kept(folder):
        identity = store.identity_of(path)
        document, problem = None, None
        try:
            document = capsule.read(path)
        except NecropsyError as error:
            problem = str(error)
        rows.append(listing.Row(identity, store.short(identity), store.worker_of(path), document, problem))
    if not rows:
        return f"No reports are kept in {folder} yet: `necropsy run` keeps one of each death.\n"
    return listing.render(rows, width=width, color=color)


def save_core(path: Path, target: Path, pid: int | None) -> str:
    """Unpack a kept report's core to ``target``; what to do with it, in a line.

    Raises:
        NoInputError: there is none.
        UnreadableReportError: the file is damaged.
        NecropsyError: ``target`` cannot be written.

    """
    try:
        capsule.write_core(path, target, pid)
    except OSError as error:
        raise NecropsyError(f"cannot write {target}: {error.strerror or error}") from error
    reports = capsule.read(path).reports
    environments = [one.crash.environment for one in reports if pid is None or one.crash.pid == pid]
    program = next((one.executable for one in environments if one is not None and one.executable), "PROGRAM")
    from necropsy.capture.minidump import is_minidump

    if is_minidump(target):
        return f"Look at it with WinDbg or Visual Studio, or with: necropsy open {shlex.quote(str(target))}"
    return f"Look at it with: gdb {shlex.quote(program)} {shlex.quote(str(target))}"


def opened(path: Path, images: Sequence[Path] = ()) -> Document:
    """The document of a kept report or a JSON document, or what a core file or a minidump shows.

    ``images``: folders with the programs and libraries of the machine that a minidump comes from.

    Raises:
        NoInputError: the file is missing or may not be read.
        InputError: it is none of them.

    """
    try:
        other = path.exists() and not path.is_file()
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if other:
        raise NoInputError(f"{path} is not a file")
    if capsule.is_zip(path):
        if capsule.is_capsule(path):
            return capsule.read(path)
        with _dump_in_archive(path) as dump:
            return msgspec.structs.replace(opened(dump, images), subject=_subject_of(dump, path))
    try:
        with path.open("rb") as file:
            is_json = file.read(64).lstrip()[:1] == b"{"
            if is_json:
                file.seek(0)
                data = file.read(capsule.LARGEST + 1)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if is_json and len(data) <= capsule.LARGEST:
        try:
            return record.loads(data)
        except UnreadableReportError as error:
            raise UnreadableReportError(f"{path} is {error}") from None
    return _diagnosed(path, images)


_DUMPS = (b"\x7fELF", b"MDMP")
_PACKED = (b"\x1f\x8b", b"\xfd7", b"\x28\xb5")
_LARGEST = 8 << 30
"""Bytes of a dump when unpacked; a larger one is to be unpacked by hand."""


@contextmanager
def _dump_in_archive(path: Path) -> Iterator[Path]:
    """The one core or minidump in a zip archive, the form in which trackers take it, as a file of its own.

    Raises:
        InputError: there is none in it, or there are several; it is encrypted, damaged, or too large.

    """
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="necropsy-") as folder:
        try:
            found = [one for one in archive.infolist()[:1000] if not one.is_dir() and _head(archive, one) in _DUMPS]
            if len(found) != 1:
                holds = f"with {len(found)} dumps: unpack it, and open one of them"
                none = "without a dump or a report; `necropsy explain` reads its logs"
                raise InputError(f"{path} is a zip archive {holds if found else none}")
            if found[0].file_size > _LARGEST:
                raise InputError(f"{path} holds a dump of more than {_LARGEST >> 30} GiB: unpack it by hand")
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
    from necropsy.capture import minidump

    return Subject(kind="minidump" if minidump.is_minidump(dump) else "core", path=str(path))


def _diagnosed(path: Path, images: Sequence[Path]) -> Document:
    from necropsy.capture import minidump

    if minidump.is_minidump(path):
        return _of_minidump(path, images)
    if _is_packed_minidump(path):
        with tempfile.TemporaryDirectory(prefix="necropsy-") as folder:
            dump = Path(folder) / path.stem
            with path.open("rb") as file, dump.open("xb") as out:
                unpack.unpack(file, out)
            return msgspec.structs.replace(_of_minidump(dump, images), subject=_subject_of(dump, path))
    if sys.platform != "linux":
        raise InputError(f"{path} is no minidump and no report of necropsy's; core files are read on Linux only so far")
    from necropsy.capture import core
    from necropsy.rules import crash_rules

    if not core.is_core(path):
        raise InputError(f"{path} is no core file, no minidump and no report of necropsy's")
    crash = core.read(path)
    process = Process(pid=crash.pid, exit=crash.exit) if crash.pid is not None else None
    return of_crash(crash, Subject(kind="core", path=str(path)), crash_rules(), process)


def _is_packed_minidump(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) in _PACKED and file.seek(0) == 0 and unpack.head(file, 4) == _DUMPS[1]
    except (OSError, InputError):
        return False


def _of_minidump(path: Path, images: Sequence[Path]) -> Document:
    from necropsy.capture import minidump
    from necropsy.rules import crash_rules

    crash = minidump.read(path, images=images)
    process = Process(pid=crash.pid, exit=crash.exit) if crash.pid is not None else None
    return of_crash(crash, Subject(kind="minidump", path=str(path)), crash_rules(), process)


def newest_core() -> Path:
    """The newest core or minidump in this folder, or of those that the system keeps.

    Raises:
        NoInputError: there is none.

    """
    from necropsy.capture import minidump

    found = [minidump.newest()]
    if sys.platform == "linux":
        from necropsy.capture import core

        found.append(core.newest())
    paths = [path for path in found if path is not None]
    if not paths:
        raise NoCoreError("no core file or minidump is in this folder, and the system keeps none that may be read")
    return max(paths, key=lambda path: path.stat().st_mtime)


def attached(pid: int, *, python_locals: bool, core_file: Path | None) -> Document:
    """Where a running process stands; it goes on as soon as it is read. ``core_file``: where to write its core.

    Raises:
        NoInputError: there is no such process.
        AttachRefusedError: the kernel does not allow it.
        NecropsyError: the core cannot be written.

    """
    from necropsy.capture.linux.attach import attach
    from necropsy.rules import crash_rules

    command = _command(pid)
    if core_file is None:
        crash = attach(pid, python_locals=python_locals)
    else:
        try:
            with tempfile.TemporaryFile() as packed:
                crash = attach(pid, python_locals=python_locals, core=packed)
                packed.seek(0)
                with gzip.open(packed) as plain, capsule.private(core_file) as out:
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
