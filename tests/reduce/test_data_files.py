"""How data files are shortened: by their structure, as long as the oracle still finds what it needs."""

from __future__ import annotations

import csv
import io
import json
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driven_passes import driven
from necropsy.reduce.data_files import fields_of, shorten_data
from necropsy.reduce.program import Program


def shortened(name: str, data: bytes, needed: bytes) -> bytes:
    program = Program({"a.py": b"", name: data}, "a.py")
    shorter, _ = driven(program, shorten_data, lambda one: needed in one.files[name], most=2000)
    return shorter.files[name]


@pytest.mark.parametrize(
    ("name", "data", "needed", "left"),
    [
        ("a.csv", b"id,name,value\n1,a,5\n2,b,666\n3,c,7\n", b"666", b"666"),
        ("a.json", b'{"a": [1, 2, {"b": 666, "c": [1]}], "d": 1}', b'"b": 666', b'"b": 666'),
        ("a.jsonl", b'{"a": 1, "b": 2}\n{"a": 666, "b": 3}\n', b'"a": 666', b'{"a": 666}'),
        ("a.bin", bytes(300) + b"\x01\x02" + bytes(300), b"\x01\x02", b"\x01\x02"),
        ("a.txt", b"x" * 900 + b"666" + b"x" * 900, b"666", b"666"),
    ],
)
def test_data_is_shortened_by_its_structure(name: str, data: bytes, needed: bytes, left: bytes) -> None:
    assert shortened(name, data, needed).strip(b"\n{}[]\0") == left.strip(b"\n{}[]\0")


def test_a_long_string_of_json_is_shortened_in_its_place() -> None:
    data = json.dumps({"rows": [{"text": "a" * 400 + "[666]" + "ü" * 400}, 1]}).encode()

    def is_needed(program: Program) -> bool:
        try:
            return "[666]" in json.loads(program.files["a.json"])["rows"][0]["text"]
        except (ValueError, LookupError, TypeError):
            return False

    shorter, _ = driven(Program({"a.py": b"", "a.json": data}, "a.py"), shorten_data, is_needed, most=2000)
    assert json.loads(shorter.files["a.json"]) == {"rows": [{"text": "[666]"}]}


def test_a_separator_between_quotes_belongs_to_its_field() -> None:
    rows = [["id", "note", "value"], ["1", 'five, "or" six', "5"], ["2", "seven, eight", "666"]]
    data = "".join(",".join(f'"{one.replace(chr(34), chr(34) * 2)}"' for one in row) + "\r\n" for row in rows)
    seen: list[list[list[str]]] = []

    def is_needed(program: Program) -> bool:
        table = list(csv.reader(program.files["a.csv"].decode().splitlines()))
        seen.append(table)
        return ["2", "666"] in [row[:1] + row[-1:] for row in table] and len(program.files["a.csv"]) > 125

    driven(Program({"a.py": b"", "a.csv": data.encode() * 9}, "a.py"), shorten_data, is_needed, most=2000)
    without_notes = [table for table in seen if all(len(row) == 2 for row in table)]
    assert any(["2", "666"] in table for table in without_notes)


@settings(max_examples=100)
@given(
    st.lists(st.text(alphabet="a1\",; '", max_size=5), min_size=2, max_size=4),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_fields_are_those_that_a_reader_of_csv_sees(row: list[str], separator: str, quoting: Literal[0, 1]) -> None:
    written = io.StringIO()
    csv.writer(written, delimiter=separator, quoting=quoting, lineterminator="").writerow(row)
    fields = fields_of(written.getvalue().encode(), separator.encode())
    # An empty line has no field for that reader, which the empty one is.
    assert ["".join(next(csv.reader([one.decode()], delimiter=separator))) for one in fields] == row


@given(st.binary(max_size=20), st.sampled_from([b",", b"\t", b" "]))
def test_fields_of_any_line_make_the_line(line: bytes, separator: bytes) -> None:
    assert separator.join(fields_of(line, separator)) == line
