"""A capsule: one compressed file that holds a run's report and what small cores were taken.

It is a zip archive, which any system opens::

    report.json       the document
    report.txt        the same for a reader
    core-4711.gz      a core of process 4711, where one was taken; .xz where that makes a large one smaller
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from necropsy import serialize
from necropsy.errors import InputError, NoInputError, UnreadableReportError
from necropsy.model import Document

if TYPE_CHECKING:
    import gzip
    import lzma
    import zipfile

LARGEST = 256 << 20
"""No report of ours is larger when unpacked; an archive that says so is not one."""
_SMALL = 2 << 20
"""Bytes. Smaller gzip cores stay as they are (it fits 100,000 frames): xz halves them but costs the command 0.2 s."""
_SLOW = 32 << 20
"""Bytes of a gzip core above which xz takes too long."""
_PATIENCE_S = 1.0
"""Time limit for recompressing cores, because the command's end waits for it."""
_DOCUMENT, _TEXT = "report.json", "report.txt"
_CORE = re.compile(r"core-(\d+)(?:\.\d+)?\.(?:gz|xz)")


_LONGEST_COMMENT = 500
_END_OF_ARCHIVE = b"PK\x05\x06"


def signature_of(path: Path) -> str | None:
    """The first report's signature from the archive's comment, or None; a single read keeps comparing hundreds fast."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LONGEST_COMMENT - 22))
            end = file.read()
    except OSError:
        return None
    at = end.rfind(_END_OF_ARCHIVE)
    return end[at + 22 :].decode("utf-8", "replace") or None if at >= 0 else None


def write(
    file: IO[bytes], document: Document, text: str, cores: Mapping[tuple[int, str | None], BinaryIO] | None = None
) -> None:
    """Write a capsule; ``cores``: gzip data by process and time of death. Raises ``OSError`` if that fails."""
    import zipfile

    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
    try:
        if document.reports and document.reports[0].signature:
            archive.comment = document.reports[0].signature.encode("utf-8", "replace")[:_LONGEST_COMMENT]
        archive.writestr(_DOCUMENT, serialize.dumps(document))
        archive.writestr(_TEXT, text.encode("utf-8", "backslashreplace"))
        until = time.monotonic() + _PATIENCE_S
        for name, core in _named(cores or {}).items():
            _add(archive, name, core, smaller=time.monotonic() < until)
        archive.close()
    except BaseException:
        archive.fp = None  # or it would be closed once more when it is collected, with an error on stderr
        raise


def _add(archive: zipfile.ZipFile, name: str, core: BinaryIO, *, smaller: bool) -> None:
    """``smaller``: recompress it to about half the size; the report is already on the screen."""
    import gzip
    import zipfile

    size = core.seek(0, os.SEEK_END)
    core.seek(0)
    better = smaller and _SMALL < size <= _SLOW and importlib.util.find_spec("_lzma") is not None
    info = zipfile.ZipInfo(f"{name}.{'xz' if better else 'gz'}", time.gmtime()[:6])
    with archive.open(info, "w", force_zip64=True) as out:
        if not better:
            shutil.copyfileobj(core, out)
            return
        import lzma

        # Words of 4 bytes, as a stack is made of: 0.2 s and 0.9 MB for 100,000 frames, where gzip makes 1.7 MB.
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "lc": 0, "lp": 2, "pb": 2}]
        with (
            gzip.open(core) as plain,
            lzma.open(out, "wb", format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=filters) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1 << 20)


def _named(cores: Mapping[tuple[int, str | None], BinaryIO]) -> dict[str, BinaryIO]:
    """Unique names, even if a process number was reused within the run."""
    named: dict[str, BinaryIO] = {}
    for (pid, _), core in cores.items():
        name = f"core-{pid}"
        again = 1
        while name in named:
            again += 1
            name = f"core-{pid}.{again}"
        named[name] = core
    return named


# ---------------------------------------------------------------- reading


def is_zip(path: Path) -> bool:
    """The file begins as a zip archive does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def is_capsule(path: Path) -> bool:
    """The file is a zip archive with a report in it, or a damaged one, of which nobody knows."""
    if not is_zip(path):
        return False
    try:
        with _archive(path) as archive:
            return _DOCUMENT in archive.namelist()
    except (NoInputError, UnreadableReportError):
        return True


def read(path: Path) -> Document:
    """The document; raises ``NoInputError``, or ``UnreadableReportError`` if it is damaged or not a capsule."""
    with _archive(path) as archive:
        return serialize.loads(_member(archive, _DOCUMENT, path))


def core_processes(path: Path) -> list[int]:
    """Processes with a core in the file, in report order; raises ``NoInputError`` or ``UnreadableReportError``."""
    with _archive(path) as archive:
        return list(_cores(archive).values())


def write_core(path: Path, target: Path, pid: int | None = None) -> None:
    """Unpack the core of process ``pid``, or the first one, to ``target``, readable by its owner only.

    Raises ``NoInputError`` (no access, no such core), ``UnreadableReportError`` (damaged), or ``OSError`` (``target``).
    """
    with _archive(path) as archive:
        name = next((name for name, of in _cores(archive).items() if pid in {None, of}), None)
        if name is None:
            whose = "core" if pid is None else f"core of process {pid}"
            raise NoInputError(f"{path.name} holds no {whose}")
        with _opened(archive, name, path) as packed, _unpacked(packed, name) as core, private(target) as out:
            _copy(core, out, path)


@contextlib.contextmanager
def private(target: Path) -> Iterator[BinaryIO]:
    """A file that only its owner may read and that appears when complete; pipes and devices are opened directly."""
    if target.exists() and not target.is_file():
        with target.open("wb") as out:
            yield out
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _unpacked(packed: IO[bytes], name: str) -> gzip.GzipFile | lzma.LZMAFile:
    import gzip

    if name.endswith(".gz"):
        return gzip.open(packed)
    try:
        import lzma
    except ImportError as error:
        raise InputError("this Python was built without lzma: it cannot unpack the core") from error
    return lzma.open(packed)


def _cores(archive: zipfile.ZipFile) -> dict[str, int]:
    return {name: int(match[1]) for name in archive.namelist() if (match := _CORE.fullmatch(name))}


def _copy(core: gzip.GzipFile | lzma.LZMAFile, out: BinaryIO, path: Path) -> None:
    while True:
        try:
            piece = core.read(1 << 20)
        except Exception as error:  # noqa: BLE001 - gzip, zlib, lzma and zipfile have each their own
            raise UnreadableReportError(f"the core in {path.name} is damaged: {error}") from None
        if not piece:
            return
        out.write(piece)


def _archive(path: Path) -> zipfile.ZipFile:
    import zipfile

    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableReportError(f"{path} is damaged: {error}") from None


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    import zipfile

    with _opened(archive, name, path) as member:
        try:
            data = member.read(LARGEST + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
            raise UnreadableReportError(f"{path} is damaged: {error}") from None
    if len(data) > LARGEST:
        raise UnreadableReportError(f"{path} is damaged: its report is larger than any of ours")
    return data


def _opened(archive: zipfile.ZipFile, name: str, path: Path) -> IO[bytes]:
    import zipfile

    try:
        return archive.open(name)
    except KeyError:
        raise UnreadableReportError(f"there is no {name} in {path}") from None
    except (zipfile.BadZipFile, ValueError, RuntimeError, OSError) as error:
        # RuntimeError: it is encrypted; NotImplementedError, a subclass: in a way that nobody knows.
        raise UnreadableReportError(f"{path} is damaged: {error}") from None
