"""The parts of the page that answer a question each: which line, which threads, how many deaths, which code."""

from __future__ import annotations

import re

import msgspec
import pytest
from html_page import Page, elements
from report_examples import RECURSION, UNKNOWN, document, python_frame, with_lock_circle, with_many_threads

from necropsy.model import Crash, Environment, Exit, Fault, Gap, NtStatus, Report, Thread
from necropsy.reports import html
from necropsy.reports.page import moment
from necropsy.rules import page as rule_page

LINE = python_frame(0, "step", 7, "out = op(x)")


def test_pages_are_small() -> None:
    """An ordinary crash, and 500 threads each at a place of its own, with names of 150 characters."""
    assert len(html.render(document(RECURSION)).encode()) < 300_000
    page = html.render(with_many_threads(500))
    assert len(page.encode()) < 1_000_000
    assert page.count("<tr") == 501
    assert all(f'id="d0-t{tid}"' in page for tid in range(2, 501)), "evidence can lead to each"


def test_the_users_line_is_shown_with_its_neighbours() -> None:
    rendered = html.render(with_lock_circle())
    source = re.search(r'<div class="source mono">(.*?)</div>', rendered, re.DOTALL)
    assert source is not None
    assert re.findall(r'class="number">(\d+)<', source[1]) == ["29", "30"], "there is no third line"
    assert "<mark>    lock.acquire()</mark>" in source[1]
    assert "def work():" in source[1]


def test_the_part_of_the_line_that_ran_is_underlined() -> None:
    around = ("def step(x):", "    out = op(<x>)", "")
    frame = msgspec.structs.replace(LINE, code="out = op(<x>)", columns=(6, 13), excerpt=around)
    crash = Crash(pid=1, threads=(Thread(tid=1, crashed=True, python=(frame,), frames=()),))
    assert "<mark>    out = <u>op(&lt;x&gt;)</u></mark>" in html.render(Report(pid=1, crash=crash))
    masked = msgspec.structs.replace(frame, excerpt=("", "    out = ***", ""))
    crash = Crash(pid=1, threads=(Thread(tid=1, crashed=True, python=(masked,), frames=()),))
    assert "<mark>    out = ***</mark>" in html.render(Report(pid=1, crash=crash)), (
        "other columns than those of the code"
    )


def test_a_file_that_has_changed_since_is_named_without_its_line() -> None:
    thread = Thread(tid=1, crashed=True, python=(msgspec.structs.replace(LINE, code=None, excerpt=()),), frames=())
    crash = Crash(pid=1, fault=Fault(signal="SIGSEGV"), threads=(thread,))
    changed = Gap(part="source lines", why="changed since the process started: /home/u/train.py")
    note = "the file has changed since"
    assert note not in Page(html.render(Report(pid=1, crash=crash))).text
    page = Page(html.render(Report(pid=1, crash=msgspec.structs.replace(crash, gaps=(changed,))))).text
    assert "/home/u/train.py:7, in step The line itself is not shown" in page
    assert note in page


def test_the_threads_of_a_deadlock_are_drawn_and_listed() -> None:
    rendered = html.render(with_lock_circle())
    _, opening, rest = rendered.partition('<figure class="ring locks">')
    circle = Page(opening + rest.partition("</figure>")[0] + "</figure>")
    assert circle.text.index("Thread 2 (loader)") < circle.text.index("Thread 3 (writer)")
    assert "lock_10.acquire()" in circle.text
    assert "waits for the mutex at 0x7f0000001000 , held by the first one again" in circle.text
    rows = [Page(row).text for row in re.findall(r"<tr.*?</tr>", rendered, re.DOTALL)]
    assert rows == [
        "Thread State Lock Line",
        "thread python (1) waits for a lock the lock at 0x7f0000003000 train.py:30 in work lock_30.acquire()",
        "thread loader (2) waits for a lock the mutex at 0x7f0000002000, held by thread 3 train.py:10 in work lock_10.acquire()",
        "thread writer (3) waits for a lock the mutex at 0x7f0000001000, held by thread 2 train.py:20 in work lock_20.acquire()",
    ]


