"""What is sent, read back by the receivers' own libraries: OpenTelemetry's protobufs and Sentry's SDK."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from sentry_sdk.envelope import Envelope

import triage_documents
from necropsy.errors import OptionError
from necropsy.model import (
    Address,
    BugGroup,
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fault,
    Frame,
    Module,
    PythonPlace,
    Report,
    Subject,
    Thread,
    Tool,
)
from necropsy.send import items, otlp, receivers, sentry, webhook
from necropsy.send.items import Item

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


def death(text: str = "score_rows", *, secret: str = "") -> Document:
    """A report on one death, with two native frames, between them the line of Python."""
    frames = (
        Frame(index=0, kind="native", function=text, module="/opt/rows.so", address=Address(0x7F0000001010), source="/src/rows.cc", line=31, found_by="registers", owner="native-code"),
        Frame(index=1, kind="native", function="_PyEval_EvalFrameDefault", module="libpython3.11.so", address=Address(0x7F1000000010), found_by="cfi", owner="interpreter"),
    )  # fmt: skip
    python = (
        Frame(index=0, kind="python", function="score", source=f"/home/u/{text}.py", line=7, code=f"score({secret})", evaluated_by=1, owner="script"),
    )  # fmt: skip
    crash = Crash(
        pid=4711,
        at="2026-11-27T12:00:00.250000Z",
        exit=Exit(kind="signaled", signal="SIGSEGV"),
        fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0)),
        threads=(Thread(tid=4711, crashed=True, frames=frames, python=python),),
        modules=(
            Module(path="/opt/rows.so", low=Address(0x7F0000000000), high=Address(0x7F0000002000), build_id="00112233445566778899aabbccddeeff00112233"),
            Module(path="/opt/unused.so", low=Address(0x1000), high=Address(0x2000), build_id="ff" * 20),
        ),
        libraries={"tensorflow": "2.20.0"},
        log_tail=f"token={secret}",
    )  # fmt: skip
    verdict = Diagnosis(
        rule="null-dereference",
        title="A null pointer was used",
        summary=f"`{text}` read through a null pointer. {secret}",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="c", seen=secret or "s"),),
        culprit=Culprit(function=text, module="rows.so", source="/src/rows.cc", line=31, python=PythonPlace(file="/home/u/train.py", line=7)),
    )  # fmt: skip
    return Document(
        kind="run",
        id="20261127T120001Z-9f86d081",
        tool=Tool(name="necropsy", version="1"),
        complete=True,
        host="gpu-07",
        subject=Subject(kind="process", command=("python", "--token", secret)),
        reports=(Report(crash=crash, pid=4711, signature="null-dereference:score_rows", verdict=verdict),),
    )


def bug(document: Document, example: Report | None = None) -> Item:
    assert document.triage is not None
    return next(items.news(document.triage.groups, document.id, lambda _group: example))


def event_of(one: Item, *, lean: bool = False) -> dict[str, Any]:
    envelope = Envelope.deserialize_from(io.BytesIO(sentry.envelope(one, "1", lean=lean)))
    event = envelope.get_event()
    assert event is not None
    assert envelope.headers["event_id"] == event["event_id"] == one.event_id
    return dict(event)


def record_of(one: Item, *, lean: bool = False) -> tuple[Any, dict[str, Any]]:
    """The record as OpenTelemetry's own library reads it, with its attributes."""
    body = receivers.as_json(otlp.payload([one], "1", "train", lean=lean))
    request = json_format.Parse(body, ExportLogsServiceRequest())
    (resource,) = request.resource_logs
    (record,) = resource.scope_logs[0].log_records

    def values(attributes: Any) -> dict[str, Any]:
        return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}

    return record, values(record.attributes) | values(resource.resource.attributes)


def test_a_death_as_a_log_record() -> None:
    (one,) = items.deaths(death())
    record, attributes = record_of(one)
    assert (record.severity_number, record.severity_text, record.event_name) == (21, "FATAL", "app.crash")
    assert record.time_unix_nano == 1_795_780_800_250_000_000
    assert record.body.string_value == attributes["exception.message"]
    assert attributes["exception.type"] == "SIGSEGV"
    assert "score_rows in /opt/rows.so (/src/rows.cc:31)" in attributes["exception.stacktrace"]
    assert attributes["code.function.name"] == "score_rows"
    assert (attributes["process.pid"], attributes["code.line.number"]) == (4711, 7)
    assert (attributes["host.name"], attributes["service.name"]) == ("gpu-07", "train")
    assert attributes["necropsy.version.tensorflow"] == "2.20.0"


