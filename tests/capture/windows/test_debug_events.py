"""Debug events as Windows lays them out, written here field by field from minwinbase.h."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.windows import debug_events as events


def event(kind: int, body: bytes) -> bytes:
    head = struct.pack("<I", kind) + struct.pack("<I", 4711) + struct.pack("<I", 4712) + bytes(4)
    return (head + body).ljust(events.SIZE, b"\xcc")


def exception(code: int, parameters: list[int], *, first: bool) -> bytes:
    record = (
        struct.pack("<I", code) + struct.pack("<I", 1) + struct.pack("<Q", 0x1111) + struct.pack("<Q", 0x7FF612345678)
    )
    record += struct.pack("<I", len(parameters)) + bytes(4)
    record += b"".join(struct.pack("<Q", one) for one in parameters) + bytes(8 * (15 - len(parameters)))
    assert len(record) == 152
    return event(1, record + struct.pack("<I", first))


def test_an_access_violation_at_its_second_chance() -> None:
    seen = events.parse(exception(0xC0000005, [1, 0xDEAD0000BEEF], first=False))
    assert seen == events.RaisedEvent(4711, 4712, 0xC0000005, 1, 0x1111, 0x7FF612345678, (1, 0xDEAD0000BEEF), False)


def test_a_stack_overflow_at_its_first() -> None:
    seen = events.parse(exception(0xC00000FD, [], first=True))
    assert isinstance(seen, events.RaisedEvent)
    assert seen.first_chance
    assert seen.parameters == ()


def test_a_process_begins() -> None:
    body = struct.pack("<QQQQ", 0x10, 0x20, 0x30, 0x140000000) + struct.pack("<II", 0, 0)
    body += struct.pack("<QQQ", 0x7FF000, 0x140001000, 0) + struct.pack("<H", 1)
    seen = events.parse(event(3, body))
    assert seen == events.ProcessBegan(4711, 4712, 0x10, 0x20, 0x30, 0x140000000, 0x7FF000, 0x140001000)


def test_threads_and_ends() -> None:
    assert events.parse(event(2, struct.pack("<QQQ", 7, 8, 9))) == events.ThreadBegan(4711, 4712, 7, 8, 9)
    assert events.parse(event(4, struct.pack("<I", 3))) == events.ThreadEnded(4711, 4712, 3)
    assert events.parse(event(5, struct.pack("<I", 0xC0000409))) == events.ProcessEnded(4711, 4712, 0xC0000409)


def test_dlls_come_and_go() -> None:
    body = struct.pack("<QQIIQH", 0x44, 0x180000000, 0, 0, 0x5555, 1)
    assert events.parse(event(6, body)) == events.DllLoaded(4711, 4712, 0x44, 0x180000000)
    assert events.parse(event(7, struct.pack("<Q", 0x180000000))) == events.DllUnloaded(4711, 4712, 0x180000000)


def test_what_it_says() -> None:
    body = struct.pack("<Q", 0x20000) + struct.pack("<HH", 1, 12)
    assert events.parse(event(8, body)) == events.DebugString(4711, 4712, 0x20000, 12, True)
    assert events.parse(event(9, struct.pack("<II", 5, 1))) == events.SystemFailed(4711, 4712, 5, 1)


def test_an_event_that_nobody_knows_is_passed_over() -> None:
    assert events.parse(event(99, b"")) == events.DebugEvent(4711, 4712)


@given(st.binary(min_size=events.SIZE, max_size=events.SIZE))
def test_any_bytes_are_an_event(data: bytes) -> None:
    seen = events.parse(data)
    if isinstance(seen, events.RaisedEvent):
        assert len(seen.parameters) <= 15
