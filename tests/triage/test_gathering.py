"""Files of every kind, and what is read of each."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import sys
import zipfile
from contextlib import suppress
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import fleet
import hostile_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

import necropsy
from necropsy import gathering, report_archive, serialize
from necropsy.cli import main
from necropsy.errors import InputError, NoInputError, OptionError
from necropsy.explanation import Explanation
from necropsy.model import Triage
from necropsy.triage import junit
from necropsy.triage.kinds import kind_of
from necropsy.triage.parts import KILLED, Part, UnreadFile, read_parts
from necropsy.triage.walk import FoundFile, walk


def read(*paths: Path, store: Path | None = None, since: datetime | None = None, jobs: int = 1) -> Triage:
    found = necropsy.triage(paths, store=store, since=since, jobs=jobs).triage
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'{\n "schema": 1,', "document"),
        (b'{"a": 1}', "text"),
        (b"PK\x03\x04rest", "zip"),
        (b"MDMP....", "minidump"),
        (b"\x7fELF" + b"\0" * 12 + b"\x04\x00", "core"),
        (b"\x7fELF" + b"\0" * 12 + b"\x03\x00", "other"),
        (b"\x1f\x8b\x08", "packed"),
        (b"\x28\xb5\x2f\xfd", "packed"),
        (b"\xfd7zXZ\x00", "packed"),
        (b"\x89PNG\r\n", "other"),
        (b'<?xml version="1.0"?><testsuites>', "junit"),
        (b"<html>", "text"),
        (b"Segmentation fault\n", "text"),
        ("Überlauf\n".encode(), "text"),
        ("a log\n".encode("utf-16"), "text"),
        ("a log of PowerShell\n".encode("utf-16-le"), "text"),
        (b"\0" * 4096, "text"),  # the hole of a log that was cut while a program wrote to it
        (bytes(range(256)), None),
    ],
)
def test_a_file_is_known_by_its_contents(head: bytes, kind: str | None) -> None:
    assert kind_of(head) == kind


@given(st.binary(max_size=600))
def test_any_bytes_have_a_kind_or_none(head: bytes) -> None:
    kind_of(head)


def test_reports_and_logs_are_grouped_by_bug(tmp_path: Path) -> None:
    fleet.fill(tmp_path, {"score_rows": 3, "merge_rows": 2})
    found = read(tmp_path)
    assert [(one.count, one.title) for one in found.groups] == [
        (3, "null pointer in rows::score_rows, called from train.py:7 score()"),
        (2, "null pointer in rows::merge_rows, called from train.py:7 score()"),
    ]
    first = found.groups[0]
    assert first.status == "new"
    assert first.hosts == {"node00": 1, "node01": 1, "node02": 1}
    assert first.versions == {"rows": {"2.0": 3}}
    assert (first.first, first.last) == ("2026-11-10T10:00:00Z", "2026-11-12T10:00:00Z")
    assert [one.count for one in first.trend] == [1, 1, 1]
    assert first.example is not None
    assert first.example.source == "live"
    assert Path(first.example.path).parent == tmp_path
    assert (found.deaths, found.files, found.skipped) == (5, 5, ())


def test_a_log_is_read_packed_or_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = fleet.LOG.encode()
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "b.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c").write_bytes(lzma.compress(data))
    (tmp_path / "d.log").write_bytes(bz2.compress(data))
    (tmp_path / "e.log").write_bytes(fleet.LOG.encode("utf-16"))
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("0_build.txt", data)
    expected = 6
    if shutil.which("zstd"):
        os.system(f"zstd -q {tmp_path / 'plain'} -o {tmp_path / 'g.zst'}")
        expected += 1
    found = read(tmp_path)
    assert found.skipped == ()
    assert [one.count for one in found.groups] == [expected]
    assert found.groups[0].texts_only
    assert found.groups[0].end == "SIGSEGV"
    for member in found.groups[0].members[1:]:
        if not member.path.endswith(".zip"):
            assert main(["show", member.path]) == 0
            assert "train.py" in capfd.readouterr().out


def test_a_packed_report_and_a_capsule_are_the_same_death_as_the_report(tmp_path: Path) -> None:
    path = fleet.write(tmp_path, "a.json")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    with (tmp_path / "c.necropsy").open("wb") as file:
        report_archive.write(file, serialize.loads(path.read_bytes()), "text")
    found = read(tmp_path)
    assert found.deaths == 1
    assert found.groups[0].members[0].path == str(path)
    path.unlink()
    assert main(["show", str(tmp_path / "b.json.gz")]) == 0
    (tmp_path / "b.json.gz").unlink()
    assert read(tmp_path).groups[0].members[0].source == "capsule"


@pytest.mark.parametrize(("first", "second", "groups"), [("gpu-out-of-memory", "data-race", 2), ("hang", "hang", 1)])
def test_where_nothing_else_is_known_the_rule_tells_deaths_apart(
    tmp_path: Path, first: str, second: str, groups: int
) -> None:
    for number, rule in enumerate((first, second)):
        document = fleet.document(number=number, rule=rule)
        del document["reports"][0]["verdict"]["culprit"]
        document["reports"][0]["crash"] = {"pid": number}
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    assert len(read(tmp_path).groups) == groups


def test_files_without_a_death_are_counted(tmp_path: Path) -> None:
    (tmp_path / "well.log").write_text("all is well\n" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / "program").write_bytes(Path(sys.executable).resolve().read_bytes()[:5000])
    # A program that goes on has printed an exception that it caught.
    caught = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    (tmp_path / "caught.log").write_text(f"{caught}retrying\nstep 5 done\n")
    healthy = fleet.document()
    healthy["reports"] = []
    (tmp_path / "healthy.json").write_text(json.dumps(healthy))
    found = read(tmp_path)
    assert (found.deaths, found.skipped, found.without_death) == (0, (), 5)
    (tmp_path / "caught.log").write_text(f"step 5 done\n{caught}")
    assert [one.rule for one in read(tmp_path).groups] == ["python-exception"]


def test_what_followed_from_a_death_and_what_was_asked_for_is_no_bug(tmp_path: Path) -> None:
    document = fleet.document()
    second = json.loads(json.dumps(document["reports"][0]))
    second["pid"] = second["crash"]["pid"] = 7
    second["consequence_of"] = 100
    document["reports"].append(second)
    (tmp_path / "a.json").write_text(json.dumps(document))
    interrupted = fleet.document(number=1)
    crash = interrupted["reports"][0]["crash"]
    crash["exit"]["signal"] = crash["fault"]["signal"] = "SIGINT"
    (tmp_path / "b.json").write_text(json.dumps(interrupted))
    found = read(tmp_path)
    assert (found.deaths, found.without_death) == (1, 1)


JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="s" tests="4">
<testcase classname="t" name="passes"><system-out>Segmentation fault (core dumped)</system-out></testcase>
<testcase classname="t" name="asserts"><failure message="assert 1 == 2">Traceback (most recent call last):
  File "test_a.py", line 3, in test
AssertionError: assert 1 == 2</failure></testcase>
<testcase classname="t" name="dies"><failure message="exit code -11">{}</failure></testcase>
<testcase classname="t" name="aborts"><error message="exit code -6"/><system-err>{}</system-err></testcase>
</testsuite></testsuites>"""
CHECK = "F0000 00:00:00.000000 12 tensor_shape.cc:587] Check failed: size &gt;= 0 (-1 vs. 0)\nAborted (core dumped)\n"