def test_a_bug_as_a_log_record() -> None:
    one = bug(triage_documents.document())
    record, attributes = record_of(one)
    assert one.group is not None
    assert attributes["necropsy.group.id"] == one.group.id
    assert attributes["necropsy.group.count"] == 135
    assert "host.name" not in attributes, "it was seen on several"
    assert record.time_unix_nano > record.observed_time_unix_nano // 10**10


def test_records_are_below_the_resource_of_their_host() -> None:
    (one,) = items.deaths(death())
    (other,) = items.deaths(msgspec.structs.replace(death(), host="gpu-08", id="20261127T120002Z-00000000"))
    found = otlp.payload([one, other, one], "1", "x")["resourceLogs"]
    assert [len(each["scopeLogs"][0]["logRecords"]) for each in found] == [2, 1]


def test_a_death_as_an_event() -> None:
    (one,) = items.deaths(death())
    event = event_of(one)
    assert (event["level"], event["platform"], event["fingerprint"]) == ("fatal", "native", [one.incident.key])
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["mechanism"]["handled"]) == ("SIGSEGV", False)
    frames = exception["stacktrace"]["frames"]
    assert [(frame["platform"], frame["function"]) for frame in frames] == [
        ("native", "_PyEval_EvalFrameDefault"),
        ("python", "score"),
        ("native", "score_rows"),
    ], "outermost first, the line of Python where the interpreter runs it"
    assert frames[2]["instruction_addr"] == "0x7f0000001010"
    assert frames[2]["in_app"] is True
    (image,) = event["debug_meta"]["images"]
    assert image["code_id"] == "00112233445566778899aabbccddeeff00112233"
    assert image["debug_id"] == "33221100-5544-7766-8899-aabbccddeeff", "as Breakpad writes a build ID"
    assert (image["type"], image["image_addr"], image["image_size"]) == ("elf", "0x7f0000000000", 0x2000)
    assert event["server_name"] == "gpu-07"


def test_a_bug_as_an_event_with_the_frames_of_its_example() -> None:
    document = triage_documents.document()
    one = bug(document, death().reports[0])
    assert one.group is not None
    event = event_of(one)
    assert event["fingerprint"] == [one.group.id]
    assert event["tags"]["group"] == one.group.id
    assert event["contexts"]["necropsy"]["count"] == 135
    assert len(event["exception"]["values"][0]["stacktrace"]["frames"]) == 3
    without = event_of(bug(document))["exception"]["values"][0]["stacktrace"]["frames"]
    assert without[-1]["function"] == "score_rows", "without a report of it the merged stack"


def test_sending_again_is_the_same_event_and_another_death_is_not() -> None:
    (one,), (again,) = items.deaths(death()), items.deaths(death())
    (other,) = items.deaths(msgspec.structs.replace(death(), id="20261127T120001Z-00000000"))
    assert one.event_id == again.event_id
    assert one.event_id != other.event_id
    assert one.incident.key == other.incident.key


def test_a_bug_that_is_back_is_news_and_a_closed_one_is_not() -> None:
    document = triage_documents.document()
    assert document.triage is not None
    back = next(one for one in document.triage.groups if one.status == "regression")

    def keys(**changes: Any) -> list[str]:
        one: BugGroup = msgspec.structs.replace(back, **changes)
        return [item.key for item in items.news((one,), "d", lambda _group: None)]

    assert keys(status="closed") == []
    assert keys() != keys(status="known") != []
    assert keys() != keys(closed_at="2027-01-01T00:00:00Z")


def test_everything_is_masked() -> None:
    """Names of functions are left as they are, as in every report: mangled ones look like secrets."""
    hostile = triage_documents.hostile(f"token={SECRET}").triage
    assert hostile is not None
    group = hostile.groups[0]
    group = msgspec.structs.replace(group, names=(), stacks=(), culprit=Culprit(function="f", module=group.title))
    found = [
        *items.deaths(death(secret=SECRET)),
        bug(triage_documents.of_groups([group]), death(secret=SECRET).reports[0]),
    ]
    for one in found:
        for lean in (False, True):
            bodies = [
                sentry.envelope(one, "1", lean=lean),
                json.dumps(otlp.payload([one], "1", "x", lean=lean)).encode(),
                json.dumps(webhook.payload([one], "1", lean=lean)).encode(),
            ]
            assert [SECRET.encode() in body for body in bodies] == [False] * 3
    assert b"***" in sentry.envelope(found[0], "1")


