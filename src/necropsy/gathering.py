"""Reads the deaths in one file of any kind that necropsy knows: what `necropsy triage` does with each."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NamedTuple

import msgspec

from necropsy import report_archive, serialize
from necropsy.capture.separate_deaths import MOST
from necropsy.consequences import is_native
from necropsy.errors import InputError, NecropsyError
from necropsy.explanation import ENDED_WELL, Explanation, archives, files, log_deaths
from necropsy.explanation.inputs import Inputs, digests
from necropsy.formats.log import Digest
from necropsy.model import Document
from necropsy.triage import junit
from necropsy.triage.death_rows import deaths
from necropsy.triage.deaths import DeathRow, Fingerprint
from necropsy.triage.documents import ReportDocument
from necropsy.triage.fingerprints import fingerprint
from necropsy.triage.kinds import HEAD, FileKind, kind_of
from necropsy.triage.parts import Part, packed
from necropsy.triage.store import FileRead
from necropsy.triage.walk import FoundFile

LIMIT_S = 60.0
"""Seconds for one file."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a JSON document; ours have 50 thousand, and a campaign's some millions."""
_HASHED_WHOLE = 64 << 20
"""Bytes of a file that is hashed as a whole; of a larger one, a core or a long log, both ends and the size."""
_END = 1 << 20

Rows = tuple[tuple[DeathRow, Fingerprint], ...]


class _Contents(NamedTuple):
    """The deaths in a file, and what of it was not read."""

    rows: Rows = ()
    gaps: tuple[str, ...] = ()


class _TooSlow(BaseException):
    """The time limit; no ``Exception``, because readers take one for a part that cannot be read."""


class _GrowingError(Exception):
    """The file was written to while it was read."""


def read_file(found: FoundFile, known_hash: str | None = None, known_size: int | None = None) -> FileRead:
    """The deaths in a file. Never raises: ``why`` of what it returns says why the file could not be read.

    ``known_hash`` and ``known_size``: of the file when it was read before. Where they are what they were, ``same`` is
    set, and it is not read again; where it begins with what it was, ``grown`` is set.
    """
    try:
        with _time_limit():
            return _read(found, known_hash, found.size if known_size is None else known_size)
    except _TooSlow:
        why = f"reading it took longer than {LIMIT_S:.0f} seconds"
    except _GrowingError:
        why = "it was written to while it was read; the next run reads it"
    except NecropsyError as error:
        why = _without_path(str(error), found)
    except OSError as error:
        why = error.strerror or str(error)
    except RecursionError:
        why = "it is nested too deeply"
    except MemoryError:
        why = "there is not enough memory to read it"
    except Exception as error:  # noqa: BLE001 - one file never stops the others
        why = f"it cannot be read: {type(error).__name__}: {error}"
    return FileRead(found.name, found.size, found.mtime_ns, None, (), why=_in_one_line(why))


def _without_path(text: str, found: FoundFile) -> str:
    """Errors name the file in front: here its path stands beside it."""
    for path in (found.path, found.name, found.path.rpartition("/")[2]):
        text = (
            text.replace(f"cannot read {path}: ", "")
            .removeprefix(f"{path} is ")
            .removeprefix(f"{path}: ")
            .removeprefix(f"{path} ")
        )
    return text