def test_equal_deaths_are_one_part_with_a_table() -> None:
    others = tuple(msgspec.structs.replace(RECURSION, pid=5000 + place) for place in range(99))
    rendered = html.render(document(RECURSION, *others, UNKNOWN))
    page = Page(rendered)
    assert len(elements(page, "article")) == 2
    assert "101 processes died in this run, in 2 ways." in page.text
    assert "99 more processes died in the same way" in page.text
    assert all(f'<th scope="row">{5000 + place}</th>' in rendered for place in range(99))
    assert len(rendered.encode()) < 300_000


def test_of_many_kinds_of_death_some_are_shown_and_what_follows_from_another_is_a_line() -> None:
    kinds = tuple(msgspec.structs.replace(RECURSION, pid=100 + place, signature=f"s{place}") for place in range(14))
    ended = tuple(msgspec.structs.replace(UNKNOWN, pid=900 + place, consequence_of=100) for place in range(50))
    rendered = html.render(document(*kinds, *ended))
    page = Page(rendered)
    assert len(elements(page, "article")) == html.WHOLE_REPORTS
    assert "64 processes died in this run, in 12 ways." in page.text
    others = Page(re.findall(r"<ul>.*?</ul>", rendered[rendered.index('id="others"') :], re.DOTALL)[0])
    assert [one for one in others.text.split(" processes") if one.strip()] == [
        "train.py:41, in step, crashed (SIGSEGV): Walk in deep.so called itself 104,652 times until the 8 MiB stack of the main thread was used up. 4",
        " This process ended because process 100 had died: see above. 50",
    ]


def test_a_verdict_leads_to_the_page_of_its_rule() -> None:
    rendered = html.render(RECURSION, rule_page)
    page = Page(rendered)
    assert [one["href"] for one in elements(page, "a") if one.get("class") == "pill rule"] == [
        "#rule-stack-overflow-recursion"
    ]
    folded = rendered[rendered.index('<details id="rule-stack-overflow-recursion"') :]
    assert "<h3>How to be sure</h3>" in folded
    assert "<h3>Sources</h3>" not in rendered
    assert "<em>destructor</em>: a deep structure is freed" in folded
    assert "<code>__del__</code>" in folded or "<code>" in folded


def test_what_a_person_needs_to_run_it_again() -> None:
    crash = msgspec.structs.replace(RECURSION.crash, environment=Environment(working_directory="/home/u/job <7>"))
    page = Page(html.render(msgspec.structs.replace(RECURSION, crash=crash))).text
    assert "Exit code 139 in a shell, -11 in Python" in page
    assert "Working directory /home/u/job <7>" in page


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Exit(kind="signaled", signal="SIGKILL"), "137 in a shell, -9 in Python"),
        (Exit(kind="signaled", signal="SIGNOSUCH"), None),
        (Exit(kind="exited", code=3), "3"),
        (Exit(kind="timeout"), None),
        (None, None),
        (
            Exit(kind="exited", ntstatus=NtStatus(value="0xC0000005", signed=-1073741819)),
            "0xC0000005, shown as -1073741819 by Python",
        ),
    ],
)
def test_exit_codes(end: Exit | None, words: str | None) -> None:
    assert html.spelled(end) == words


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("2026-11-02T09:05:08.123456Z", "2 November 2026, 09:05:08 UTC"),
        ("2026-11-02T09:05:08Z", "2 November 2026, 09:05:08 UTC"),
        ("2026-11-02T09:05:08+02:00", "2 November 2026, 07:05:08 UTC"),
        ("9999-99-99", "9999-99-99"),
        ("<b>", "<b>"),
    ],
)
def test_dates(iso: str, words: str) -> None:
    assert moment(iso) == words
