"""Receivers that refuse, hang, redirect, ask to wait or break off cost one line; what was not sent is known."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from fake_receivers import CLOSE, DRIP, HANG, OK, RESET, FakeReceiver, answer, receiving

import triage_documents
from necropsy.send import items, otlp, webhook
from necropsy.send.delivery import Outcome, Patience, deliver, seconds_of
from necropsy.send.items import Item
from necropsy.send.receivers import Receiver

LONG = Patience(step_s=60, request_s=120)
"""No receiver is so slow, however busy the machine is."""
PATIENCE = {HANG: replace(LONG, step_s=0.3), DRIP: replace(LONG, request_s=0.6)}
"""Only of these two is the patience at an end, and only for what they do."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def bugs(count: int = 3) -> list[Item]:
    document = triage_documents.document(count + count // 3, 40 + count)
    assert document.triage is not None
    return list(items.news(document.triage.groups, document.id, lambda _group: None))[:count]


def receiver(fake: FakeReceiver, most: int = 50) -> Receiver:
    return replace(webhook.receiver(f"{fake.url}/hook/SECRET?token=SECRET", "1"), most=most)


def sent(
    fake: FakeReceiver,
    found: Sequence[Item],
    *,
    most: int = 50,
    waits: list[float] | None = None,
    patience: Patience = LONG,
) -> Outcome:
    slept: list[float] = waits if waits is not None else []
    return deliver(found, receiver(fake, most), patience=patience, sleep=slept.append)


def names(body: bytes) -> list[str]:
    return [one["group"] for one in json.loads(body)["items"]]


def test_all_is_sent_in_batches() -> None:
    found, batches = bugs(5), []
    with receiving(OK) as fake:
        outcome = deliver(found, receiver(fake, 2), patience=LONG, when_sent=lambda one: batches.append(len(one)))
    assert outcome == Outcome(tuple(found), (), None)
    assert batches == [2, 2, 1]
    assert [name for body in fake.bodies for name in names(body)] == [one.group.id for one in found if one.group]
    assert fake.requests[0][0].startswith("POST /hook/SECRET?token=SECRET HTTP/1.1")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (HANG, "no answer within 0.3 s"),
        (DRIP, "no answer within 0.6 s"),
        (CLOSE, "it closed the connection without an answer"),
        (RESET, "it closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "its answer is not HTTP (BadStatusLine)"),
        (answer(400), "it answers 400 (Said)"),
        (answer(401), "it answers 401 (Said): check the key or the headers"),
        (answer(404), "it answers 404 (Said): check the address"),
        (answer(500), "it answers 500 (Said)"),
        (answer(307, "Location: http://198.51.100.1/x"), "it redirects to another address (198.51.100.1), refused"),
        (answer(307), "it redirects (307) without saying where to"),
        (answer(302, "Location: /new"), "it answers with a redirect (302) that does not keep the request"),
        (answer(307, "Location: /again"), "more than 3 redirects"),
        (answer(307, "Location: http://[broken"), "it redirects (307) to an address that is not valid"),
    ],
)
def test_a_broken_receiver_is_one_problem_and_nothing_is_sent(said: bytes, problem: str) -> None:
    found = bugs(3)
    with receiving(said) as fake:
        outcome = sent(fake, found, most=1, patience=PATIENCE.get(said, LONG))
        while not fake.requests and said != RESET:  # who was given up may not have read the request yet
            time.sleep(0.01)
    assert outcome.problem is not None
    assert outcome.problem.startswith(problem)
    assert "SECRET" not in outcome.problem
    assert (outcome.sent, outcome.unsent) == ((), tuple(found))
    assert len(fake.requests) == (4 if "more than" in problem else 0 if said == RESET else 1), "no retry"


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = bugs(1)
    outcome = sent(FakeReceiver(port), found)
    assert (outcome.problem, outcome.unsent) == ("it refuses connections", tuple(found))


def test_a_redirect_on_the_same_host_is_followed_with_the_same_body() -> None:
    with receiving(answer(308, "Location: /new"), OK) as fake:
        assert sent(fake, bugs(1)).problem is None
    assert fake.requests[1][0].startswith("POST /new HTTP/1.1")
    assert fake.bodies[0] == fake.bodies[1]


