"""What ``import necropsy`` offers: its names and signatures stay, nothing prints, bad input is a documented error."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

import necropsy
from necropsy import store
from necropsy.errors import InputError, NoInputError, OptionError, UnknownCodeError, UnreadableReportError
from necropsy.model import Crash, Document, Exit, Process, Subject, Tool

SIGNATURES = {
    "Contained": "(workers: 'int | None' = None, *, timeout: 'float | None' = None, memory: 'int | None' = None, "
    "imports: 'Iterable[str]' = ()) -> 'None'",
    "Crashed": "(message: 'str', **fields: 'Any') -> 'None'",
    "FuzzResult": "(document: 'Document', findings: 'tuple[FuzzFinding, ...]' = (), executions: 'int' = 0, "
    "complete: 'bool' = True, tests: 'tuple[Path, ...]' = ()) -> None",
    "Quarantined": "(index: 'int', record: 'Any', error: 'BaseException') -> None",
    "RunResult": "(command: 'tuple[str, ...]', returncode: 'int', document: 'Document | None' = None, "
    "timed_out: 'bool' = False, stdout: 'bytes | None' = None, stderr: 'bytes | None' = None) -> None",
    "TimedOut": "(message: 'str', **fields: 'Any') -> 'None'",
    "attach": "(pid: 'int', *, python_locals: 'bool' = False, core_file: 'str | os.PathLike[str] | None' = None) "
    "-> 'Document'",
    "check_dataset": "(dataset: 'Any', spec: 'Any' = None, *, "
    "ranges: 'Mapping[str, tuple[float | None, float | None]] | None' = None, limit: 'int | None' = None) "
    "-> 'Document'",
    "contain": "(function: 'Callable[P, R]', *, timeout: 'float | None' = None, memory: 'int | None' = None, "
    "imports: 'Iterable[str]' = (), workers: 'int | None' = None) -> 'Callable[P, R]'",
    "contained": "(function: 'Any' = None, /, **limits: 'Any') -> 'Any'",
    "diagnose": "(*evidence: 'str | int | os.PathLike[str]') -> 'Document'",
    "disable": "() -> 'bool'",
    "dumps": "(document: 'Document') -> 'bytes'",
    "enable": "(*, show: 'bool' = True, keep: 'bool' = True) -> 'bool'",
    "judge": "(crash: 'Crash') -> 'Report'",
    "latest": "(*, pid: 'int | None' = None, since: 'datetime | float | None' = None) -> 'Document | None'",
    "loads": "(data: 'bytes | str') -> 'Document'",
    "open_dump": "(path: 'str | os.PathLike[str]', *, images: 'Iterable[str | os.PathLike[str]]' = ()) -> 'Document'",
    "profile": "(command: 'Sequence[str | os.PathLike[str]] | None' = None, *, interval: 'float' = 0.1, "
    "heap: \"Literal['off', 'memray', 'memray-native', 'sample']\" = 'off', timeout: 'float | None' = None, check: 'bool' = False, cwd: 'str | os.PathLike[str] | None' = None, "
    "env: 'Mapping[str, str] | None' = None, input: 'bytes | None' = None, capture_output: 'bool' = False, "
    "reports: 'str | os.PathLike[str] | None' = None) -> 'RunResult | Profiled'",
    "raises_native": "(function: 'Callable[..., Any]', /, *args: 'Any', rule: 'str | None' = None) -> 'Crashed'",
    "render": "(document: 'Document', format: 'str' = 'text', *, full: 'bool' = False, color: 'bool' = False, "
    "width: 'int' = 80) -> 'str'",
    "rules": "() -> 'tuple[Rule[Any], ...]'",
    "run": "(command: 'Sequence[str | os.PathLike[str]]', *, timeout: 'float | None' = None, check: 'bool' = False, "
    "cwd: 'str | os.PathLike[str] | None' = None, env: 'Mapping[str, str] | None' = None, "
    "input: 'bytes | None' = None, capture_output: 'bool' = False, log: 'LogMode' = 'auto', "
    "python_locals: 'bool' = False, guard: 'bool' = False, reports: 'str | os.PathLike[str] | None' = None) -> 'RunResult'",
}
"""Others build on them: add, but do not rename, reorder or remove."""


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_stay(name: str) -> None:
    assert str(inspect.signature(getattr(necropsy, name))) == SIGNATURES[name]


def test_every_public_name_is_there_and_documented() -> None:
    assert set(SIGNATURES) <= set(necropsy.__all__) <= set(dir(necropsy))
    for name in set(necropsy.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(necropsy, name)), name
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        getattr(necropsy, "nothing_of_this_name")  # noqa: B009 - a type checker refuses the plain attribute


@pytest.mark.parametrize(
    "first",
    ["import necropsy.rules, necropsy.diagnose, necropsy.profile.documents", "from necropsy.rules import page", ""],
)
def test_a_module_does_not_take_the_place_of_a_function(first: str) -> None:
    code = f"{first}\nimport necropsy\nprint(len(necropsy.rules()) > 100, callable(necropsy.diagnose) and callable(necropsy.profile))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


@pytest.fixture(autouse=True)
def _nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- diagnose, judge


def rule_of(document: Document) -> str | None:
    verdict = document.reports[0].verdict if document.reports else None
    return verdict.rule if verdict is not None else None


def test_diagnose_takes_codes_texts_and_paths(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("*** stack smashing detected ***: terminated\nAborted (core dumped)\n")
    assert rule_of(necropsy.diagnose(log)) == rule_of(necropsy.diagnose(str(log), 134)) == "stack-smash"
    assert rule_of(necropsy.diagnose(log.read_text())) == "stack-smash"
    for code in (0xC0000409, "0xC0000409", -1073740791):
        end = necropsy.diagnose(code).reports[0].crash.exit
        assert end is not None
        assert end.ntstatus is not None
        assert end.ntstatus.name == "STATUS_STACK_BUFFER_OVERRUN"
    assert necropsy.diagnose("epoch 1\nepoch 2\n").reports == ()


def test_a_path_is_a_file_whatever_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoInputError, match="139") as caught:
        necropsy.diagnose(Path("139"))
    assert caught.value.exit_code == 66
    Path("139").write_text("free(): invalid next size (fast)\n")
    assert rule_of(necropsy.diagnose(Path("139"))) == "heap-corruption"


@pytest.mark.parametrize(
    ("evidence", "error", "code"),
    [
        ((), OptionError, 2),
        (("SIGNOTHING",), UnknownCodeError, 65),
        (("stack-smash",), InputError, 65),
        (("missing.log",), NoInputError, 66),
        (("-",), NoInputError, 66),
        (("\udcff\0",), InputError, 65),
    ],
)
def test_what_is_no_evidence_is_an_error(evidence: tuple[str, ...], error: type[InputError], code: int) -> None:
    with pytest.raises(error) as caught:
        necropsy.diagnose(*evidence)
    assert caught.value.exit_code == code


def test_judge_masks_secrets_and_reports() -> None:
    crash = Crash(
        exit=Exit(kind="signaled", signal="SIGABRT"), log_tail="token=ghp_0123456789abcdefghij0123456789abcdef"
    )
    report = necropsy.judge(crash)
    assert report.verdict is not None
    assert "ghp_0123456789" not in str(report)


# ---------------------------------------------------------------- dumps, live processes


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00\x3e\x00" + b"\xff" * 200,
        b"MDMP" + b"\xff" * 300,
        b"PK\x03\x04" + b"\xff" * 100,
        b'{"schema": 1, "kind": ',
        b"no dump at all",
        b"",
    ],
    ids=["core", "minidump", "zip", "json", "text", "empty"],
)
def test_a_corrupt_dump_is_an_input_error(data: bytes, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(data)
    with pytest.raises(InputError) as caught:
        necropsy.open_dump(dump)
    assert caught.value.exit_code == 65
    assert dump.name in str(caught.value)


def test_a_dump_that_is_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "core.1", tmp_path):
        with pytest.raises(NoInputError):
            necropsy.open_dump(path)


@pytest.mark.skipif(sys.platform != "linux", reason="attach")
def test_attach_reads_a_live_process_and_lets_it_go() -> None:
    code = "import time\ndef waiting():\n    print(flush=True)\n    time.sleep(300)\nwaiting()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            document = necropsy.attach(process.pid)
            crash = document.reports[0].crash
            assert crash.exit == Exit(kind="running")
            names = {frame.function for thread in crash.threads or () for frame in thread.python or ()}
            assert "waiting" in names
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="attach")
def test_attach_to_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    for pid in (process.pid, 0, -1):
        with pytest.raises(NoInputError):
            necropsy.attach(pid)


# ---------------------------------------------------------------- documents


def test_a_document_survives_json() -> None:
    document = necropsy.diagnose(139)
    data = necropsy.dumps(document)
    assert necropsy.loads(data) == necropsy.loads(data.decode()) == document
    assert json.loads(data)["kind"] == "diagnosis"


@pytest.mark.parametrize("data", ["", b"{}", "\udcff", b"\xff", "[" * 100_000])
def test_other_json_is_refused(data: bytes | str) -> None:
    with pytest.raises(UnreadableReportError):
        necropsy.loads(data)


def test_every_format_renders() -> None:
    document = necropsy.diagnose("free(): invalid pointer", 134)
    assert "<html" in necropsy.render(document, "html")
    assert necropsy.render(document, "json").encode() == necropsy.dumps(document)
    assert necropsy.render(document, "markdown").startswith("#")
    short, full = necropsy.render(document), necropsy.render(document, full=True)
    assert len(short) < len(full)
    assert "\033[" not in full
    assert "\033[" in necropsy.render(document, color=True)
    with pytest.raises(OptionError, match="pdf"):
        necropsy.render(document, "pdf")


def test_rules_are_those_of_every_subject() -> None:
    names = {rule.name for rule in necropsy.rules()}
    assert {"null-dereference", "env-file-missing"} <= names


# ---------------------------------------------------------------- kept reports

NOW = datetime(2026, 11, 21, 12, 0, 5, 700_000, tzinfo=timezone.utc)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "kept"))
    for second, pid in ((3, 30), (4, 40), (5, 50)):
        document = Document(
            kind="run",
            id=f"20261121T12000{second}Z-0000000{second}",
            tool=Tool(name="necropsy", version="0"),
            complete=True,
            subject=Subject(kind="process", command=("python",)),
            processes=(Process(pid=pid),),
        )
        store.keep(document, "", tmp_path / "kept")
    return tmp_path / "kept"


def pid_of(document: Document | None) -> int | None:
    return document.processes[0].pid if document is not None else None


def test_latest_is_the_newest(kept: Path) -> None:
    assert pid_of(necropsy.latest()) == 50
    next(kept.glob("*00000005*")).write_bytes(b"PK damaged")
    assert pid_of(necropsy.latest()) == 40


def test_latest_by_process_and_time(kept: Path) -> None:
    assert kept.is_dir()
    assert pid_of(necropsy.latest(pid=30)) == 30
    assert necropsy.latest(pid=31) is None
    assert pid_of(necropsy.latest(since=NOW)) == 50, "reports are dated to the second"
    assert necropsy.latest(pid=40, since=NOW) is None
    assert pid_of(necropsy.latest(pid=40, since=(NOW - timedelta(seconds=1)).timestamp())) == 40
    assert necropsy.latest(since=time.time() + 3600 * 24 * 365 * 100) is None


def test_without_a_folder_there_is_no_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "missing"))
    assert necropsy.latest() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "file"))
    with pytest.raises(NoInputError):
        necropsy.latest()


def test_an_opened_report_is_the_document(kept: Path, tmp_path: Path) -> None:
    newest = necropsy.latest()
    assert newest is not None
    assert necropsy.open_dump(next(kept.glob("*00000005*"))) == newest
    (tmp_path / "report.json").write_bytes(necropsy.dumps(newest))
    assert necropsy.open_dump(str(tmp_path / "report.json")) == msgspec.structs.replace(newest)
