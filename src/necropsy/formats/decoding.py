"""A log's bytes as UTF-8: unpacked and decoded block by block.

PowerShell's ``>`` writes UTF-16 with a byte order mark; its ``Out-File -Append`` and some redirections write none.
Invalid bytes stay as they are: all patterns are ASCII.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from necropsy.errors import InputError
from necropsy.model import Gap

BLOCK = 1 << 18
"""Bytes that are read at a time."""
UNPACKED = 128 << 20
"""Bytes up to which a compressed file may be unpacked whatever it grows by ..."""
RATIO = 100
"""... and the ratio up to which any. Logs reach 10 to 50; what grows a thousandfold was made to hurt."""
_MEMORY_XZ = 96 << 20
"""``xz -9`` needs 65 MiB to unpack, and nobody's log more."""

_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"
_OTHERS = {
    b"PK\x03\x04": "a zip archive: unpack it (`unzip -p FILE | necropsy explain -`)",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it (`zstdcat FILE | necropsy explain -`)",
    b"\x04\x22\x4d\x18": "compressed with lz4: unpack it (`lz4cat FILE | necropsy explain -`)",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it first",
}
# CSI sequences (colours, cursor), OSC ones (titles, links) and the short ones. Each begins with ESC, which none of them
# has inside: an ESC is looked at once. ECMA-48, and "OSC" of xterm's ctlseqs.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[()][0-9A-Z]|[=>78DEHMc])")
_SAMPLE, _COMMON, _MOST = 2048, 6, 1 << 15
_CONTROLS = b"\x00\x08"


class Text:
    """The blocks of ``stream`` as UTF-8. ``bytes``: how much of it was read; ``gaps``: what was not unpacked."""

    def __init__(self, stream: BinaryIO) -> None:
        self.bytes = 0
        self.gaps: list[Gap] = []
        self._stream = stream
        self._first = b""

    def __iter__(self) -> Iterator[bytes]:
        """Yield blocks of about ``BLOCK`` bytes. Raises InputError where the packing is not supported."""
        self._first = self._read(BLOCK)
        for magic, what in _OTHERS.items():
            if self._first.startswith(magic):
                raise InputError(f"this is {what}")
        blocks = self._unpacked() if self._first.startswith((_GZIP, _BZIP2, _XZ)) else self._plain()
        return _as_utf8(blocks)

    def _read(self, size: int) -> bytes:
        """``size`` bytes; fewer only at the end, though a pipe may return less at a time."""
        if self._first:
            first, self._first = self._first[:size], self._first[size:]
            return first
        parts: list[bytes] = []
        while size > 0 and (part := self._stream.read(size)):
            parts.append(part)
            size -= len(part)
            self.bytes += len(part)
        return b"".join(parts)

    def _plain(self) -> Iterator[bytes]:
        while block := self._read(BLOCK):
            yield block

    def _unpacked(self) -> Iterator[bytes]:
        from lzma import LZMAError
        from zlib import error as ZlibError  # noqa: N812 - it is a class

        size = 0
        try:
            for block in self._opened():
                size += len(block)
                yield block
                if size > UNPACKED and size > RATIO * self.bytes:
                    why = f"it grows more than {RATIO} times: only the first {size >> 20} MiB were unpacked"
                    self.gaps.append(Gap(part="log", why=why))
                    return
        except (EOFError, OSError, ZlibError, LZMAError) as error:
            why = f"the compressed file ends or is damaged behind {size} bytes of text: {error}"
            self.gaps.append(Gap(part="log", why=why))

    def _opened(self) -> Iterator[bytes]:
        if self._first.startswith(_XZ):
            yield from _unpack_xz(self)
            return
        import bz2
        import gzip

        packed = io.BufferedReader(_Raw(self))
        opened = gzip.GzipFile(fileobj=packed) if self._first.startswith(_GZIP) else bz2.BZ2File(packed)
        while block := opened.read(BLOCK):
            yield block