def test_the_crash_texts_of_a_junit_file_are_deaths(tmp_path: Path) -> None:
    text = fleet.LOG.replace("<", "&lt;")
    (tmp_path / "junit.xml").write_text(JUNIT.format(text, CHECK))
    found = read(tmp_path)
    assert found.skipped == ()
    assert sorted((one.count, one.end) for one in found.groups) == [(1, "SIGABRT"), (1, "SIGSEGV")]
    (tmp_path / "junit.xml.gz").write_bytes(gzip.compress((tmp_path / "junit.xml").read_bytes()))
    assert read(tmp_path).deaths == 4


def test_of_too_many_failed_tests_the_first_are_read_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "MOST_TESTS", 2)
    (tmp_path / "junit.xml").write_text(JUNIT.format(fleet.LOG.replace("<", "&lt;"), CHECK))
    document = necropsy.triage(tmp_path)
    assert document.triage is not None
    assert [one.end for one in document.triage.groups] == ["SIGSEGV"]  # the third one aborts
    assert document.triage.skipped == ()
    why = f"{tmp_path}/junit.xml: of 3 failed tests the first 2 were read"
    assert [(one.part, one.why) for one in document.gaps] == [("file", why)]


@given(st.binary(max_size=400))
def test_a_junit_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        list(junit.FailedTests(BytesIO(b"<testsuites>" + data + b"<")))


def test_a_long_output_keeps_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MOST_TEXT", 1000)
    lines = "".join(f"line {number}\n" for number in range(10_000))
    data = f"<testsuites><testcase name='a'><failure>{lines}</failure></testcase></testsuites>".encode()
    (found,) = junit.FailedTests(BytesIO(data))
    assert found.text.startswith("line 0\n")
    assert found.text.endswith("line 9999")
    assert len(found.text) < 400_000  # what one piece of the parser has may stand beside it


