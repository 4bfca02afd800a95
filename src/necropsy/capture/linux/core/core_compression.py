"""Cores as they are kept: in gzip, xz or zstd, or inside of apport's crash files."""

from __future__ import annotations

import base64
import binascii
import gzip
import importlib
import os
import shutil
import subprocess
import tempfile
import zlib
from typing import IO

from necropsy.errors import InputError

ELF = b"\x7fELF"
LARGEST = 8 << 30
"""Bytes of a core when unpacked; a larger one is to be unpacked by hand."""
_PIECE = 1 << 20
_GZIP, _XZ, _ZSTD, _LZ4 = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_APPORT = b"ProblemType:"
_APPORTS_CORE = b"CoreDump: base64"


def head(file: IO[bytes], size: int) -> bytes:
    """The first bytes of what is packed in ``file``; empty where damaged. Raises InputError for unknown packing."""
    with tempfile.TemporaryFile() as out:
        unpack(file, out, most=size)
        out.seek(0)
        return out.read(size)


def unpack(file: IO[bytes], out: IO[bytes], most: int | None = None) -> None:
    """Unpack ``file`` to ``out``, at most about ``most`` bytes, up to any damage.

    Raises InputError where the packing is unknown, or nothing can be read.
    """
    magic = file.read(16)
    file.seek(0)
    try:
        _by_kind(magic, file, out, most)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - zlib's, lzma's and zstd's errors have no common root
        # Cut off or damaged: what came before can be read.
        if not out.tell():
            raise InputError(f"damaged: {error}") from None
        out.truncate(out.tell())
    if not out.tell():
        raise InputError("damaged: nothing is packed in it")


def _by_kind(magic: bytes, file: IO[bytes], out: IO[bytes], most: int | None) -> None:
    if magic.startswith(_GZIP):
        _copy(gzip.GzipFile(fileobj=file), out, most)
    elif magic.startswith(_XZ):
        _copy(_xz(file), out, most)
    elif magic.startswith(_ZSTD):
        _zstd(file, out, most)
    elif magic.startswith(_LZ4):
        raise InputError("compressed by lz4: use `lz4 -d` first")
    elif magic.startswith(_APPORT):
        _apport(file, out, most)
    else:
        raise InputError("not an ELF core")


def _xz(file: IO[bytes]) -> IO[bytes]:
    try:
        lzma = importlib.import_module("lzma")
    except ImportError:
        raise InputError("compressed by xz, which this Python cannot unpack: use `unxz` first") from None
    opened: IO[bytes] = lzma.LZMAFile(file)
    return opened


def _zstd(file: IO[bytes], out: IO[bytes], most: int | None) -> None:
    """By Python's own decompressor (3.14 and later), else by the command ``zstd``."""
    try:
        opened: IO[bytes] = importlib.import_module("compression.zstd").ZstdFile(file)
    except ImportError:
        command = shutil.which("zstd")
        if command is None:
            raise InputError("compressed by zstd, which this Python cannot unpack: use `zstd -d` first") from None
    else:
        _copy(opened, out, most)
        return
    words = [command, "-dcq"]
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # where Python stands in its buffer, the command does not know
    with subprocess.Popen(words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            if process.stdout is not None:
                _copy(process.stdout, out, most)
        finally:
            process.kill()


def _copy(source: IO[bytes] | gzip.GzipFile, out: IO[bytes], most: int | None) -> None:
    """Holes stay holes: a long run of zeros takes no room on the disk."""
    total = 0
    while (most is None or total < most) and (piece := source.read(min(_PIECE, most or _PIECE))):
        total += len(piece)
        _put(piece, out, total)
    out.truncate(out.tell())


def _put(piece: bytes, out: IO[bytes], total: int) -> None:
    if total > LARGEST:
        raise InputError(f"larger than {LARGEST >> 30} GiB when unpacked: unpack it by hand")
    if piece.count(0) == len(piece):
        out.seek(len(piece), os.SEEK_CUR)
    else:
        out.write(piece)


def _apport(file: IO[bytes], out: IO[bytes], most: int | None) -> None:
    """``/var/crash/*.crash``: ``CoreDump``, one gzip stream in base64 lines (apport's ``ProblemReport.write``)."""
    unpacking, inside, total = zlib.decompressobj(31), False, 0
    while line := file.readline(_PIECE * 8):
        if not line.startswith(b" "):
            if inside:
                break
            inside = line.startswith(_APPORTS_CORE)
            continue
        if not inside:
            continue
        try:
            data = base64.b64decode(line.strip(), validate=True)
        except binascii.Error:
            raise InputError("apport's crash file is damaged") from None
        while data and (most is None or total < most):
            piece = unpacking.decompress(data, _PIECE)
            data = unpacking.unconsumed_tail
            total += len(piece)
            _put(piece, out, total)
    if not total:
        raise InputError("apport kept no core in it")
    out.truncate(out.tell())
