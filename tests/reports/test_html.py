"""The page: what it says, that it loads nothing, that hostile text stays text, and that the drawing is to scale."""

from __future__ import annotations

import itertools
import re
from importlib import resources

import msgspec
import pytest
from html_page import Page, elements
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import (
    CASES,
    RECURSION,
    UNKNOWN,
    document,
    native,
    thread_of,
    with_thread,
)

from necropsy.model import (
    Address,
    Crash,
    Culprit,
    Diagnosis,
    Environment,
    Evidence,
    Exit,
    Experiment,
    Fault,
    Fix,
    Fold,
    Frame,
    LockWait,
    Message,
    PythonPlace,
    Report,
    Stack,
    Thread,
    Wait,
)
from necropsy.reports import html

HOSTILE = "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;`<b>`{{ 7*7 }}"


def hostile() -> Report:
    thread = Thread(
        tid=1,
        name=HOSTILE,
        crashed=True,
        frames=(native(0, HOSTILE, HOSTILE, source=HOSTILE, stack_bytes=5000), native(1, "b", stack_bytes=300)),
        python=(
            Frame(
                index=0,
                kind="python",
                function=HOSTILE,
                source=HOSTILE,
                line=2,
                code=HOSTILE,
                excerpt=(HOSTILE, HOSTILE, HOSTILE),
                owner="script",
            ),
        ),
        folds=(Fold(period=1, times=9, functions=(HOSTILE,), bytes_per_period=100.0, start=2),),
        stack=Stack(size=1 << 20, used=6200, low=Address(4096)),
    )
    waits = Wait(call=HOSTILE, on=HOSTILE, owner=2)
    place = Culprit(function=HOSTILE, module=HOSTILE, python=PythonPlace(file=HOSTILE, line=1, function=HOSTILE))
    return Report(
        signature=HOSTILE,
        crash=Crash(
            at=HOSTILE,
            exit=Exit(kind="signaled", signal=HOSTILE),
            fault=Fault(signal=HOSTILE),
            environment=Environment(python=HOSTILE, platform=HOSTILE, working_directory=HOSTILE),
            threads=(thread, msgspec.structs.replace(thread, tid=2, crashed=False, waits=waits)),
            log_tail=HOSTILE + "\n\x1b[31m\u202e\x00",
            messages=(Message(kind="x", text=HOSTILE, where="log"),),
            libraries={HOSTILE: HOSTILE},
        ),
        verdict=Diagnosis(
            rule="x",
            title="t",
            summary=HOSTILE,
            severity="error",
            confidence="likely",
            evidence=(Evidence(claim=HOSTILE, seen=HOSTILE, where="frame 0"),),
            culprit=place,
            deadlock=(LockWait(thread=1, name=HOSTILE, lock=HOSTILE, holder=1, where=place),),
            fixes=(Fix(text=HOSTILE, command=HOSTILE), Fix(text=HOSTILE, command=HOSTILE)),
        ),
    )


@pytest.mark.parametrize("name", CASES)
def test_pages_are_whole_and_load_nothing(name: str) -> None:
    rendered = html.render(CASES[name])
    page = Page(rendered)
    assert not re.search(r"(?:src|srcset|data|action|poster)\s*=", rendered)
    assert not re.search(r"@import|url\((?!#)", rendered)
    script = resources.files("necropsy.reports").joinpath("page.js").read_text()
    assert page.scripts == [script], "only our own"
    assert elements(page, "script") == [{}]
    for tag in ("link", "img", "iframe", "object", "embed", "form", "base"):
        assert elements(page, tag) == []
    assert all((one["href"] or "").startswith("#") for one in elements(page, "a"))
    assert not re.findall(r"https?://", rendered)


def test_every_link_leads_somewhere() -> None:
    page = Page(html.render(document(RECURSION, UNKNOWN)))
    targets = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(targets) == len(set(targets)), "no id comes twice"
    links = {(one["href"] or "").removeprefix("#") for one in elements(page, "a")}
    assert links
    assert links <= set(targets)


def test_the_page_says_what_the_report_says() -> None:
    text = Page(html.render(CASES["recursion"])).text
    for words in (
        "called itself 104,652 times until the 8 MiB stack of the main thread was used up",
        "Do now: Turn the recursion in",
        "0.63 s from death to report",
        "the same calls repeat",
        "\N{MULTIPLICATION SIGN} 104,652, 80 B each",
        "full: nothing below this line may be used",
        "/home/u/train.py:41 in step",
        "(Tried: it still crashes.)",
        "stack-overflow-small-stack",
        "stderr is a socket",
        "Signature",
    ):
        assert words in text


