"""``necropsy send``: reports, triages and stores to a receiver on 127.0.0.1; what was not taken is sent the next time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_receivers import OK, FakeReceiver, answer, receiving
from test_writers import death

import triage_documents
from necropsy import serialize
from necropsy.cli import main


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "kept"))


def written(folder: Path, *functions: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = []
    for function in functions:
        path = folder / f"{function}.json"
        serialize.write(msgspec.structs.replace(death(function), id=f"20261127T120000Z-{function:f>8}"), path)
        paths.append(path)
    return paths


def items(fake: FakeReceiver) -> list[dict[str, Any]]:
    return [one for body in fake.bodies for one in json.loads(body)["items"]]


def test_every_death_of_reports_is_sent_each_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(path) for path in written(tmp_path / "runs", "alpha", "beta")]
    with receiving(OK) as fake:
        assert main(["send", "--webhook", f"{fake.url}/hook/secret-path", *paths, paths[0]]) == 0
        assert main(["send", "--webhook", f"{fake.url}/hook/secret-path", *paths]) == 0
    assert [one["kind"] for one in items(fake)] == ["death"] * 4
    assert len({one["event_id"] for one in items(fake)}) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == f"necropsy: sent 2 crashes to webhook {fake.url}"


@pytest.mark.parametrize("option", ["--otlp", "--webhook", "--sentry"])
def test_a_dry_run_prints_and_sends_nothing(option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (path,) = written(tmp_path / "runs", "alpha")
    with receiving(OK) as fake:
        address = f"http://KEY@127.0.0.1:{fake.port}/7" if option == "--sentry" else fake.url
        assert main(["send", option, address, str(path), "--dry-run"]) == 0
        assert fake.requests == []
    said = capfd.readouterr()
    assert "`alpha` read through a null pointer" in said.out
    assert "KEY" not in said.out + said.err
    assert said.err.startswith("necropsy: nothing was sent; 1 crash would go to ")


def test_of_a_triage_the_news_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "bugs.json"
    document = triage_documents.document(30, 300)
    serialize.write(document, path)
    assert document.triage is not None
    with receiving(OK) as fake:
        assert main(["send", "--webhook", fake.url, str(path)]) == 0
    wanted = [one.id for one in document.triage.groups if one.status in {"new", "regression"}]
    assert [one["group"] for one in items(fake)] == wanted
    assert wanted


def test_a_store_keeps_what_was_not_taken_for_the_next_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs, store = tmp_path / "runs", str(tmp_path / "store")
    written(runs, "alpha", "beta", "gamma")
    assert main(["triage", str(runs), "--store", store]) == 0
    with receiving(answer(503, "Retry-After: 900")) as fake:
        assert main(["send", "--webhook", fake.url, "--store", store]) == 69
        port = fake.port
    said = capfd.readouterr().err
    assert "of 3 bugs not sent to webhook" in said
    assert "it answers 503 (Said) and asks to wait 900 s" in said
    with receiving(OK) as fake:
        address = fake.url
        assert main(["send", "--webhook", address, "--store", store, "--dry-run"]) == 0
        assert main(["send", "--webhook", address, "--store", store]) == 0
        assert len(items(fake)) == 3
        assert {one["kind"] for one in items(fake)} == {"bug"}
        assert main(["send", "--webhook", address, "--store", store]) == 0
        assert len(fake.requests) == 1, "nothing is sent twice"
        written(runs, "delta")
        assert main(["triage", str(runs), "--store", store]) == 0
        assert main(["send", "--webhook", address, "--store", store]) == 0
        assert len(items(fake)) == 4
        assert main(["send", "--webhook", address, "--store", store, str(runs / "alpha.json")]) == 0
        assert main(["send", "--webhook", address, "--store", store, str(runs / "alpha.json")]) == 0
        assert [one["kind"] for one in items(fake)[4:]] == ["death"], "a store also remembers reports"
    said = capfd.readouterr().err
    assert "necropsy: nothing new for webhook" in said
    assert port


def test_a_report_of_the_bug_gives_its_frames(tmp_path: Path) -> None:
    runs, store = tmp_path / "runs", str(tmp_path / "store")
    written(runs, "alpha")
    assert main(["triage", str(runs), "--store", store]) == 0
    with receiving(OK) as fake:
        assert main(["send", "--sentry", f"http://KEY@127.0.0.1:{fake.port}/7", "--store", store]) == 0
    ((head, body),) = fake.requests
    assert "sentry_key=KEY" in head
    event = json.loads(body.splitlines()[2])
    frames = event["exception"]["values"][0]["stacktrace"]["frames"]
    assert frames[-1]["instruction_addr"] == "0x7f0000001010"
    assert event["fingerprint"] == [event["tags"]["group"]]


def test_headers_are_added(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "runs", "alpha")
    with receiving(OK) as fake:
        assert main(["send", "--otlp", fake.url, "--header", "Authorization: Bearer a:b", str(path)]) == 0
    assert "\r\nAuthorization: Bearer a:b\r\n" in fake.requests[0][0]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["send", "x.json"], 2, "give one of --otlp URL, --sentry DSN and --webhook URL"),
        (["send", "--otlp", "http://h", "--sentry", "http://k@h/1"], 2, "give one of"),
        (["send", "--otlp", "http://h"], 2, "nothing to send: give a report"),
        (["send", "--otlp", "http://h", "no-such.json"], 66, "there is no file no-such.json"),
        (["send", "--otlp", "http://h", "--store", "no-such-store"], 66, "there is no store in no-such-store"),
        (["send", "--otlp", "http://h", "--header", "x\n: y", "x.json"], 2, "--header takes a name and a value"),
        (["send", "--otlp", "localhost:4318", "x.json"], 2, "takes an address that begins with https://"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], status: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == status
    assert said in capfd.readouterr().err


def test_nothing_listens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (path,) = written(tmp_path / "runs", "alpha")
    assert main(["send", "--otlp", "http://127.0.0.1:1", str(path)]) == 69
    assert capfd.readouterr().err.splitlines() == [
        "necropsy: 1 of 1 crash not sent to otlp http://127.0.0.1:1/v1/logs: it refuses connections",
        "  run the command again later",
    ]
