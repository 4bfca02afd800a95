"""Zip archives of logs (GitHub Actions, issue trackers) and zstd; ``formats.decoding`` unpacks single streams."""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, BinaryIO

from necropsy.errors import InputError
from necropsy.formats.decoding import RATIO, UNPACKED
from necropsy.model import Gap

if TYPE_CHECKING:
    import zipfile

    from _typeshed import WriteableBuffer as Buffer

    from necropsy.formats.log import Digest
    from necropsy.formats.text_reports import TextReport

ZIP, ZSTD = (b"PK\x03\x04", b"PK\x05\x06"), b"\x28\xb5\x2f\xfd"
MOST_FILES = 500
"""Texts of an archive to read."""
MOST_PACKED = 8
"""Packed texts of an archive to read, each up to ``UNPACKED`` bytes."""
_PIPED = 1 << 30
"""Bytes of an archive from a pipe, which is copied to disk."""
_DIRECTORY = 32 << 20
"""Bytes of an archive's directory; Python needs ten times as much memory for it."""
_XZ = b"\xfd7zXZ\x00"
_PACKED = (b"\x1f\x8b", b"BZh", _XZ)
_NO_TEXT = (b"\x7fELF", b"MDMP", b"\x89PNG", b"\xff\xd8\xff", b"%PDF", *ZIP, ZSTD)
_PIECE = 1 << 18
_MEMORY_ZSTD = 27
"""Logarithm of the largest window, 128 MiB, as in the command ``zstd``."""
_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"

Read = Callable[[BinaryIO, str], "Digest"]


def joined(head: bytes, stream: IO[bytes]) -> BinaryIO:
    """``stream`` with ``head``, which was read of it, in front again."""
    return io.BufferedReader(_Joined(head, stream), _PIECE)


class _Joined(io.RawIOBase):
    """A stream with its consumed beginning put back."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        super().__init__()
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        part = self._head[: len(view)] or self._stream.read(len(view))
        self._head = self._head[len(view) :]
        view[: len(part)] = part
        return len(part)


class _Limited(io.RawIOBase):
    """A stream unpacked while it is read; it stops at its limit or at damage, and says why."""

    def __init__(self, stream: IO[bytes], room: Callable[[int], bool]) -> None:
        super().__init__()
        self._stream, self._room = stream, room
        self.size = 0
        self.why: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Nothing after damage."""
        view = memoryview(buffer)
        if self.why is not None:
            return 0
        try:
            part = self._stream.read(min(len(view), _PIECE))
        except Exception as error:  # noqa: BLE001 - zipfile's, zlib's, lzma's and zstd's errors have no common root
            self.why = f"is damaged after {self.size:,} bytes of text: {error}"
            return 0
        self.size += len(part)
        if part and not self._room(self.size):
            self.why = f"grows more than {RATIO} times: only the first {self.size >> 20} MiB were unpacked"
            return 0
        view[: len(part)] = part
        return len(part)


def _read(limited: _Limited, read: Read, name: str) -> Digest:
    found = read(io.BufferedReader(limited, _PIECE), name)
    if limited.why is None:
        return found
    return replace(found, gaps=(*found.gaps, Gap(part="log", why=f"{name} {limited.why}")))


# ---------------------------------------------------------------- zstd


def of_zstd(stream: BinaryIO, name: str, read: Read) -> Digest:
    """The text in a zstd stream; raises ``InputError`` if there is no unpacker."""
    counted = _Counted(stream)
    with _unpacked_zstd(counted, name) as opened:
        return _read(_Limited(opened, lambda size: size <= UNPACKED or size <= RATIO * counted.size), read, name)


@contextmanager
def unpacked(stream: BinaryIO, name: str) -> Iterator[IO[bytes]]:
    """What is packed in ``stream`` by gzip, bzip2, xz or zstd; whoever reads it limits how much.

    Raises ``InputError`` if there is no unpacker. What reading it raises has no common root.
    """
    head = stream.read(len(_XZ))
    packed = joined(head, stream)
    if head.startswith(ZSTD):
        with _unpacked_zstd(_Counted(packed), name) as opened:
            yield opened
    elif head.startswith(_XZ):
        import lzma

        yield lzma.LZMAFile(packed)  # noqa: SIM115 - whoever reads it ends it, and ``stream`` is the caller's
    elif head.startswith(b"BZh"):
        import bz2

        yield bz2.BZ2File(packed)
    else:
        import gzip

        yield io.BufferedReader(gzip.GzipFile(fileobj=packed))