def test_evidence_leads_to_its_frame() -> None:
    rendered = html.render(RECURSION)
    repeats = rendered[rendered.index("Walk repeats 104,652 times") :]
    link = re.search(r'href="#([^"]+)"', repeats)
    assert link is not None
    line = rendered[rendered.index(f'id="{link[1]}"') :].split("</li>")[0]
    assert "Walk(Node const*, int)" in line


@pytest.mark.parametrize(
    ("evidence", "anchor"),
    [
        (Evidence(claim="c", seen="s", where="frame 104653"), "d0-f104653"),
        (Evidence(claim="c", seen="s", where="frame 104656"), "d0-f104655"),  # counted with the one before it
        (Evidence(claim="the line of Python", seen="/home/u/train.py:60 in <module>"), "d0-p1"),
        (Evidence(claim="how large the stack is", seen="8 MiB"), "d0-stack"),
        (Evidence(claim="the process died", seen="SIGSEGV", where="signal information"), None),
        (Evidence(claim="no such place", seen="s", where="frame 99999999999999999"), None),
    ],
)
def test_where_evidence_leads(evidence: Evidence, anchor: str | None) -> None:
    verdict = RECURSION.verdict
    assert verdict is not None
    report = msgspec.structs.replace(RECURSION, verdict=msgspec.structs.replace(verdict, evidence=(evidence,)))
    proof = Page(html.render(report))
    links = [one["href"] for one in elements(proof, "a") if one["href"] and proof.elements]
    found = html._death("d0-", [report], None).evidence[0].anchor
    assert found == anchor
    assert anchor is None or f"#{anchor}" in links


@pytest.mark.parametrize("name", CASES)
def test_headings_are_in_order_and_tables_have_headers(name: str) -> None:
    page = Page(html.render(CASES[name]))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(one.get("scope") in {"col", "row"} for one in elements(page, "th"))
    assert elements(page, "html")[0]["lang"] == "en"
    assert not re.search(r"<dt></dt>|<(h[1-3])[^>]*></\1>", html.render(CASES[name]))


def test_several_deaths_are_parts_of_one_page() -> None:
    page = Page(html.render(document(RECURSION, UNKNOWN)))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert levels.count(2) == 3, "one each, and what their rules say"
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = {one["id"] for _, one in page.elements if "id" in one}
    assert {one["aria-labelledby"] for one in elements(page, "article")} <= ids
    assert "2 processes died in this run." in page.text


def test_what_matters_comes_first() -> None:
    text = Page(html.render(document(RECURSION))).text.partition("python train.py")[2]
    places = [
        text.index(words)
        for words in (
            "stack-overflow-recursion",
            "called itself",
            "Do now:",
            "SIGSEGV (",
            "What the verdict rests on",
            "What else to do",
            "What else it could be",
            "to scale",
            "The call that repeats: 104,652 times , 80 B of stack each time",
            "Its calls, newest first",
            "What was not observed",
            "Words used here",
        )
    ]
    assert places == sorted(places)


def test_the_drawing_is_a_detail_where_the_stack_has_nothing_to_do_with_it() -> None:
    little = thread_of(1000, 3000, used=4000)
    assert "<details><summary>The stack to scale: 3.91 KiB of 1 MiB in use</summary>" in html.render(
        with_thread(little)
    )
    much = thread_of(1000, 700_000, used=701_000)
    assert ", to scale</h2>" in html.render(with_thread(much))
    full = thread_of(1000, 3000, used=4000, guard=True)
    assert ", to scale</h2>" in html.render(with_thread(full))


