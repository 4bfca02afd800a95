"""The page of a profile: pictures, findings with their rule's page, and nothing that a program could inject."""

from __future__ import annotations

import re

import msgspec
from html_page import Page, elements
from profile_examples import EVAL, MAIN, MIB, POOL, TRAINING, process, profiled
from report_examples import RECURSION

from necropsy.model import StackUse
from necropsy.reports import rendered
from necropsy.rules import page as rule_page


def test_the_page_has_the_findings_the_stacks_and_the_memory_of_each_process() -> None:
    text = rendered(TRAINING, "html", pages=rule_page)
    page = Page(text)
    assert "main came closest to the end of its stack: 2 MiB of 8 MiB left" in page.text
    assert "near-stack-overflow" in page.text
    assert "ulimit -s 9216" in page.text
    assert "parse" in page.text
    assert "40,000 \N{MULTIPLICATION SIGN} 128 B \N{MIDDLE DOT} json.so" in page.text
    assert "Windows, python.exe: 1.91 MiB" in page.text
    assert "Resident memory over time: at most 300 MiB, at 2.0 s" in page.text
    assert "memory.max, the limit on the control group: 512 MiB (dotted: the control group)" in page.text
    assert "RLIMIT_AS, the limit on the address space: 1,020 GiB (far above this picture)" in page.text
    assert "child 20, python train.py" in page.text
    assert "stack: one thread was late" in page.text
    held = "held images: float32 [64, 224, 224, 3], 36.8 MiB; labels: int64 [64], 512 B; names: str [64]"
    assert f"1.2 s: +90 MiB /srv/train.py:17 in load {held}" in page.text
    assert page.text.count(held) == 4, "the rise, and each row of allocations by that line itself"
    assert "At most 300 MiB were allocated and not freed at one time, at 1.9 s." in page.text
    assert "PyArray_NewFromDescr < ones, numeric.py:191 < load, train.py:17" in page.text
    assert "tf_Compute \N{MULTIPLICATION SIGN}10" in page.text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'aria-labelledby="([^"]+)"', text)) <= set(ids)


def test_names_from_the_program_stay_text() -> None:
    row = msgspec.structs.replace(EVAL, function="</title><script>alert(1)</script>", bytes=MIB)
    stack = StackUse(tid=1, name='"><img src=x>\x1b[31m', size=8 * MIB, peak=2 * MIB, functions=(row,))
    page = Page(rendered(profiled(process(stack, command=("<b>", "::error::x"))), "html"))
    assert len(page.scripts) == 1
    assert elements(page, "img") == []
    assert elements(page, "b") == [{"class": "mono"}], "the name of the thread"
    assert "\x1b" not in page.text
    assert "<script>alert(1)</script>" in page.text


def test_a_thread_that_hardly_used_its_stack_is_in_the_table_only() -> None:
    page = Page(rendered(profiled(process(MAIN, *POOL)), "html"))
    assert len(elements(page, "figure")) == 1
    assert len(elements(page, "tr")) == 3, "the head, main, and the pool"


def test_thousands_of_threads_are_a_small_page() -> None:
    stacks = [msgspec.structs.replace(MAIN, tid=tid, name=f"thread-{tid}") for tid in range(1, 3001)]
    text = rendered(profiled(process(*stacks)), "html")
    assert len(text) < 300_000
    assert "and 2900 more, which the JSON document has" in text


def test_a_death_stands_on_the_page() -> None:
    died = msgspec.structs.replace(TRAINING, reports=(RECURSION,))
    assert "What killed the process" in Page(rendered(died, "html")).text


def test_a_profile_of_nothing_is_a_page() -> None:
    assert "No process was measured" in Page(rendered(profiled(), "html")).text
    assert "No stack was measured." in Page(rendered(profiled(process()), "html")).text


def test_markdown_has_the_findings_and_the_table() -> None:
    text = rendered(TRAINING, "markdown")
    assert text.startswith("### python train.py exited with code 0; main came closest")
    assert "- note: main used 6 MiB of its stack of 8 MiB: 2 MiB left." in text
    assert "tf_Compute x10" in text