class _Counted(io.RawIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream, self.size = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        part = self._stream.read(len(view))
        view[: len(part)] = part
        self.size += len(part)
        return len(part)


@contextmanager
def _unpacked_zstd(stream: _Counted, name: str) -> Iterator[IO[bytes]]:
    """By Python's own module (3.14), an installed package, or the command."""
    packed = io.BufferedReader(stream, _PIECE)
    for module in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            zstd = importlib.import_module(module)
            yield zstd.ZstdFile(packed, options={zstd.DecompressionParameter.window_log_max: _MEMORY_ZSTD})
            return
    with suppress(ImportError):
        zstandard = importlib.import_module("zstandard")
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << _MEMORY_ZSTD)
        yield unpacker.stream_reader(packed, read_across_frames=True)
        return
    command = shutil.which("zstd")
    if command is None:
        raise InputError(
            f"{name} is compressed with zstd; install the command `zstd` or Python's `zstandard` to read it"
        )
    with subprocess.Popen(
        [command, "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdin is None or process.stdout is None:  # both were asked for
            raise InputError(f"{name} cannot be unpacked: no pipe")
        feeder = threading.Thread(target=_feed, args=(packed, process.stdin), daemon=True)
        feeder.start()
        try:
            yield io.BufferedReader(_Output(process, process.stdout), _PIECE)
        finally:
            process.kill()
            feeder.join(1.0)


class _Output(io.RawIOBase):
    """A command's output, with an error if it fails."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: IO[bytes]) -> None:
        super().__init__()
        self._process, self._stdout = process, stdout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        part = self._stdout.read(len(view))
        if not part and self._process.wait():
            raise EOFError("it is cut off, or not zstd")
        view[: len(part)] = part
        return len(part)


def _feed(packed: IO[bytes], stdin: IO[bytes]) -> None:
    with suppress(OSError, ValueError):  # the command has ended, or its reader has seen enough
        while piece := packed.read(_PIECE):
            stdin.write(piece)
        stdin.close()


# ---------------------------------------------------------------- zip


def of_zip(stream: BinaryIO, name: str, read: Read) -> tuple[Digest, ...]:
    """The texts in a zip archive that tell about a death, or all of them if none does.

    Raises ``InputError`` if it is damaged, encrypted or has no text, ``OSError`` if it cannot be read.
    """
    import zipfile

    with _seekable(stream, name) as file:
        size = file.seek(0, os.SEEK_END)
        _refuse_long_lists(file, size, name)
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise InputError(f"{name} is a zip archive that is damaged: {error}") from None
        with archive:
            return _Archive(archive, size, name, read).digests()


@contextmanager
def _seekable(stream: BinaryIO, name: str) -> Iterator[IO[bytes]]:
    """A pipe is copied, because the archive's directory is at its end."""
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as file:
        size = 0
        while piece := stream.read(_PIECE):
            size += len(piece)
            if size > _PIPED:
                raise InputError(f"{name} is a zip archive of more than {_PIPED >> 30} GiB: unpack it")
            file.write(piece)
        yield file


def _refuse_long_lists(file: IO[bytes], size: int, name: str) -> None:
    """A directory with millions of files would fill the memory before it can be read.

    Its size is in the end record (APPNOTE.TXT 4.3.16) or, with zip64, in another one (4.3.14).
    """
    file.seek(max(0, size - 65_557))
    end = file.read()
    at = end.rfind(_END)
    listed = int.from_bytes(end[at + 12 : at + 16], "little") if at >= 0 else 0
    locator = end.rfind(_LOCATOR_64)
    if listed == 0xFFFFFFFF and locator >= 0:
        file.seek(min(int.from_bytes(end[locator + 8 : locator + 16], "little"), size))
        record = file.read(56)
        listed = int.from_bytes(record[40:48], "little") if record.startswith(_END_64) else listed
    if listed > _DIRECTORY:
        raise InputError(f"{name} is a zip archive of too many files: unpack it, and give the log alone")


_TOP = re.compile(r"-?\d+_(.+)\.txt")
"""A job's whole log in a GitHub Actions archive; a folder of the job's name has the same by step."""


def is_job(name: str) -> bool:
    """The text is the whole log of a job, a program of its own."""
    return _TOP.fullmatch(name) is not None


class _Archive:
    def __init__(self, archive: zipfile.ZipFile, size: int, name: str, read: Read) -> None:
        self._archive, self._name, self._read, self._size = archive, name, read, size
        self._total, self._packed = 0, 0
        self._gaps: list[str] = []

    def digests(self) -> tuple[Digest, ...]:
        members = _in_order(self._archive.infolist())
        if len(members) > MOST_FILES:
            self._gaps.append(f"of {len(members):,} files in {self._name} the first {MOST_FILES} were read")
        named = []
        for place, info in enumerate(members[:MOST_FILES]):
            if not self._has_room(self._total):
                self._gaps.append(f"{len(members) - place:,} more files in {self._name} were not unpacked")
                break
            if (found := self._member(info)) is not None:
                named.append((info.filename, found))
        if not named:
            raise InputError(f"{self._name} holds no text{': ' + self._gaps[0] if self._gaps else ''}")
        said = [one for one in named if one[1].messages or one[1].pieces]
        if any(is_job(info.filename) for info in members):
            said = self._one_job(said)
        digests = [found for _, found in said or named]
        gaps = tuple(Gap(part="log", why=why) for why in self._gaps)
        return (replace(digests[0], gaps=(*digests[0].gaps, *gaps)), *digests[1:])

    def _one_job(self, said: Sequence[tuple[str, Digest]]) -> list[tuple[str, Digest]]:
        """Jobs are separate programs, so choose the one that tells most about a death."""
        if not said:
            return []
        chosen = max(said, key=lambda one: _weight(one[1]))
        others = [name for name, _ in said if name != chosen[0]]
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            self._gaps.append(
                f"only {chosen[0]} was judged; other jobs tell of failures too: {', '.join(others[:3])}{more}"
            )
        return [chosen]

    def _member(self, info: zipfile.ZipInfo) -> Digest | None:
        import zipfile

        try:
            with self._archive.open(info) as opened:
                head = opened.read(8)
                if head.startswith(_NO_TEXT):
                    if head.startswith((b"\x7fELF", b"MDMP")):
                        why = f"{info.filename} is a core or a dump: unpack it, and `necropsy open` it"
                        self._gaps.append(why)
                    elif head.startswith((*ZIP, ZSTD)):
                        self._gaps.append(f"{info.filename} is packed itself, and was not unpacked")
                    return None
                if head.startswith(_PACKED):
                    self._packed += 1
                    if self._packed > MOST_PACKED:
                        self._gaps.append(f"{info.filename} was not unpacked: {MOST_PACKED} packed files were")
                        return None
                before = self._total
                limited = _Limited(joined(head, opened), lambda size: self._has_room(before + size))
                found = _read(limited, self._read, info.filename)
                self._total = before + limited.size
                return found
        except InputError as error:
            self._gaps.append(f"{info.filename}: {error}")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            # RuntimeError: it is encrypted; NotImplementedError, a subclass: packed in a way that Python does not know.
            self._gaps.append(f"{info.filename} cannot be unpacked: {error}")
        return None

    def _has_room(self, total: int) -> bool:
        return total <= UNPACKED or total <= RATIO * self._size


def _weight(found: Digest) -> tuple[bool, bool, bool]:
    """How much it says about a death: kernel or debugger output, the end, last words."""
    return any(map(_was_seen, found.pieces)), bool(found.pieces), bool(found.messages)


def _was_seen(piece: TextReport) -> bool:
    return piece.crash.fault is not None or piece.crash.crashed_thread is not None


def _in_order(members: Sequence[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """By name with numbers by value, without step texts that their job's log contains."""
    jobs = {match[1] for info in members if (match := _TOP.fullmatch(info.filename))}
    kept = [info for info in members if not info.is_dir() and info.filename.partition("/")[0] not in jobs]

    def key(info: zipfile.ZipInfo) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", info.filename)]

    return sorted(kept, key=key)
