from __future__ import annotations

import json
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.notebook import cell_log
from necropsy.notebook.cell_log import Cell, CellLog


def written(*records: object, running: int = 0, end: int | None = None, asked: int = 0) -> int:
    parts = [data if isinstance(data, bytes) else json.dumps(data).encode() for data in records]
    body = b"".join(struct.pack("=I", len(part)) + part for part in parts)
    handle = cell_log.create()
    words = struct.pack("=QQQ", running, 32 + len(body) if end is None else end, asked)
    os.pwrite(handle, words.ljust(32, b"\0") + body, 0)
    return handle


FIRST = {"count": 1, "code": "x = 1", "header": {"msg_id": "a"}}
SECOND = {"count": 2, "code": "f()\ng()", "header": {"msg_id": "b"}}


def test_the_running_cell_and_those_before() -> None:
    place = 32 + 4 + len(json.dumps(FIRST))
    log = cell_log.read(written(FIRST, SECOND, running=place, asked=1))
    assert [cell.count for cell in log.cells] == [1, 2]
    assert log.running == Cell(2, "f()\ng()", {"msg_id": "b"})
    assert log.asked_to_end
    assert [log.running.line(number) for number in (0, 1, 2, 3)] == [None, "f()", "g()", None]


def test_a_new_log_is_empty() -> None:
    assert cell_log.read(cell_log.create()) == CellLog()


@pytest.mark.parametrize("record", [b"\xff", b"[", b"{}", {"count": "1", "code": "", "header": {}}, b"[" * 100000])
def test_damaged_records_are_left_out(record: object) -> None:
    assert [cell.count for cell in cell_log.read(written(FIRST, record, SECOND)).cells] == [1]


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_bytes_are_a_log(data: bytes, end: int) -> None:
    handle = cell_log.create()
    try:
        os.pwrite(handle, data, 0)
        os.pwrite(handle, struct.pack("=Q", end), 8)
        cell_log.read(handle)
    finally:
        os.close(handle)


def test_a_file_is_found_by_the_text_of_its_cell() -> None:
    # The numbers are ipykernel's own, for these texts.
    names = {"": 3990065800, "a": 2167009006, "abc": 3350977461, "abcd": 804720481, "äö€": 2220924115}
    for code, number in names.items():
        log = CellLog((Cell(7, code, {}),))
        assert log.find(f"/tmp/ipykernel_12/{number}.py") == log.cells[0], code
    assert log.find("/home/me/2220924115.py") is None


def test_ipython_in_a_terminal_names_the_number() -> None:
    log = CellLog((Cell(7, "x", {}),))
    assert log.find("<ipython-input-7-0123abcd>") == log.cells[0]
    assert log.find("<ipython-input-8-0123abcd>") is None
