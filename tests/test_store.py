"""Kept reports: written by real deaths, found again, shown in every form; damage and full disks cost a line."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
import warm
from necropsy import report_archive, serialize, store
from necropsy.errors import InputError, NecropsyError, NoInputError, UnreadableReportError
from necropsy.model import Crash, Document, Environment, Report, Subject, Tool

IS_ROOT = sys.platform != "win32" and os.getuid() == 0
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")
NULL = "import ctypes; ctypes.string_at(16)"
ABORT = "import os; os.abort()"


def necropsy(
    *words: str | Path, output: Path | None, code: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NECROPSY")}
    if output is not None:
        environment["NECROPSY_OUTPUT"] = str(output)
    program = [] if code is None else ["--", sys.executable, "-c", code]
    return warm.run(*words, *program, env=environment | variables)


def document(identity: str = "20261121T004512Z-9f86d081", variables: dict[str, str] | None = None) -> Document:
    reports: Sequence[Report] = ()
    if variables is not None:
        reports = (Report(crash=Crash(environment=Environment(variables=variables))),)
    return Document(
        kind="run",
        id=identity,
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process", command=("python", "train.py")),
        reports=tuple(reports),
    )


# ---------------------------------------------------------------- runs


@LINUX
def test_a_death_is_kept_and_shown_again(tmp_path: Path) -> None:
    place = tmp_path / "reports"
    done = necropsy("run", output=place, code=NULL)
    assert done.returncode == -signal.SIGSEGV
    (path,) = place.iterdir()
    name = store.short(store.identity_of(path))
    assert done.stderr.splitlines()[-1] == f"  Full report: necropsy show {name} --full (null-dereference)"
    assert path.suffix == ".necropsy"
    assert (stat.S_IMODE(place.stat().st_mode), stat.S_IMODE(path.stat().st_mode)) == (0o700, 0o600)
    shown = necropsy("show", output=place)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert done.stderr == shown.stdout, "what was printed is what is shown"
    full = necropsy("show", "--full", output=place)
    assert "\nEvidence\n" in full.stdout
    assert "\nEvidence\n" not in shown.stdout
    kept = serialize.loads(necropsy("show", "--format", "json", output=place).stdout.encode())
    assert kept == report_archive.read(path)
    assert kept.reports[0].verdict is not None
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        text = archive.read("report.txt").decode()
        assert "null-dereference" in text
        assert "\nEvidence\n" in text, "the whole report is kept"
    again = necropsy("run", "--full", output=place, code=NULL)
    last = again.stderr.splitlines()[-1]
    assert last.startswith("  To see this report again: necropsy show ")
    assert last.endswith(" (seen 1 time before)")
    assert "\nEvidence\n" in again.stderr


@LINUX
@pytest.mark.parametrize("code", ["pass", "import sys; sys.exit(3)", "raise ValueError(1)"])
def test_a_run_with_nothing_to_tell_leaves_nothing(code: str, tmp_path: Path) -> None:
    done = necropsy("run", output=tmp_path / "reports", code=code)
    assert done.returncode in {0, 1, 3}
    assert not (tmp_path / "reports").exists()


@LINUX
def test_a_healthy_run_that_is_told_of_leaves_nothing_either(tmp_path: Path) -> None:
    assert necropsy("run", "--always", output=tmp_path / "reports", code="pass").returncode == 0
    assert not (tmp_path / "reports").exists()


@LINUX
def test_quiet_keeps_without_a_word(tmp_path: Path) -> None:
    done = necropsy("run", "--quiet", output=tmp_path, code=ABORT, GITHUB_ACTIONS="true")
    assert (done.returncode, done.stderr) == (-signal.SIGABRT, "")
    assert len(store.kept(tmp_path)) == 1


@LINUX
def test_a_worker_has_its_name_in_the_file_name(tmp_path: Path) -> None:
    done = necropsy("run", "--output", tmp_path / "folders", output=tmp_path / "kept", code=ABORT, RANK="3")
    (path,) = (tmp_path / "kept").iterdir()
    assert path.name.endswith(".rank3.necropsy")
    assert f"necropsy show {store.short(store.identity_of(path))} --full" in done.stderr.splitlines()[-1]
    (folder,) = (tmp_path / "folders").iterdir()
    assert folder.name == path.name.removesuffix(".necropsy")
    listed = necropsy("list", output=tmp_path / "kept").stdout
    assert "WORKER" in listed
    assert "rank3" in listed


@LINUX
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param("no-home", marks=needs.namespace("--user", "--map-user=54321")),
        pytest.param("read-only", marks=needs.MOUNT if IS_ROOT else ()),
        "file",
        pytest.param("full", marks=needs.MOUNT),
        pytest.param("almost-full", marks=needs.MOUNT),
    ],
)
def test_a_place_that_cannot_be_written_costs_a_line(trouble: str, tmp_path: Path) -> None:
    place: Path | None = tmp_path / "reports"
    program = [sys.executable, "-m", "necropsy", "run", sys.executable, "-c", ABORT]
    if trouble == "no-home":
        # A user that the system does not know, as many a container runs its program.
        place = None
        program = ["unshare", "--user", "--map-user=54321", "env", "-u", "HOME", *program]
    elif trouble == "read-only":
        if IS_ROOT:
            program = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro x {tmp_path} && exec "$@"', "sh", *program]
        else:
            tmp_path.chmod(0o500)
    elif trouble.endswith("full"):
        room = "4k" if trouble == "full" else "12k"
        program = [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'mount -t tmpfs -o size={room} x {tmp_path} && exec "$@"',
            "sh",
            *program,
        ]
    else:
        (tmp_path / "reports").write_text("x")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NECROPSY", "XDG"))}
    if place is not None:
        environment["NECROPSY_OUTPUT"] = str(place)
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd="/")
    assert "unshare:" not in done.stderr
    assert "mount:" not in done.stderr
    assert done.returncode == -signal.SIGABRT
    assert "this report is not kept" in done.stderr.splitlines()[-1]
    assert done.stderr.count("not kept") == 1
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr


@LINUX
def test_nothing_is_kept_where_the_user_wants_it_so(tmp_path: Path) -> None:
    done = necropsy("run", output=tmp_path / "reports", code=ABORT, NECROPSY_KEEP="0")
    assert "necropsy show" not in done.stderr
    assert not (tmp_path / "reports").exists()


@LINUX
def test_the_core_is_written_out_for_a_debugger(tmp_path: Path) -> None:
    necropsy("run", output=tmp_path / "kept", code=NULL)
    done = necropsy("show", "--core", tmp_path / "small.core", output=tmp_path / "kept")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("Look at it with: gdb ")
    core = tmp_path / "small.core"
    assert core.read_bytes()[:4] == b"\x7fELF"
    assert core.read_bytes()[16:18] == b"\x04\x00", "e_type is ET_CORE"
    assert stat.S_IMODE(core.stat().st_mode) == 0o600
    assert necropsy("show", "--core", tmp_path / "x", "--pid", "1", output=tmp_path / "kept").returncode == 66


# ---------------------------------------------------------------- list, show, open


def test_nothing_is_kept_yet(tmp_path: Path) -> None:
    listed = necropsy("list", output=tmp_path / "none")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert str(tmp_path / "none") in listed.stdout
    shown = necropsy("show", output=tmp_path / "none")
    assert (shown.returncode, shown.stdout) == (66, "")
    assert len(shown.stderr.splitlines()) == 1


def fill(place: Path) -> None:
    for second, tail in enumerate(["aaaa1111", "aabb2222", "cccc3333"]):
        store.keep(document(f"20261121T00451{second}Z-{tail}", {}), "text", place)


def test_a_part_of_an_id_is_enough(tmp_path: Path) -> None:
    fill(tmp_path)
    assert store.identity_of(store.find(tmp_path, None)).endswith("cccc3333"), "the newest"
    assert store.identity_of(store.find(tmp_path, "aaa")).endswith("aaaa1111")
    assert store.identity_of(store.find(tmp_path, "AABB")).endswith("aabb2222")
    assert store.identity_of(store.find(tmp_path, "20261121T004512Z-cc")).endswith("cccc3333")
    with pytest.raises(InputError, match="2 reports begin with aa: aabb2222, aaaa1111"):
        store.find(tmp_path, "aa")
    with pytest.raises(NoInputError, match="no report zz"):
        store.find(tmp_path, "zz")
    assert necropsy("show", "zz", output=tmp_path).returncode == 66


def test_of_two_runs_in_one_second_the_later_comes_first(tmp_path: Path) -> None:
    """The id after the second is drawn by lot."""
    for nanoseconds, name in enumerate(("20260101T000000Z-bbbb", "20260101T000000Z-aaaa", "20251231T235959Z-cccc")):
        path = tmp_path / f"{name}.necropsy"
        path.touch()
        os.utime(path, ns=(nanoseconds, nanoseconds))
    kept = [store.identity_of(path) for path in store.kept(tmp_path)]
    assert kept == ["20260101T000000Z-aaaa", "20260101T000000Z-bbbb", "20251231T235959Z-cccc"]


def test_the_newest_come_first_and_a_damaged_one_is_a_line(tmp_path: Path) -> None:
    fill(tmp_path)
    path = store.find(tmp_path, "aabb")
    path.write_bytes(path.read_bytes()[:100])
    (tmp_path / "else.txt").write_text("no report")
    done = necropsy("list", output=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["#", "ID", "WHEN", "CAUSE", "WHERE", "COMMAND"]
    assert [line.split()[1] for line in lines[1:]] == ["cccc3333", "aabb2222", "aaaa1111"]
    assert "(unreadable)" in lines[2]
    assert lines[1].endswith("python train.py")
    assert necropsy("show", "aabb", output=tmp_path).returncode == 65


@LINUX
def test_open_shows_a_json_document_and_a_kept_file(tmp_path: Path) -> None:
    done = necropsy("run", "--json", tmp_path / "r.json", output=tmp_path / "kept", code=ABORT)
    (path,) = (tmp_path / "kept").iterdir()
    texts = {necropsy("open", "--full", one, output=None).stdout for one in (path, tmp_path / "r.json")}
    assert len(texts) == 1
    (text,) = texts
    assert text.strip().splitlines()[0] in done.stderr
    assert necropsy("open", path, "--format", "json", output=None).stdout.encode() == (tmp_path / "r.json").read_bytes()


@pytest.mark.parametrize(
    ("content", "status"), [(None, 66), (b"", 65), (b"PK\x03\x04", 65), (b"{}", 65), (b"\x7f", 65)]
)
def test_open_says_in_a_line_what_is_wrong(content: bytes | None, status: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    done = necropsy("open", path, output=None)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("necropsy: ")
    assert "defect" not in done.stderr


@LINUX
def test_open_diagnoses_the_core_that_was_kept(tmp_path: Path) -> None:
    necropsy("run", output=tmp_path / "kept", code=NULL)
    necropsy("show", "--core", tmp_path / "core.1", output=tmp_path / "kept")
    done = necropsy("open", tmp_path / "core.1", "--format", "json", output=None)
    assert (done.returncode, done.stderr) == (0, "")
    opened = serialize.loads(done.stdout.encode())
    assert (opened.kind, opened.subject.kind, opened.subject.path) == ("diagnosis", "core", str(tmp_path / "core.1"))
    assert [one.verdict.rule for one in opened.reports if one.verdict] == ["null-dereference"]
    shown = subprocess.run(
        [sys.executable, "-m", "necropsy", "open"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=600,
    )
    assert shown.stderr == "necropsy: the newest core is core.1\n"
    assert "null-dereference" in shown.stdout


@LINUX
def test_attach_reads_a_process_and_lets_it_go_on(tmp_path: Path) -> None:
    code = "import threading as t; l = t.Lock(); l.acquire(); print('up', flush=True); input(); print('done')"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        core = tmp_path / "live.core"
        done = necropsy("attach", str(process.pid), "--format", "json", "--core", core, output=None)
        text = necropsy("attach", str(process.pid), "--full", output=None)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "done\n"
    assert process.returncode == 0, "it went on, and ended as it would have"
    assert (done.returncode, done.stderr) == (0, "")
    read = serialize.loads(done.stdout.encode())
    assert read.processes[0].command == (sys.executable, "-c", code)
    assert read.reports[0].crash.exit is not None
    assert read.reports[0].crash.exit.kind == "running"
    assert "Stack of the main thread" in text.stdout
    assert core.read_bytes()[:4] == b"\x7fELF"


@LINUX
def test_attach_to_nobody_is_a_line() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    done = necropsy("attach", str(process.pid), output=None)
    assert (done.returncode, done.stdout) == (66, "")
    assert done.stderr.startswith("necropsy: ")
    assert len(done.stderr.splitlines()) == 1


def test_open_of_what_is_no_file_is_a_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        done = necropsy("open", path, output=None)
        assert (done.returncode, done.stdout) == (66, "")
        assert done.stderr == f"necropsy: {path} is not a file\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["list"], ["show"]])
def test_a_full_disk_behind_stdout_is_a_line(words: list[str], tmp_path: Path) -> None:
    fill(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "necropsy", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"NECROPSY_OUTPUT": str(tmp_path)},
        )
    assert (done.returncode, done.stderr) == (125, "necropsy: cannot write to stdout: No space left on device\n")


# ---------------------------------------------------------------- the folder


def test_the_oldest_go(tmp_path: Path) -> None:
    for second in range(6):
        store.keep(document(f"20261121T00451{second}Z-{second:08x}"), "", tmp_path, most=3)
    assert [store.identity_of(path)[14] for path in store.kept(tmp_path)] == ["5", "4", "3"]


def test_an_old_one_that_cannot_go_stays(tmp_path: Path) -> None:
    """What others keep in a shared folder is theirs: the new report is kept all the same."""
    theirs = tmp_path / f"20201121T004510Z-00000001{store.SUFFIX}"
    theirs.mkdir()  # as root, no permission keeps a file from being removed, but a folder is no file
    kept = store.keep(document("20261121T004511Z-00000002", {}), "", tmp_path, most=1)
    assert kept.exists()
    assert theirs.exists()


def test_what_a_killed_writer_left_goes_with_time(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.necropsy.part", tmp_path / ".b.necropsy.part"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    store.keep(document(), "", tmp_path)
    assert (old.exists(), new.exists()) == (False, True)
    assert len(store.kept(tmp_path)) == 1


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.keep(document(), "", tmp_path, cores={(1, None): Broken()})
    assert list(tmp_path.iterdir()) == []


def test_where_reports_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.folder({"NECROPSY_OUTPUT": "kept"}) == tmp_path / "kept"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert store.folder({}) == tmp_path / "state" / "necropsy" / "reports"


@pytest.mark.parametrize(("said", "kept"), [("7", 7), ("0", 0), ("-1", 0), ("many", store.KEEP)])
def test_how_many_are_kept(said: str, kept: int) -> None:
    assert store.limit({"NECROPSY_KEEP": said}) == kept


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, None),
        ({"RANK": "3", "LOCAL_RANK": "1"}, "rank3"),
        ({"LOCAL_RANK": "1"}, "local-rank1"),
        ({"SLURM_PROCID": "12"}, "rank12"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "rank0"),
        ({"PYTEST_XDIST_WORKER": "gw2"}, "gw2"),
        ({"RANK": "../../etc/passwd"}, None),
        ({"RANK": ""}, None),
    ],
)
def test_workers(variables: dict[str, str], name: str | None) -> None:
    assert store.worker(document(), variables) == name
    assert store.worker(document(variables=variables), {}) == name, "of the dead process, as a launcher set it"


# ---------------------------------------------------------------- capsules


CORE = b"\x7fELF" + bytes(range(256)) * 400


def packed(data: bytes = CORE) -> io.BytesIO:
    return io.BytesIO(gzip.compress(data))


@pytest.mark.parametrize(("small", "slow", "kind"), [(0, 1 << 25, "xz"), (1 << 21, 1 << 25, "gz"), (0, 0, "gz")])
def test_cores_come_back_as_they_were(
    small: int, slow: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_archive, "_SMALL", small)
    monkeypatch.setattr(report_archive, "_SLOW", slow)
    cores = {(10, "a"): packed(), (10, "b"): packed(b"second"), (11, None): packed(b"third")}
    path = store.keep(document(), "", tmp_path, cores=cores)
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist() if name.startswith("core-")} == {kind}
    assert report_archive.core_processes(path) == [10, 10, 11]
    for pid, content in [(None, CORE), (10, CORE), (11, b"third")]:
        report_archive.write_core(path, tmp_path / "core", pid)
        assert (tmp_path / "core").read_bytes() == content
    with pytest.raises(NoInputError, match="no core of process 12"):
        report_archive.write_core(path, tmp_path / "core", 12)
    with pytest.raises(FileNotFoundError):
        report_archive.write_core(path, tmp_path / "no" / "core")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damage_is_an_error_of_ours(data: st.DataObject) -> None:
    file = io.BytesIO()
    report_archive.write(file, document(), "text", {(10, None): packed()})
    damaged = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, 2 * len(damaged))) :]
    folder = Path(os.environ["NECROPSY_OUTPUT"]) / "damaged"
    folder.mkdir(exist_ok=True)
    path = folder / "x.necropsy"
    path.write_bytes(damaged)
    for step in (lambda: report_archive.read(path), lambda: report_archive.write_core(path, folder / "core")):
        with contextlib.suppress(NecropsyError):
            step()
    assert sorted(one.name for one in folder.iterdir() if one.name != "core") == ["x.necropsy"]


def test_a_report_that_unpacks_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_archive, "LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "x.necropsy", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", b" " * 1_000_000)
    with pytest.raises(UnreadableReportError, match="larger"):
        report_archive.read(tmp_path / "x.necropsy")


def test_what_is_kept_is_the_document(tmp_path: Path) -> None:
    path = store.keep(document(variables={"TF_X": "1"}), "text", tmp_path)
    assert report_archive.read(path) == document(variables={"TF_X": "1"})
    assert json.loads(zipfile.ZipFile(path).read("report.json"))["id"] == document().id
    assert msgspec.structs.asdict(report_archive.read(path))["kind"] == "run"
