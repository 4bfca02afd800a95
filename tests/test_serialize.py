"""The document survives the way to disk and back, and bad files are told in one clear line."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy import model, serialize
from necropsy.errors import UnreadableReportError
from necropsy.model import (
    Address,
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fault,
    Fold,
    Frame,
    Gap,
    Report,
    Stack,
    Subject,
    Thread,
    Tool,
)


def document(crash: Crash) -> Document:
    verdict = Diagnosis(
        rule="stack-overflow-recursion",
        title="t",
        summary="s",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="c", seen="s"),),
        culprit=Culprit(function="f"),
    )
    return Document(
        kind="run",
        id="1",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process", command=("python", "\udcff.py")),
        reports=(Report(crash=crash, verdict=verdict),),
        gaps=(Gap(part="python", why="py-spy is not installed"),),
    )


FULL = Crash(
    pid=7,
    exit=Exit(kind="signaled", signal="SIGSEGV"),
    fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0), access="write"),
    threads=(
        Thread(
            tid=7,
            crashed=True,
            frames=(Frame(index=0, kind="native", function="f", address=Address(2**64 - 1)),),
            folds=(Fold(period=1, times=3, functions=("f",), bytes_per_period=128.0),),
            stack=Stack(low=Address(0x7FFF0000), high=Address(0x7FFF8000), guard_hit=True),
        ),
    ),
)


def test_a_document_comes_back_as_it_was() -> None:
    before = document(FULL)
    ascii_only = msgspec.structs.replace(before, subject=Subject(kind="process", command=("python", "x.py")))
    assert serialize.loads(serialize.dumps(ascii_only)) == ascii_only


def test_bytes_that_are_no_utf8_are_escaped() -> None:
    assert serialize.loads(serialize.dumps(document(FULL))).subject.command == ("python", "\\udcff.py")


def test_an_address_is_a_hex_string_and_zero_is_an_address() -> None:
    plain = json.loads(serialize.dumps(document(FULL)))
    fault = plain["reports"][0]["crash"]["fault"]
    assert fault["address"] == "0x0"
    assert plain["reports"][0]["crash"]["threads"][0]["frames"][0]["address"] == "0xffffffffffffffff"


def test_what_is_unknown_is_null() -> None:
    crash = json.loads(serialize.dumps(document(Crash())))["reports"][0]["crash"]
    assert {key: value for key, value in crash.items() if value is not None} == {"gaps": []}


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fall_over(data: bytes) -> None:
    with pytest.raises(UnreadableReportError):
        serialize.loads(data)


@given(st.data())
def test_a_damaged_report_is_told_as_such(data: st.DataObject) -> None:
    whole = serialize.dumps(document(FULL))
    cut = data.draw(st.integers(0, len(whole) - 3))
    with pytest.raises(UnreadableReportError):
        serialize.loads(whole[:cut])


def test_another_schema_is_refused() -> None:
    newer = serialize.dumps(document(FULL)).replace(b'"schema": 1', b'"schema": 2')
    with pytest.raises(UnreadableReportError):
        serialize.loads(newer)


def test_a_new_field_does_not_break_an_old_reader() -> None:
    newer = serialize.dumps(document(FULL)).replace(b'"schema": 1,', b'"schema": 1, "new": {"a": 1},')
    assert serialize.loads(newer).kind == "run"


def test_the_file_is_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    serialize.write(document(FULL), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert serialize.loads(path.read_bytes()).id == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    read, write = os.pipe()
    serialize.write(document(Crash()), Path(f"/dev/fd/{write}"))
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert serialize.loads(file.read()).kind == "run"


def test_a_missing_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        serialize.write(document(FULL), tmp_path / "no" / "r.json")


def test_a_diagnosis_without_evidence_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="needs evidence"):
        Diagnosis(rule="r", title="t", summary="s", severity="error", confidence="certain", evidence=())


CONTRACT: dict[str, set[str]] = {
    # DESIGN's contract: fields may be added, never renamed or removed.
    "Document": {
        "schema",
        "kind",
        "id",
        "tool",
        "complete",
        "subject",
        "processes",
        "reports",
        "findings",
        "not_tried",
        "gaps",
    },
    "Process": {
        "pid",
        "parent",
        "role",
        "command",
        "executable",
        "python",
        "started",
        "wall_s",
        "exit",
        "stacks",
        "peak_rss",
    },
    "StackUse": {"tid", "name", "size", "peak"},
    "Exit": {"kind", "code", "signal", "ntstatus", "text"},
    "NtStatus": {"value", "name", "signed", "fast_fail"},
    "Report": {"pid", "signature", "verdict", "alternatives", "not_tried", "gaps", "crash"},
    "Diagnosis": {
        "rule",
        "title",
        "summary",
        "severity",
        "confidence",
        "status",
        "culprit",
        "locations",
        "evidence",
        "fixes",
        "experiments",
        "references",
    },
    "Culprit": {"function", "module", "source", "line", "python", "op"},
    "Location": {"path", "line", "column", "end_line", "role"},
    "Evidence": {"claim", "seen", "where"},
    "Fix": {"text", "command", "verified"},
    "Experiment": {"name", "change", "predicts", "runs", "crashed", "outcome"},
    "Crash": {"fault", "threads", "modules", "libraries", "log_tail"},
    "Fault": {"signal", "code", "address", "access"},
    "Thread": {"tid", "name", "crashed", "python", "frames_total", "frames", "folds", "stack"},
    "Fold": {"period", "times", "bytes_per_period", "functions"},
    "Stack": {"low", "high", "size", "used", "guard_hit"},
    "Frame": {
        "index",
        "kind",
        "function",
        "module",
        "module_offset",
        "source",
        "line",
        "stack_bytes",
        "found_by",
    },
}


@pytest.mark.parametrize("noun", CONTRACT)
def test_the_schema_keeps_the_contract(noun: str) -> None:
    schema: dict[str, Any] = serialize.json_schema()["$defs"]
    assert CONTRACT[noun] <= set(schema[noun]["properties"])


def test_the_words_of_the_contract() -> None:
    assert set(get_args(model.Confidence)) == {"certain", "likely", "possible"}
    assert set(get_args(model.FoundBy)) == {"registers", "cfi", "frame-pointer", "scan", "text"}
    assert set(get_args(model.ExitKind)) == {"exited", "signaled", "timeout", "running", "lost", "unknown"}


def test_no_heavy_import_for_the_record() -> None:
    assert not {"drgn", "capstone"} & {name for name in sys.modules if name.startswith("necropsy.serialize")}


UNSAFE = "\x1b\x7f\x80\x85\x9b\xad\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\U000e0041"


def test_what_a_terminal_obeys_is_escaped() -> None:
    said = f"a{UNSAFE}b \u00e9 \U0001f600 ##[add-mask]x ##vso[task]y ## z"
    data = serialize.dumps(document(Crash(log_tail=said)))
    assert json.loads(data)["reports"][0]["crash"]["log_tail"] == said
    text = data.decode()
    assert not set(UNSAFE) & set(text)
    assert "\u00e9 \U0001f600" in text, "letters stay"
    assert r"\u009b" in text
    assert r"\udb40\udc41" in text
    assert "##[" not in text
    assert "##vso[" not in text
    assert "## z" in text
    assert serialize.loads(data).reports[0].crash.log_tail == said


@given(st.text())
def test_any_text_comes_back_and_is_printable(said: str) -> None:
    data = serialize.dumps(document(Crash(log_tail=said)))
    assert serialize.loads(data).reports[0].crash.log_tail == said.encode("utf-8", "backslashreplace").decode()
    assert not [char for char in data.decode() if char != "\n" and "\x7f" <= char <= "\x9f"]
