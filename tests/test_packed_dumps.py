"""``necropsy open`` of dumps as trackers and archives keep them: in a zip archive, or compressed."""

from __future__ import annotations

import gzip
import lzma
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import needs
from necropsy import viewing
from necropsy.errors import InputError
from necropsy.model import Document
from writers import minidump as w

CODE = 0x7FF6_0000_1234


def dump() -> bytes:
    """A thread that read at 0x10, and no more."""
    regs = w.context(rip=CODE, rsp=0x9000, rcx=0)
    streams = [
        (w.SYSTEM, w.system()),
        (w.THREADS, w.threads([w.Thread(10, regs, 0, 0x9000, bytes(64))])),
        (w.MODULES, w.modules([w.Module("C:\\app\\python.exe", 0x7FF6_0000_0000, 0x19000)])),
        (w.EXCEPTION, w.exception(10, 0xC0000005, CODE, (0, 0x10), regs)),
    ]
    return w.minidump(streams)


def archive(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as one:
        for name, data in files.items():
            one.writestr(f"crash/{name}.dmp", data)
    return path


def told(document: Document) -> tuple[str | None, str, str | None]:
    (report,) = document.reports
    assert report.verdict is not None
    return report.verdict.rule, document.subject.kind, document.subject.path


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


def test_the_dump_in_an_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "crash.zip", python=dump(), readme=b"what I did")
    assert told(viewing.opened(path)) == ("null-dereference", "minidump", str(path))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, pytest.param(zstd, marks=needs.command("zstd"))])
def test_a_compressed_dump(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "python.dmp.packed"
    path.write_bytes(pack(dump()))
    assert told(viewing.opened(path)) == ("null-dereference", "minidump", str(path))


def test_archives_of_which_none_can_be_opened(tmp_path: Path) -> None:
    for name, files, why in (
        ("two.zip", {"one": dump(), "two": dump()}, "with 2 dumps"),
        ("none.zip", {"log": b"free(): invalid pointer"}, "`necropsy explain` reads its logs"),
        ("broken.zip", {"one": b"MDMP"}, "minidump"),
    ):
        with pytest.raises(InputError, match=why):
            viewing.opened(archive(tmp_path / name, **files))


def test_an_archive_with_a_damaged_dump_is_a_line(tmp_path: Path) -> None:
    path = archive(tmp_path / "crash.zip", python=dump() * 50)
    data = bytearray(path.read_bytes())
    data[80:120] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be unpacked"):
        viewing.opened(path)
