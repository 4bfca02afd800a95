"""What a process was started with: its command line taken apart, its variables read from memory."""

from __future__ import annotations

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process.memory import Memory
from necropsy.capture.windows.process_parameters import ProcessParameters, split


class Bytes(Memory):
    """Memory that begins at 0x1000."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def some(self, address: int, size: int) -> bytes:
        start = address - 0x1000
        return self.data[start : start + size] if start >= 0 else b""


# The examples of Microsoft Learn, "Parsing C command-line arguments"; the first word is the program.
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('x "abc" d e', ("x", "abc", "d", "e")),
        (r"x a\\b d\"e f\"g h".replace("\\\\", "\\\\"), ("x", r"a\\b", 'd"e', 'f"g', "h")),
        (r"x a\\\"b c d", ("x", r"a\"b", "c", "d")),
        (r'x a\\\\"b c" d e', ("x", r"a\\b c", "d", "e")),
        ('x a"b"" c d', ("x", 'ab" c d')),
        ('x "" y', ("x", "", "y")),
        ("  x\t y  ", ("x", "y")),
        ("", ()),
    ],
)
def test_a_line_as_microsofts_runtime_takes_it_apart(line: str, words: tuple[str, ...]) -> None:
    assert split(line) == words


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12), min_size=1))
def test_what_is_quoted_comes_apart_as_it_was(words: list[str]) -> None:
    line = subprocess.list2cmdline(words)
    # Only blanks and tabs part words for the runtime; list2cmdline quotes for these alone.
    assert split(line) == tuple(words)


def test_variables_are_read_from_the_processs_memory() -> None:
    block = "=C:=C:\\work\0EMPTY=\0PATH=C:\\bin;ü\0\0".encode("utf-16-le")
    parameters = bytearray(0x400)
    struct.pack_into("<Q", parameters, 0x80, 0x1000 + 0x800)
    struct.pack_into("<Q", parameters, 0x3F0, len(block))
    line = "python -c pass".encode("utf-16-le")
    struct.pack_into("<HH4xQ", parameters, 0x70, len(line), len(line) + 2, 0x1000 + 0x1000)
    peb = bytearray(0x100)
    struct.pack_into("<Q", peb, 0x20, 0x1000 + 0x100)
    memory = bytes(peb) + bytes(parameters)
    memory = memory.ljust(0x800, b"\0") + block
    memory = memory.ljust(0x1000, b"\0") + line
    found = ProcessParameters(Bytes(memory), 0x1000)
    assert found.variables == {"EMPTY": "", "PATH": "C:\\bin;ü"}
    assert found.command == ("python", "-c", "pass")
    assert found.folder is None


def test_what_cannot_be_read_is_unknown() -> None:
    found = ProcessParameters(Bytes(b""), 0x1000)
    assert (found.variables, found.command, found.folder) == (None, None, None)