def test_a_hundred_hostile_files_are_skipped_and_the_rest_is_grouped(tmp_path: Path) -> None:
    good = fleet.write(tmp_path / "good", "a.json")
    folder = tmp_path / "files"
    folder.mkdir()
    bad = hostile_files.make(folder, good.read_bytes())
    assert len(bad) >= 100
    fleet.fill(folder / "more", {"score_rows": 3})
    found = read(folder)
    assert {one.path[len(str(folder)) + 1 :] for one in found.skipped} == bad
    for one in found.skipped:
        assert one.why
        assert "\n" not in one.why
        assert "Traceback" not in one.why
        assert not one.why.startswith("it cannot be read"), f"a defect: {one}"
    assert [one.count for one in found.groups] == [3]


@pytest.mark.slow
def test_bombs_and_endless_lines_are_read_as_far_as_is_safe(tmp_path: Path) -> None:
    hostile_files.bombs(tmp_path)
    fleet.write(tmp_path, "a.json")
    found = read(tmp_path)
    assert found.deaths == 1
    assert found.without_death == 4


def test_a_file_that_grows_while_it_is_read_is_taken_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "train.log"
    log.write_text(fleet.LOG)
    whole = gathering._explained

    def growing(stream: BinaryIO, found: FoundFile) -> Explanation:
        with log.open("a") as file:
            file.write("more\n")
        return whole(stream, found)

    with monkeypatch.context() as patched:
        patched.setattr(gathering, "_explained", growing)
        found = read(tmp_path, store=tmp_path / "store")
    assert found.deaths == 0
    assert [one.why for one in found.skipped] == ["it was written to while it was read; the next run reads it"]
    assert read(tmp_path, store=tmp_path / "store").deaths == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer on Windows")
def test_a_file_that_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fleet.write(tmp_path, "a.json")

    def endless(*_given: object) -> None:
        while True:
            with suppress(Exception):  # as readers do
                while True:
                    pass

    monkeypatch.setattr(gathering, "_contents", endless)
    monkeypatch.setattr(gathering, "LIMIT_S", 0.05)
    read_ = gathering.read_file(FoundFile(str(path), 1, 1))
    assert read_.why == "reading it took longer than 0 seconds"


def test_links_to_folders_are_not_followed_and_one_file_is_one_file(tmp_path: Path) -> None:
    path = fleet.write(tmp_path / "in", "b.json")
    fleet.write(tmp_path / "elsewhere", "c.json", number=1)
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    (tmp_path / "in" / "a.json").symlink_to(path)
    found = walk([tmp_path / "in", tmp_path / "in", path])
    assert [one.path for one in found.files] == [str(tmp_path / "in" / "a.json")]
    assert found.skipped == ()


def test_only_what_happened_lately_counts(tmp_path: Path) -> None:
    fleet.write(tmp_path, "old.json", at="2026-11-01T00:00:00Z")
    fleet.write(tmp_path, "new.json", number=1, at="2026-11-20T00:00:00Z")
    since = datetime(2026, 11, 10, tzinfo=timezone.utc)
    found = read(tmp_path, since=since)
    assert [one.path for one in found.groups[0].members] == [str(tmp_path / "new.json")]
    os.utime(tmp_path / "new.json", (0, 0))  # nothing in it can be of a later time
    assert read(tmp_path, since=since).deaths == 0
    assert read(tmp_path).deaths == 2


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="No such file"):
        read(tmp_path / "nix")
    with pytest.raises(OptionError):
        read()


def test_many_processes_read_the_same(tmp_path: Path) -> None:
    fleet.fill(tmp_path, {"score_rows": 20, "merge_rows": 10})
    (tmp_path / "bad.json").write_text('{"schema": 1')
    assert read(tmp_path, jobs=2) == read(tmp_path)


def dying(part: Part) -> bytes:
    """What reads a file and dies over it, as a defect of a C library would."""
    if any(one.file.path.endswith("3.json") for one in part):
        os._exit(1)
    return gathering.read_part(part)


@pytest.mark.slow
def test_a_file_that_kills_its_reader_is_skipped(tmp_path: Path) -> None:
    fleet.fill(tmp_path, {"score_rows": 5})
    work = [UnreadFile(one) for one in walk([tmp_path]).files]
    found = [one for part in read_parts(work, dying, 2) for one in part]
    assert sorted(Path(one.path).name for one in found if one.why == KILLED) == ["00003.json"]
    assert sum(len(one.deaths) for one in found) == 4