def test_threads_at_the_same_place_are_told_once_and_the_odd_one_first() -> None:
    frames = (native(0, "futex_wait", "/lib/libc.so.6"),)
    pool = [Thread(tid=tid, name="pool", frames=frames) for tid in range(100, 120)]
    odd = Thread(tid=99, name="odd", frames=(native(0, "poll", "/lib/libc.so.6"),))
    main = Thread(tid=1, frames=frames)
    crash = Crash(pid=1, exit=Exit(kind="timeout"), threads=(main, *pool, odd))
    rendered = html.render(Report(pid=1, crash=crash))
    page = Page(rendered)
    assert [name for name in re.findall(r"<summary>(.*?) <span", rendered) if "thread" in name] == [
        "thread odd (99)",
        "20 threads at the same place",
    ]
    assert {f"d0-t{tid}" for tid in range(99, 120)} <= {one["id"] for _, one in page.elements if "id" in one}
    stacks = rendered[rendered.index("</table>") : rendered.index("<textarea")]
    assert stacks.count("futex_wait") == 3, "of the main thread, of the pool, and in the pool's line"
    rows = re.findall(r"<tr.*?</tr>", rendered)
    assert len(rows) == 4, "the head, the main thread, the odd one, and the pool"
    assert "20 threads: pool (100), pool (101), pool (102) and 17 more" in rows[3]


def test_experiments_are_drawn_and_told() -> None:
    tried = (
        Experiment(name="unchanged", change="nothing", predicts="-", runs=3, crashed=3, outcome="dies"),
        Experiment(name="a", change="a stack of 16 MiB", predicts="it lives", runs=3, crashed=1, outcome="it survives"),
        Experiment(name="b", change="many", predicts="it lives", runs=500, crashed=1, outcome="it survives"),
    )
    assert RECURSION.verdict is not None
    verdict = msgspec.structs.replace(RECURSION.verdict, experiments=tried, status="confirmed")
    rendered = html.render(msgspec.structs.replace(RECURSION, verdict=verdict))
    table = rendered[rendered.index('<table class="trials">') : rendered.index("</table>")]
    rows = table.split("<tr>")[2:]
    assert [row.count('class="dot died"') for row in rows] == [3, 1, 0]
    assert [row.count('class="dot"') for row in rows] == [0, 2, 0]
    assert "1 of 500" in rows[2]
    assert '<th scope="row">a stack of 16 MiB</th>' in rows[1]
    assert '<span class="pill confirmed">' in rendered


def test_the_page_says_what_was_run_and_when() -> None:
    crash = msgspec.structs.replace(
        RECURSION.crash, at="2026-11-21T22:20:08.123456Z", environment=Environment(python="3.11.7")
    )
    rendered = html.render(document(msgspec.structs.replace(RECURSION, crash=crash)))
    byline = re.search(r'<p class="byline">.*?</p>', rendered)
    assert byline is not None
    assert Page(byline[0]).text.split(" \N{MIDDLE DOT} ") == [
        "python train.py",
        "21 November 2026, 22:20:08 UTC",
        "Python 3.11.7",
    ]
    assert '<time datetime="2026-11-21T22:20:08.123456Z">' in byline[0]


def test_the_colours_can_be_read() -> None:
    """WCAG 2.2, 1.4.3 (text: 4.5 to 1) and 1.4.11 (drawings: 3 to 1), in both schemes."""
    css = resources.files("necropsy.reports").joinpath("report.css").read_text()
    schemes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#\w+)", scheme))
        for ground in ("paper", "card", "code", "mark"):
            for ink in ("ink", "soft", "blue"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for name in ("red", "amber", "green"):
            assert contrast(colours[name], colours[f"{name}-soft"]) >= 4.5
        for name in ("fold", "frame", "red", "green"):
            assert contrast(colours[name], colours["card"]) >= 3


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, its definition of relative luminance."""
    lights = sorted(_luminance(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_hostile_text_stays_text() -> None:
    rendered = html.render(document(hostile(), hostile(), UNKNOWN))
    page = Page(rendered)
    assert len(page.scripts) == 1
    assert "alert" not in page.scripts[0]
    assert "<script>alert(1)</script>" not in rendered
    assert elements(page, "img") == []
    assert len(elements(page, "style")) == 1
    assert len(elements(page, "title")) >= 1
    assert not [attributes for _, attributes in page.elements if any(name.startswith("on") for name in attributes)]
    assert "<script>alert(1)</script>" in page.text, "it is shown, as text"
    assert "{{ 7*7 }}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", rendered)


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_any_text_leaves_the_page_whole(text: str) -> None:
    report = hostile()
    verdict = report.verdict
    assert verdict is not None
    verdict = msgspec.structs.replace(verdict, summary=text, evidence=(Evidence(claim=text, seen=text, where=text),))
    expected = [tag for tag, _ in Page(html.render(msgspec.structs.replace(report, verdict=verdict))).elements]
    assert expected.count("script") == 1
    assert "img" not in expected
