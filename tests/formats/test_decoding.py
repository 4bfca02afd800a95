"""Bytes of any encoding and packing as UTF-8, and what hurts nobody."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import decoding
from necropsy.formats.decoding import BLOCK, Text, plain
from necropsy.formats.log import digest

LOG = "epoch 1 – größer\r\nfree(): invalid pointer\r\n日本語\r\n" * 3


class Pipe(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe does."""

    def __init__(self, data: bytes, most: int) -> None:
        self.data, self.most = data, most

    def read(self, size: int = -1) -> bytes:
        part, self.data = self.data[: min(size, self.most)], self.data[min(size, self.most) :]
        return part


def text(data: bytes) -> bytes:
    return b"".join(Text(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("codec", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-32-le", b"\xff\xfe\0\0"),
    ],
)
def test_encodings(codec: str, mark: bytes) -> None:
    assert text(mark + LOG.encode(codec)).decode() == LOG
    assert [message.line for message in digest(io.BytesIO(mark + LOG.encode(codec))).messages] == [2, 5, 8]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(codec: str) -> None:
    western = LOG.replace("日本語", "Japan")
    assert text(western.encode(codec)).decode() == western


def test_a_character_that_two_blocks_share() -> None:
    long = "ä" * BLOCK
    assert b"".join(Text(Pipe(b"\xff\xfe" + long.encode("utf-16-le"), 777))).decode() == long  # type: ignore[arg-type] # a raw stream is read alike


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed(pack: Callable[[bytes], bytes]) -> None:
    log = LOG.encode() * 20_000
    packed = pack(log)
    read = Text(io.BytesIO(packed))
    assert b"".join(read) == log
    assert (read.bytes, read.gaps) == (len(packed), [])
    assert text(pack(log) + pack(b"more")) == log + b"more"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_that_is_cut_is_read_to_where_it_ends(pack: Callable[[bytes], bytes]) -> None:
    log = b"".join(b"%d free(): invalid pointer\n" % (number * number) for number in range(90_000))
    packed = pack(log)
    read = Text(io.BytesIO(packed[: len(packed) // 2]))
    found = b"".join(read)
    assert log.startswith(found)
    assert "ends or is damaged" in read.gaps[0].why


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\x00"])
@given(rest=st.binary(max_size=300))
def test_damaged_packing(head: bytes, rest: bytes) -> None:
    read = Text(io.BytesIO(head + rest))
    b"".join(read)
    assert read.gaps


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_left_after_a_while(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "UNPACKED", 1 << 20)
    packed = pack(bytes(20 << 20))
    read = Text(io.BytesIO(packed))
    assert sum(len(block) for block in read) < 3 << 20
    assert "only the first" in read.gaps[0].why


def test_a_dictionary_of_gigabytes_is_refused() -> None:
    big = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    packed = lzma.compress(b"x", filters=big)
    read = Text(io.BytesIO(packed))
    assert b"".join(read) == b""
    assert read.gaps


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c"])
def test_other_packings_say_what_to_do(head: bytes) -> None:
    with pytest.raises(InputError, match="unpack it"):
        digest(io.BytesIO(head + b"..."))


@pytest.mark.parametrize(
    ("coloured", "bare"),
    [
        (b"\x1b[1;31mCheck \x1b[0mfailed: x", b"Check failed: x"),
        (b"\x1b]0;title\x07text\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", b"textlink"),
        (b"\x1b[2K\x1b[1Gbar\x1b[?25h", b"bar"),
        (b"a\x08\x08b\x00c", b"abc"),
        (b"\x1b]0;no end of a title, then text", b"\x1b]0;no end of a title, then text"),
        (b"\x1b(Btext\x1b[m", b"text"),
        (b"\x1b", b"\x1b"),
        (b"\x1b" * 50_000, b""),
        (b"[2m[36m(pid=7)[0m Check [1;31mfailed[0m", b"(pid=7) Check failed"),
        (b"^[[31mred^[[0m", b"red"),
        (b"no colour a[1m", b"no colour a[1m"),
    ],
)
def test_colours_go(coloured: bytes, bare: bytes) -> None:
    assert plain(coloured) == bare


@given(st.lists(st.sampled_from([b"\x1b[31m", b"\x1b[0m", b"\x1b[38;5;12m", b"word ", b"\n"]), max_size=200))
def test_the_quick_way_takes_off_the_same(parts: list[bytes]) -> None:
    words = b"".join(part for part in parts if not part.startswith(b"\x1b"))
    assert plain(b"".join(parts)) == words


@given(st.binary(max_size=2000), st.integers(1, 64))
def test_any_bytes_in_any_pieces(data: bytes, most: int) -> None:
    try:
        whole = text(data)
    except InputError:
        return
    assert b"".join(Text(Pipe(data, most))) == whole  # type: ignore[arg-type] # a raw stream is read alike
    plain(whole)