class _Raw(io.RawIOBase):
    def __init__(self, text: Text) -> None:
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        part = self._text._read(len(view))  # noqa: SLF001 - the other half of the same thing
        view[: len(part)] = part
        return len(part)


def _unpack_xz(text: Text) -> Iterator[bytes]:
    """As lzma.LZMAFile does it, but with a limit: a file may request a dictionary of gigabytes."""
    import lzma

    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY_XZ)
    data = b""
    while True:
        if unpacker.eof:
            data = unpacker.unused_data or text._read(BLOCK)  # noqa: SLF001 - the other half of the same thing
            data = data.lstrip(b"\0") if len(data) % 4 == 0 else data
            if not data:
                return
            unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY_XZ)
        elif unpacker.needs_input:
            data = text._read(BLOCK)  # noqa: SLF001 - the other half of the same thing
            if not data:
                raise EOFError("it ends before its end mark")
        else:
            data = b""
        if block := unpacker.decompress(data, BLOCK):
            yield block


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    name, mark = _encoding(first)
    if name is None:
        yield first[mark:]
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(name)("replace")
    yield decoder.decode(first[mark:]).encode("utf-8", "replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _encoding(first: bytes) -> tuple[str | None, int]:
    """The text's codec (None: its bytes are fine as they are), and the length of the byte order mark."""
    if first.startswith(codecs.BOM_UTF8):
        return None, len(codecs.BOM_UTF8)
    for mark, name in (
        (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with UTF-16's mark
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if first.startswith(mark):
            return name, len(mark)
    sample = first[:4096]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    # Half of the bytes of Western text in UTF-16 are zero, all of them on one side.
    if odd * 5 > len(sample) * 2 and even * 20 < len(sample):
        return "utf-16-le", 0
    if even * 5 > len(sample) * 2 and odd * 20 < len(sample):
        return "utf-16-be", 0
    return None, 0


_BLANKS = ((b"\xc2\xa0", b" "), (b"\xe2\x80\x8b", b""))
_ENTITIES = (
    (b"&lt;", b"<"),
    (b"&gt;", b">"),
    (b"&quot;", b'"'),
    (b"&nbsp;", b" "),
    (b"&#39;", b"'"),
    (b"&#x27;", b"'"),
    (b"&amp;", b"&"),
)
"""What a text that was copied from a browser holds instead of blanks, brackets and quotes."""
_LOST = tuple(
    f"[{style}m".encode()
    for style in (
        "0",
        "1",
        "2",
        "4",
        *(f"{bold}{colour}" for colour in (*range(30, 38), *range(90, 98)) for bold in ("", "0;", "1;")),
    )
)
"""Colours that lost their ESC on the way, as in many a forum: gone where the one that ends them all is there."""


def plain(block: bytes) -> bytes:
    """``block`` without colours, cursor movements, NULs and backspaces; the lines stay where they are."""
    if b"\x1b" in block:
        # Few sequences make up nearly all: bytes.replace takes a tenth of the expression's time.
        start = block.index(b"\x1b")
        for sequence, times in Counter(_ESCAPE.findall(block, start, start + _SAMPLE)).most_common(_COMMON):
            if times > 2:
                block = block.replace(sequence, b"")
        left = block.count(b"\x1b")
        if left > _MOST:
            block = block.replace(b"\x1b", b"")  # no text any more: whatever it is, it shall not cost seconds
        elif left:
            block = _ESCAPE.sub(b"", block)
    # One byte is looked for in a tenth of the time that several take.
    for written, meant in (*(_ENTITIES if b"&" in block else ()), *(() if block.isascii() else _BLANKS)):
        block = block.replace(written, meant)
    if b"[" in block and b"[0m" in block:
        for sequence in _LOST:
            if sequence in block:
                block = block.replace(b"^[" + sequence, b"").replace(sequence, b"")
    if b"\x00" in block or b"\x08" in block:
        block = block.translate(None, _CONTROLS)
    return block
