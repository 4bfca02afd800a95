"""A hundred files that are not what they should be, for a folder in which some are."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import socket
import struct
import zipfile
from pathlib import Path

SPECIAL = ("fifo", "socket", "unreadable", "dangling")
"""Kinds that only some systems and users can make."""


def make(folder: Path, document: bytes) -> set[str]:
    """Write them to ``folder``; ``document``: a good one, to be damaged. Returns the names of those to be skipped."""
    chance = random.Random(1)
    bad: dict[str, bytes] = {}
    for number in range(30):
        bad[f"cut-{number}.json"] = document[: 200 + number * (len(document) - 300) // 30]
    for number in range(20):
        bad[f"noise-{number}.bin"] = bytes(chance.randrange(256) for _ in range(500 + number * 100))
    bad["deep.json"] = b'{"schema": 1, "a": ' + b"[" * 200_000
    bad["deep-too.json"] = b'{"schema": 1, "a": ' + b'{"a":' * 100_000
    bad["one-line.json"] = b'{"schema": 1, "kind": "' + b"x" * (8 << 20)
    bad["types.json"] = b'{"schema": "one", "kind": 3}'
    bad["empty-object.json"] = b'{"schema": 1}'
    bad["newer.json"] = document.replace(b'"schema": 1', b'"schema": 2', 1)
    bad["utf8.json"] = b'{"schema": 1, "kind": "\xff\xfe"}'
    for number in range(5):
        bad[f"nan-{number}.json"] = b'{"schema": ' + (b"NaN", b"1e999", b"-", b"[1", b"null")[number] + b"}"
    bad["cut.gz"] = gzip.compress(document)[:100]
    bad["damaged.gz"] = _damaged(gzip.compress(document))
    bad["cut.xz"] = lzma.compress(document)[:90]
    bad["damaged.xz"] = _damaged(lzma.compress(document))
    bad["header.zst"] = b"\x28\xb5\x2f\xfd" + b"\xff" * 50
    bad["packed-noise.gz"] = gzip.compress(bad["noise-0.bin"])
    bad["twice.gz"] = gzip.compress(gzip.compress(b"text"))
    bad["bomb.json.gz"] = gzip.compress(b'{"schema": 1, "a": "' + b" " * (70 << 20))
    bad["cut.necropsy"] = b"PK\x03\x04" + b"\0" * 60
    bad["end.zip"] = b"PK\x05\x06" + b"\0" * 18
    bad["not-a.zip"] = b"PK\x03\x04" + document[:1000]
    for number in range(10):
        core = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHI", 4, 62, 1)
        bad[f"core.{number}"] = core + bytes(chance.randrange(256) for _ in range(number * 100))
    for number in range(10):
        bad[f"dump-{number}.dmp"] = b"MDMP" + bytes(chance.randrange(256) for _ in range(number * 50))
    bad["bomb.xml"] = _entities()
    bad["cut.xml"] = b"<?xml version='1.0'?><testsuites><testsuite><testcase name='a'><failure>"
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    _zip(folder / "capsule-without-report.zip", {"report.json": b"[]"})
    _zip(folder / "two-dumps.zip", {"a.dmp": b"MDMP", "b.dmp": b"MDMP"})
    names = {*bad, "capsule-without-report.zip", "two-dumps.zip"}
    for odd in (
        "line\nbreak.json",
        "escape\x1b[2Jsequence.json",
        "bell\x07.json",
        "##[error]x.json",
        "-rf.json",
        "a b.json",
    ):
        (folder / odd).write_bytes(b'{"schema": 1, "cut')
        names.add(odd)
    return names | _special(folder)


def _special(folder: Path) -> set[str]:
    names = set()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "fifo")
        names.add("fifo")
        (folder / "dangling").symlink_to(folder / "nowhere")
        names.add("dangling")
        (folder / "loop").symlink_to(folder)  # a link to a folder: not followed, and nothing to tell
        raw = os.path.join(os.fsencode(folder), b"latin-\xe9.json")
        with open(raw, "wb") as file:
            file.write(b'{"schema": 1, "cut')
        names.add("latin-\\udce9.json")
        with socket.socket(socket.AF_UNIX) as listener:
            place = os.getcwd()
            try:
                os.chdir(folder)
                listener.bind("socket")
                names.add("socket")
            finally:
                os.chdir(place)
        if os.geteuid() != 0:
            (folder / "unreadable").write_bytes(b"{}")
            (folder / "unreadable").chmod(0)
            names.add("unreadable")
    return names


def _damaged(data: bytes) -> bytes:
    return data[:40] + bytes(255 - one for one in data[40:80]) + data[80:]


def _entities() -> bytes:
    lines = [b'<?xml version="1.0"?><!DOCTYPE testsuites [<!ENTITY a0 "aaaaaaaaaa">']
    lines += [b'<!ENTITY a%d "%s">' % (one, b"&a%d;" % (one - 1) * 10) for one in range(1, 10)]
    return b"".join(lines) + b"]><testsuites><testcase><failure>&a9;</failure></testcase></testsuites>"


def _zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def bombs(folder: Path) -> None:
    """Texts that are small when packed and large when not: they are read as far as is safe."""
    with gzip.open(folder / "bomb.log.gz", "wb", 9) as file:
        for _ in range(300):
            file.write(b"a" * (1 << 20))
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.log", b"b" * (200 << 20))
    (folder / "one-line.log").write_bytes(b"c" * (8 << 20))
    (folder / "many.json").write_bytes(json.dumps([{"a": 1}] * 1000).encode())