@pytest.mark.parametrize("status", [429, 503])
def test_it_waits_as_long_as_the_receiver_asks(status: int) -> None:
    waits: list[float] = []
    with receiving(answer(status, "Retry-After: 7"), answer(status), OK) as fake:
        assert sent(fake, bugs(1), waits=waits).problem is None
    assert waits == [7.0, 2.0], "without a number twice the wait of the time before"
    assert len(set(fake.bodies)) == 1


def test_a_wait_that_is_too_long_is_left_for_the_next_time() -> None:
    waits: list[float] = []
    with receiving(answer(429, "Retry-After: 3600")) as fake:
        outcome = sent(fake, bugs(1), waits=waits)
    assert outcome.problem == "it answers 429 (Said) and asks to wait 3600 s"
    assert (waits, len(fake.requests)) == ([], 1)


def test_it_does_not_ask_for_ever() -> None:
    waits: list[float] = []
    with receiving(answer(503)) as fake:
        outcome = sent(fake, bugs(2), most=1, waits=waits)
    assert (len(fake.requests), waits) == (4, [1.0, 2.0, 4.0])
    assert len(outcome.unsent) == 2


def test_what_was_taken_before_a_failure_is_known() -> None:
    found = bugs(3)
    with receiving(OK, answer(500)) as fake:
        outcome = sent(fake, found, most=1)
    assert (outcome.sent, outcome.unsent) == (tuple(found[:1]), tuple(found[1:]))


def test_413_makes_smaller_batches_and_then_a_smaller_item() -> None:
    found = bugs(4)
    with receiving(answer(413), OK, answer(413), answer(413), OK, answer(413), answer(413)) as fake:
        outcome = sent(fake, found)
    # Four; the first two; the last two; one of them, in its small form too; and the other one never.
    assert [len(names(body)) for body in fake.bodies] == [4, 2, 2, 1, 1, 1, 1]
    assert len(fake.bodies[4]) < len(fake.bodies[3])
    assert outcome.unsent == tuple(found[3:])
    assert outcome.problem == "too large for it even in the smallest form (413)"


def test_records_that_a_collector_rejects_are_a_problem_and_are_not_sent_again() -> None:
    said = answer(200, body=b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old\\u001b[31m"}}')
    found = bugs(3)
    with receiving(said) as fake:
        outcome = deliver(found, otlp.receiver(fake.url, "1", {}), patience=LONG)
    assert outcome.problem == r"2 records were rejected: too old\x1b[31m"
    assert (outcome.sent, outcome.unsent) == (tuple(found), ())


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"<html>", b'{"partialSuccess":{}}', b'{"partialSuccess":7}'])
def test_other_answers_of_a_collector_are_no_complaint(body: bytes) -> None:
    with receiving(answer(200, body=body)) as fake:
        assert deliver(bugs(1), otlp.receiver(fake.url, "1", {}), patience=LONG).problem is None


def test_a_proxy_is_used_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(OK) as fake:
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{fake.port}")
        monkeypatch.setenv("no_proxy", "")
        made = webhook.receiver("http://receiver.invalid/hook", "1")
        assert deliver(bugs(1), made, patience=LONG).problem is None
        monkeypatch.setenv("no_proxy", "receiver.invalid")
        assert deliver(bugs(1), made, patience=LONG).problem == "its name cannot be resolved"
    ((head, _),) = fake.requests
    assert head.startswith("POST http://receiver.invalid/hook HTTP/1.1")
    assert "Proxy-Authorization: Basic dXNlcjp3b3Jk" in head


def test_a_header_that_http_forbids() -> None:
    with receiving(OK) as fake:
        made = replace(receiver(fake), headers={"X": "a\r\nY: b"})
        outcome = deliver(bugs(1), made, patience=LONG)
    assert outcome.problem == "a header or the address holds a character that HTTP does not allow"
    assert fake.requests == []


def test_retry_after() -> None:
    assert seconds_of("120") == 120.0
    assert seconds_of(None) is seconds_of("soon") is seconds_of("-1") is None
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    assert 3500 < (seconds_of(later.strftime("%a, %d %b %Y %H:%M:%S GMT")) or 0) <= 3600
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