def test_neither_the_log_nor_the_command_is_sent() -> None:
    document = death()
    crash = msgspec.structs.replace(document.reports[0].crash, log_tail="the end of the log")
    report = msgspec.structs.replace(document.reports[0], crash=crash)
    (one,) = items.deaths(msgspec.structs.replace(document, reports=(report,)))
    assert b"the end of the log" not in sentry.envelope(one, "1")
    assert "the end of the log" not in json.dumps([otlp.payload([one], "1", "x"), webhook.payload([one], "1")])


def test_the_small_form_is_smaller() -> None:
    (one,) = items.deaths(death())
    assert len(sentry.envelope(one, "1", lean=True)) < len(sentry.envelope(one, "1"))
    assert len(record_of(one, lean=True)[1]) < len(record_of(one)[1])
    assert event_of(one, lean=True)["fingerprint"] == [one.incident.key]


def test_a_webhook_says_what_it_is_in_words() -> None:
    (one,) = items.deaths(death())
    payload = webhook.payload([one] * 7, "1")
    assert payload["text"].splitlines()[-1] == "and 2 more"
    assert payload["items"][0]["places"][0] == "/home/u/score_rows.py:7"
    assert payload["items"][0]["kind"] == "death"
    assert webhook.payload([bug(triage_documents.document())], "1")["items"][0]["count"] == 135


@settings(max_examples=25)
@given(st.text(max_size=40) | st.sampled_from(["\ud800", "\x00", "::error::x", "\u202e"]))
def test_any_name_can_be_sent(text: str) -> None:
    for one in (
        *items.deaths(death(text)),
        bug(triage_documents.hostile(text)),
        bug(triage_documents.hostile(text), death(text).reports[0]),
    ):
        record_of(one)
        event_of(one)
        receivers.as_json(webhook.payload([one], "1")).decode()


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "posted"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/logs"),
        ("https://collector.example/", "https://collector.example/v1/logs"),
        ("https://collector.example/otlp/v1/logs", "https://collector.example/otlp/v1/logs"),
        ("https://user:word@[::1]:1/a?k=v#f", "https://[::1]:1/a/v1/logs?k=v"),
    ],
)
def test_the_address_of_a_collector(url: str, posted: str) -> None:
    made = otlp.receiver(url, "1", {"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=a%20b,Other=2"})
    assert made.url == posted
    assert made.headers["x-api-key"] == "a b"
    assert "word" not in made.name
    assert "k=v" not in made.name
    assert ("Authorization" in made.headers) == ("word" in url)


def test_the_address_of_a_project_of_sentry() -> None:
    made = sentry.receiver("https://0abc@o1.ingest.sentry.example/sub/42", "1.0")
    assert made.url == "https://o1.ingest.sentry.example/sub/api/42/envelope/"
    assert made.headers["X-Sentry-Auth"] == "Sentry sentry_version=7, sentry_client=necropsy/1.0, sentry_key=0abc"
    assert made.name == "sentry https://o1.ingest.sentry.example project 42"


def test_the_address_of_a_webhook_is_a_secret() -> None:
    made = webhook.receiver("https://user:word@hooks.example/services/T0/B0/xyz?k=v", "1")
    assert made.name == "webhook https://hooks.example"
    assert not {"xyz", "word", "k=v"} & set(made.id.replace("/", " ").split())
    other = webhook.receiver("https://hooks.example/services/T0/B0/abc", "1")
    assert made.id != other.id, "a store tells two hooks of one host apart"


@pytest.mark.parametrize(
    "url", ["", "collector", "ftp://x/1", "https://", "http://[::1", "http://h:99999/1", "file:///etc/passwd"]
)
def test_other_addresses_are_refused_in_one_line(url: str) -> None:
    for make in (otlp.receiver, sentry.receiver, webhook.receiver):
        with pytest.raises(OptionError, match="takes an address that begins with"):
            make(url, "1")


@pytest.mark.parametrize("dsn", ["https://h/1", "https://KEY@h", "https://KEY@h/"])
def test_a_dsn_needs_a_key_and_a_project(dsn: str) -> None:
    with pytest.raises(OptionError, match="--sentry takes a DSN") as raised:
        sentry.receiver(dsn, "1")
    assert "KEY@h/1" not in str(raised.value)
