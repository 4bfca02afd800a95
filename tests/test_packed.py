"""``necropsy explain`` of packed inputs: zip archives of logs, and zstd; bombs and damage cost little and are reported."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy import explanation
from necropsy.errors import InputError
from necropsy.explanation import archives
from necropsy.explanation.inputs import Inputs, read
from necropsy.formats.decoding import RATIO
from necropsy.rules import crash_rules

HEAP = b"epoch 1\nfree(): invalid pointer\n"
ABORTED = (
    b"start\nfree(): invalid pointer\n./run.sh: line 1:  4711 Aborted                 (core dumped) python train.py\n"
)
ZSTD = pytest.mark.skipif(shutil.which("zstd") is None, reason="the command zstd is not installed")


def archive(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed_ = io.BytesIO()
    with zipfile.ZipFile(packed_, "w", method) as one:
        for name, data in files.items():
            one.writestr(name, data)
    return packed_.getvalue()


def inputs(data: bytes, folder: Path, name: str = "logs.zip") -> Inputs:
    (folder / name).write_bytes(data)
    return read([str(folder / name)])


def gaps(found: Inputs) -> list[str]:
    return [gap.why for digest in found.digests for gap in digest.gaps]


def places(found: Inputs) -> list[str]:
    return [message.where for digest in found.digests for message in digest.messages]


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


@contextmanager
def pipe(data: bytes) -> Iterator[BinaryIO]:
    """Bytes that come one way only."""
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reading, "rb") as stream:
        yield stream
    feeder.join()


# ---------------------------------------------------------------- zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_is_read_like_the_files_in_it(method: int, tmp_path: Path) -> None:
    data = archive({"readme.txt": b"nothing\n", "out/train.log": HEAP}, method)
    found = inputs(data, tmp_path)
    assert places(found) == ["train.log line 2"]
    assert gaps(found) == []
    document = explanation.explain([str(tmp_path / "logs.zip"), "134"], crash_rules).document
    assert document is not None
    verdict = document.reports[0].verdict
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("heap-corruption", "likely")
    assert document.subject.path == str(tmp_path / "logs.zip")


def test_an_archive_from_a_pipe() -> None:
    with pipe(archive({"train.log": HEAP})) as stream:
        assert places(read(["-"], stream)) == ["train.log line 2"]


def test_of_several_texts_of_one_bug_report_all_are_evidence(tmp_path: Path) -> None:
    found = inputs(archive({"train.log": HEAP, "shell.txt": b"Aborted (core dumped)\n"}), tmp_path)
    assert len(found.digests) == 2


def test_where_nothing_is_found_all_of_it_was_read(tmp_path: Path) -> None:
    inputs(archive({f"{number}.log": b"fine\n" * 3 for number in range(4)}), tmp_path)
    text = explanation.explain([str(tmp_path / "logs.zip")], crash_rules).text()
    assert "12 lines read" in " ".join(text.split())


def test_of_githubs_archive_one_job_is_judged_and_the_others_are_named(tmp_path: Path) -> None:
    """Its form: the whole log of each job, and beside it a folder of the same in pieces."""
    stamp = b"2026-11-21T10:00:00.0000000Z "
    died = b"".join(stamp + line for line in ABORTED.splitlines(keepends=True))
    failed = stamp + b"Segmentation fault (core dumped)\n"
    files = {
        "0_lint (3.12).txt": failed,
        "1_test (3.12).txt": died,
        "10_docs.txt": stamp + b"fine\n",
        "test (3.12)/1_Set up job.txt": stamp + b"fine\n",
        "test (3.12)/2_Run tests.txt": died,
        "test (3.12)/system.txt": b"fine\n",
    }
    found = inputs(archive(files), tmp_path)
    assert places(found) == ["1_test (3.12).txt line 2"]
    assert gaps(found) == ["only 1_test (3.12).txt was judged; other jobs tell of failures too: 0_lint (3.12).txt"]


def test_a_bomb_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "UNPACKED", 4 << 20)
    read_: list[int] = []
    files = {f"{number:02}.log": HEAP + bytes(3 << 20) for number in range(20)}
    (tmp_path / "logs.zip").write_bytes(archive(files))
    real = archives._Limited.readinto

    def counted(self: archives._Limited, buffer: bytearray) -> int:
        size = real(self, buffer)
        read_.append(size)
        return size

    monkeypatch.setattr(archives._Limited, "readinto", counted)
    found = read([str(tmp_path / "logs.zip")])
    packed_size = (tmp_path / "logs.zip").stat().st_size
    assert sum(read_) <= max(4 << 20, RATIO * packed_size) + (1 << 20) < 20 * (3 << 20)
    assert places(found)[0] == "00.log line 2"
    assert any("not unpacked" in why for why in gaps(found))
    assert any(why.endswith(f"more files in {tmp_path / 'logs.zip'} were not unpacked") for why in gaps(found))


def test_an_archive_of_many_files_is_read_in_part(tmp_path: Path) -> None:
    files = {f"{number}.log": b"" for number in range(archives.MOST_FILES + 7)}
    assert f"of {archives.MOST_FILES + 7} files" in gaps(inputs(archive(files), tmp_path))[0]


@pytest.mark.parametrize("zip64", [False, True])
def test_a_list_of_files_that_would_fill_the_memory_is_not_read(zip64: bool, tmp_path: Path) -> None:
    """APPNOTE.TXT 4.3.14 to 4.3.16: the end record, and where its numbers do not suffice, another one before it."""
    size = 1 << 34 if zip64 else 1 << 31
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1 << 28, 1 << 28, size, 4)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, 4, 1)
    short = 0xFFFFFFFF if zip64 else size
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, short, 0, 0)
    with pytest.raises(InputError, match="too many files"):
        inputs(b"PK\x03\x04" + (end64 + locator if zip64 else b"") + end, tmp_path)


def test_packed_logs_in_an_archive(tmp_path: Path) -> None:
    import gzip

    files = {f"{number:02}.log.gz": gzip.compress(HEAP) for number in range(archives.MOST_PACKED + 2)}
    found = inputs(archive(files), tmp_path)
    assert len(places(found)) == archives.MOST_PACKED
    assert sum("was not unpacked" in why for why in gaps(found)) == 2


def test_an_archive_in_an_archive_is_not_unpacked(tmp_path: Path) -> None:
    found = inputs(archive({"inner.zip": archive({"a.log": HEAP}), "b.log": HEAP}), tmp_path)
    assert places(found) == ["b.log line 2"]
    assert gaps(found) == ["inner.zip is packed itself, and was not unpacked"]


def test_a_core_in_an_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no text: core.1 is a core or a dump"):
        inputs(archive({"core.1": b"\x7fELF" + bytes(100), "plot.png": b"\x89PNG\r\n\x1a\n"}), tmp_path)
    found = inputs(archive({"core.1": b"\x7fELF" + bytes(100), "log": HEAP}), tmp_path)
    assert places(found) == ["log line 2"]
    assert "necropsy open" in gaps(found)[0]


def test_an_archive_with_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no text"):
        inputs(archive({}), tmp_path)


def test_an_encrypted_archive_says_so(tmp_path: Path) -> None:
    data = bytearray(archive({"train.log": HEAP}))
    data[6] |= 1  # general purpose bit flag 0 of the local header, APPNOTE.TXT 4.4.4
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        inputs(bytes(data), tmp_path)


@given(st.data())
def test_a_damaged_archive_never_fails_in_another_way(data: st.DataObject) -> None:
    whole = bytearray(archive({"a.log": HEAP * 40, "b/c.log": ABORTED}))
    for place in data.draw(st.lists(st.integers(4, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(whole)))
    stream = io.BytesIO(bytes(whole[:cut]))
    try:
        found = read(["-"], stream)
    except InputError:
        return
    assert found.digests


# ---------------------------------------------------------------- zstd


@ZSTD
def test_zstd(tmp_path: Path) -> None:
    found = inputs(zstd(HEAP + b"epoch 2\n" * 5998), tmp_path, "train.log.zst")
    assert places(found)[0] == "train.log.zst line 2"
    assert found.digests[0].lines == 6000
    assert gaps(found) == []
    with pipe(zstd(HEAP)) as stream:
        assert places(read(["-"], stream)) == ["log line 2"]


@ZSTD
def test_zstd_that_is_cut_is_read_to_where_it_ends(tmp_path: Path) -> None:
    found = inputs(zstd(HEAP + os.urandom(1 << 20))[: 1 << 19], tmp_path, "train.log.zst")
    assert places(found) == ["train.log.zst line 2"]
    assert "is damaged after" in gaps(found)[0]


@ZSTD
def test_a_bomb_of_zstd_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "UNPACKED", 1 << 20)
    found = inputs(zstd(HEAP + bytes(200 << 20)), tmp_path, "train.log.zst")
    assert places(found) == ["train.log.zst line 2"]
    assert "only the first" in gaps(found)[0]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python unpacks zstd itself")
def test_without_anything_that_unpacks_zstd_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("backports.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)  # it cannot be imported
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="install the command `zstd` or"):
        inputs(b"\x28\xb5\x2f\xfd rest", tmp_path, "train.log.zst")
