"""Reports of deaths on Windows name Windows' status, in every format, and no signal of Linux'."""

from __future__ import annotations

import re

import msgspec
import pytest

from necropsy.document import of_crash
from necropsy.model import Document, Subject
from necropsy.reports import html, markdown, text
from necropsy.reports.wording import end_in_a_word
from necropsy.rules import crash_rules
from sketch import crash

FULL = """
    exception 0xC00000FD 1 0x2f3000
    reserve 2000000
    program C:\\Python311\\python.exe
    thread 4711 crashed
    stack 2000000 used 1990000 exhausted main low 0x2f0000
    frame Flatten(Node*) @ op.pyd in op.cc:12 takes 96
    frames 20700
    fold 1 x 20690 takes 96: Flatten(Node*)@op.pyd
"""
READ = """
    exception 0xC0000005 0 0x60
    thread 300 worker crashed
    frame Node::weight(Node const *) @ op.pyd in op.cc:31 takes 32
"""
ABORTED = """
    exception 0xC0000409 7
    thread 300 crashed
    frame abort @ ucrtbase.dll takes 64
"""
ALONE = "exit status 0xC0000602"


def document(sketch: str) -> Document:
    return of_crash(crash(sketch), Subject(kind="minidump", path="crash.dmp"), crash_rules())


@pytest.mark.parametrize(
    ("sketch", "words"),
    [
        (FULL, "0xC00000FD STATUS_STACK_OVERFLOW, write at 0x2f3000, in the main thread (4711)"),
        (READ, "0xC0000005 STATUS_ACCESS_VIOLATION, read at 0x60, in thread worker (300)"),
        (ABORTED, "0xC0000409 subcode 7, FAST_FAIL_FATAL_APP_EXIT, in thread 300"),
        (ALONE, "ended with 0xC0000602 STATUS_FAIL_FAST_EXCEPTION (-1073740286)"),
    ],
    ids=["full-stack", "access-violation", "fast-fail", "status-alone"],
)
def test_the_death_is_told_as_windows_tells_it(sketch: str, words: str) -> None:
    told = document(sketch)
    plain = re.sub(r"\s+", " ", text.render(told, width=200))
    assert words in plain
    assert words in markdown.render(told).replace("\\_", "_")
    assert words in re.sub(r"<[^>]+>", "", html.render(told))
    assert not re.search(r"\bSIG[A-Z]{3,4}\b", plain)


def test_a_list_names_the_status() -> None:
    assert end_in_a_word(crash(READ)) == "0xC0000005"


def test_a_guessed_frame_is_marked() -> None:
    walked = crash(READ)
    (thread,) = walked.threads or ()
    (frame,) = thread.frames or ()
    guessed = msgspec.structs.replace(frame, index=1, function="Guessed", found_by="scan")
    threads = (msgspec.structs.replace(thread, frames=(frame, guessed), frames_total=2),)
    told = of_crash(
        msgspec.structs.replace(walked, threads=threads), Subject(kind="minidump", path="crash.dmp"), crash_rules()
    )
    for plain in (text.render(told), markdown.render(told), re.sub(r"<[^>]+>", " ", html.render(told))):
        assert re.search(r"#1\?\s+Guessed", plain)
        assert re.search(r"#0\s+Node::weight", plain)
        assert "found by a search: may be left over from an earlier call" in plain
    assert "found by a search" not in text.render(document(READ))