def _in_one_line(text: str) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return f"{line[:297]}..." if len(line) > 300 else line


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise ``_TooSlow`` after ``LIMIT_S``, and again each second, where this system and thread allow it."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield  # the program uses it
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _read(found: FoundFile, known_hash: str | None, known_size: int) -> FileRead:
    # It may be a pipe by now, which would block.
    handle = os.open(found.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb", buffering=0) as file:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise InputError("it is no longer a file")
        if not before.st_size:
            return FileRead(found.name, 0, before.st_mtime_ns, None, ())
        digest = _hash(file, before.st_size)
        if known_hash is not None and digest == known_hash:
            return FileRead(found.name, before.st_size, before.st_mtime_ns, digest, (), same=True)
        grown = known_hash is not None and 0 < known_size < before.st_size and _hash(file, known_size) == known_hash
        file.seek(0)
        contents = _contents(file, before.st_size, found)
        after = os.fstat(handle)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise _GrowingError
    rows, gaps = contents
    return FileRead(found.name, before.st_size, before.st_mtime_ns, digest, rows, grown=grown, gaps=gaps)


def _hash(file: BinaryIO, size: int) -> str:
    """Of the first ``size`` bytes."""
    made = hashlib.blake2b(str(size).encode(), digest_size=16)
    file.seek(0)
    if size <= _HASHED_WHOLE:
        left = size
        while left and (piece := file.read(min(_END, left))):
            made.update(piece)
            left -= len(piece)
    else:
        for place in (0, size - _END):
            file.seek(place)
            made.update(file.read(_END))
    return made.hexdigest()


def _contents(file: BinaryIO, size: int, found: FoundFile) -> _Contents:
    head = file.read(HEAD)
    file.seek(0)
    kind = kind_of(head)
    if kind is None:
        raise InputError("it is a binary file of no kind that necropsy reads")
    return _READERS[kind](file, size, found)


# ---------------------------------------------------------------- each kind


def _document(file: BinaryIO, size: int, found: FoundFile) -> _Contents:
    if size > LARGEST_DOCUMENT:
        raise InputError(f"it is larger than any report of ours ({size >> 20} MiB)")
    return _Contents(deaths(_decoded(_all(file, size)), found.name, fingerprint))


def _all(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


_DECODER = msgspec.json.Decoder(ReportDocument)


def _decoded(data: bytes) -> ReportDocument:
    try:
        document = _DECODER.decode(data)
    except RecursionError:
        raise InputError("its JSON is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f"it is not a necropsy report, or a damaged one: {error}") from None
    if document.schema != 1:
        raise InputError("it is a report of a newer version of necropsy")
    return document


def _zip(file: BinaryIO, _size: int, found: FoundFile) -> _Contents:
    path = Path(found.path)
    if report_archive.is_capsule(path):
        data = serialize.dumps(report_archive.read(path))
        return _Contents(deaths(_decoded(data), found.name, fingerprint, in_capsule=True))
    if _holds_dumps(path):
        return _dump(file, _size, found)
    return _texts(found, archive=True)


def _holds_dumps(path: Path) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            for one in archive.infolist()[:_MOST_MEMBERS]:
                with archive.open(one) as member:
                    if member.read(4) in {b"\x7fELF", b"MDMP"}:
                        return True
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise InputError(f"it is a zip archive that cannot be unpacked: {error}") from None
    return False


_MOST_MEMBERS = 1000


def _dump(_file: BinaryIO, _size: int, found: FoundFile) -> _Contents:
    from necropsy.viewing import opened

    return _Contents(_diagnosed(opened(Path(found.path)), found))


def _packed(file: BinaryIO, size: int, found: FoundFile) -> _Contents:
    try:
        with archives.unpacked(file, found.name) as opened:
            head = opened.read(HEAD)
            kind = kind_of(head)
            if kind == "document":
                data = head + opened.read(LARGEST_DOCUMENT - len(head) + 1)
                return _document(BytesIO(data), len(data), found)
            if kind == "junit":
                return _tests(archives.joined(head, opened), found)
    except (NecropsyError, OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - zlib's, lzma's and zstd's errors have no common root
        raise InputError(f"it is compressed, and damaged: {error}") from None
    if kind in {"core", "minidump"}:
        return _dump(file, size, found)
    if kind == "text":
        return _text(file, size, found)
    if kind == "packed" or kind is None:
        raise InputError("it is compressed, and what is in it is of no kind that necropsy reads")
    return _Contents()


def _text(_file: BinaryIO, _size: int, found: FoundFile) -> _Contents:
    return _texts(found)


def _texts(found: FoundFile, *, archive: bool = False) -> _Contents:
    """The deaths in a text, packed or not, or in an archive of texts, whose lines have no numbers."""
    with files.opened(Path(found.path))[0] as stream:
        explained = _explained(stream, found)
    lines = log_deaths.first_lines(explained.inputs.digests)
    if len(lines) > 1:
        with files.opened(Path(found.path))[0] as stream:
            several = _several(stream, found, archive=archive)
        if several is not None:
            return several
    document = explained.document
    if document is None or not document.reports or not _tells_of_an_end(document, explained.inputs):
        return _Contents()
    return _Contents(_numbered(_diagnosed(document, found), 0, lines[0] if len(lines) == 1 and not archive else None))


def _several(stream: BinaryIO, found: FoundFile, *, archive: bool) -> _Contents | None:
    """The deaths of a log that tells of more than one; None where it is one after all."""
    rows: list[tuple[DeathRow, Fingerprint]] = []
    count = 0

    def use(death: log_deaths.ToldDeath) -> None:
        nonlocal count
        count += 1
        document = _explanation((death.digest,), found).document
        if document is not None and document.reports and not _is_plain(document):
            rows.extend(_numbered(_diagnosed(document, found), death.place, None if archive else death.line))

    more = log_deaths.read_each(stream, found.name, use)
    gaps = (f"it tells of more than {MOST:,} deaths: the first {MOST:,} were read",) if more else ()
    return _Contents(tuple(rows), gaps) if count > 1 else None


def _numbered(rows: Rows, number: int, line: int | None) -> Rows:
    return tuple((msgspec.structs.replace(row, number=number, line=line), made) for row, made in rows)


def _junit(file: BinaryIO, _size: int, found: FoundFile) -> _Contents:
    return _tests(file, found)


def _tests(stream: BinaryIO, found: FoundFile) -> _Contents:
    rows: list[tuple[DeathRow, Fingerprint]] = []
    tests = junit.FailedTests(stream)
    for one in tests:
        document = _explained(BytesIO(one.text.encode("utf-8", "surrogatepass")), found).document
        if document is None or not document.reports or _is_plain(document):
            continue  # that a test has failed is no death
        rows += _numbered(_diagnosed(document, found), len(rows), None)
    total, most = junit.MOST_TESTS + tests.more, junit.MOST_TESTS
    gaps = (f"of {total:,} failed tests the first {most:,} were read",) if tests.more else ()
    return _Contents(tuple(rows), gaps)


def _explained(stream: BinaryIO, found: FoundFile) -> Explanation:
    return _explanation(tuple(digests(stream, found.name)), found)


def _explanation(told: tuple[Digest, ...], found: FoundFile) -> Explanation:
    from necropsy.rules import crash_rules

    return Explanation(Inputs(words=(found.name,), digests=told, sources=(found.name,)), crash_rules)


def _diagnosed(document: Document, found: FoundFile) -> Rows:
    """Of a document that was just made, whose id means nothing."""
    narrow = _decoded(serialize.dumps(document))
    return deaths(msgspec.structs.replace(narrow, id=""), found.name, fingerprint)


def _is_plain(document: Document) -> bool:
    """All that is known is that a Python exception was printed, or an exit status; no signal ended it."""
    report = document.reports[0]
    return report.verdict is not None and report.verdict.rule in ENDED_WELL and not is_native(report)


def _tells_of_an_end(document: Document, inputs: Inputs) -> bool:
    """Programs print tracebacks of exceptions that they caught; the one that ended a program is its last words."""
    end = document.reports[0].crash.exit
    if not _is_plain(document) or (end is not None and end.kind not in {"running", "unknown"}):
        return True
    said = [line.strip() for digest in inputs.digests for line in digest.tail.splitlines() if line.strip()]
    last = said[-1] if said else ""
    return any(
        one.fields.get("exception") and last.startswith(one.fields["exception"])
        for one in document.reports[0].crash.messages or ()
    )


def _nothing(_file: BinaryIO, _size: int, _found: FoundFile) -> _Contents:
    return _Contents()


_READERS: dict[FileKind, Callable[[BinaryIO, int, FoundFile], _Contents]] = {
    "document": _document,
    "zip": _zip,
    "core": _dump,
    "minidump": _dump,
    "junit": _junit,
    "text": _text,
    "packed": _packed,
    "other": _nothing,
}


def read_part(part: Part) -> bytes:
    """Read the files of a part: what ``parts.unpacked`` takes."""
    return packed([read_file(one.file, one.known_hash, one.known_size) for one in part])
