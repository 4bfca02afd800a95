"""The page: what it says, that it loads nothing, that hostile text stays text, and that the drawing is to scale."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import CASES, RECURSION, UNKNOWN, document, native

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
    Message,
    Report,
    Stack,
    Thread,
)
from necropsy.reports import html, scale

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;`<b>`{{ 7*7 }}"


class Page(HTMLParser):
    """The elements of a page; fails where they are not properly nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def hostile() -> Report:
    thread = Thread(
        tid=1,
        name=HOSTILE,
        crashed=True,
        frames=(native(0, HOSTILE, HOSTILE, source=HOSTILE, stack_bytes=5000), native(1, "b", stack_bytes=300)),
        python=(msgspec.structs.replace(native(0, HOSTILE, None, source=HOSTILE, line=1), kind="python"),),
        folds=(Fold(period=1, times=9, functions=(HOSTILE,), bytes_per_period=100.0, start=2),),
        stack=Stack(size=1 << 20, used=6200, low=Address(4096)),
    )
    return Report(
        signature=HOSTILE,
        crash=Crash(
            fault=Fault(signal=HOSTILE),
            threads=(thread, msgspec.structs.replace(thread, tid=2, crashed=False)),
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
            culprit=Culprit(function=HOSTILE, module=HOSTILE),
            fixes=(Fix(text=HOSTILE, command=HOSTILE), Fix(text=HOSTILE, command=HOSTILE)),
        ),
    )


def elements(page: Page, tag: str) -> list[dict[str, str | None]]:
    return [attributes for name, attributes in page.elements if name == tag]


@pytest.mark.parametrize("name", CASES)
def test_pages_are_whole_and_load_nothing(name: str) -> None:
    rendered = html.render(CASES[name])
    page = Page(rendered)
    assert not re.search(r"(?:src|srcset|data|action|poster)\s*=", rendered)
    assert not re.search(r"@import|url\((?!#)", rendered)
    for tag in ("script", "link", "img", "iframe", "object", "embed", "form", "base"):
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
    found = html._death("d0-", report, None).evidence[0].anchor
    assert found == anchor
    assert anchor is None or f"#{anchor}" in links


def with_thread(thread: Thread, **more: Any) -> Report:
    crash = Crash(pid=1, fault=Fault(signal="SIGSEGV"), threads=(thread,), **more)
    return Report(pid=1, crash=crash)


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
    assert levels.count(2) == 2
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
    assert page.text.count("futex_wait") == 3, "of the main thread, of the pool, and in the pool's line"


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
    byline = re.search(r'<p class="byline">(.*?)</p>', rendered)
    assert byline is not None
    assert byline[1] == "python train.py \N{MIDDLE DOT} 2026-11-21 22:20:08 UTC \N{MIDDLE DOT} Python 3.11.7"


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
    rendered = html.render(document(hostile()))
    page = Page(rendered)
    assert elements(page, "script") == []
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
    assert "script" not in expected
    assert "img" not in expected


# ---------------------------------------------------------------- the drawing


def thread_of(*octets: int, used: int, folds: tuple[Fold, ...] = (), guard: bool = False) -> Thread:
    return Thread(
        tid=1,
        crashed=True,
        complete=True,
        frames=tuple(native(index, f"f{index}", stack_bytes=size) for index, size in enumerate(octets)),
        folds=folds,
        stack=Stack(size=1 << 20, used=used, guard_hit=guard),
    )


def test_heights_are_to_scale_and_the_newest_call_is_at_the_bottom() -> None:
    drawing = scale.draw(thread_of(1000, 3000, 6000, used=10_000))
    assert drawing is not None
    assert [block.name for block in drawing.blocks] == ["f2", "f1", "f0"]
    assert [round(block.height / drawing.height, 3) for block in drawing.blocks] == [0.6, 0.3, 0.1]
    assert [round(block.y / drawing.height, 3) for block in drawing.blocks] == [0, 0.6, 0.9]
    assert drawing.used_height == pytest.approx(drawing.height * 10_000 / (1 << 20), abs=1)
    assert drawing.magnified == pytest.approx((1 << 20) / 10_000)


def test_a_recursion_is_one_block() -> None:
    fold = Fold(period=2, times=1000, functions=("a", "b"), bytes_per_period=80.0, start=1)
    drawing = scale.draw(thread_of(20_000, used=100_000, folds=(fold,), guard=True))
    assert drawing is not None
    block = drawing.blocks[0]
    assert (block.kind, block.name, block.octets, block.count) == ("fold", "a > b", 80_000, 2000)
    assert block.detail == "\N{MULTIPLICATION SIGN} 1,000, 80 B each"
    assert drawing.full
    assert drawing.used_height == drawing.height


def test_many_small_calls_are_one_block() -> None:
    drawing = scale.draw(thread_of(*[100] * 200, 50_000, used=70_000))
    assert drawing is not None
    assert [(block.kind, block.count, block.octets) for block in drawing.blocks] == [
        ("frame", 1, 50_000),
        ("group", 200, 20_000),
    ]


def test_what_is_not_known_is_said() -> None:
    drawing = scale.draw(thread_of(1000, used=10_000))
    assert drawing is not None
    assert [(block.kind, block.octets) for block in drawing.blocks] == [("unknown", 9000), ("frame", 1000)]
    assert scale.draw(Thread(tid=1)) is None
    assert scale.draw(Thread(tid=1, stack=Stack(size=1 << 20))) is None


def test_a_stack_that_was_not_read_to_its_end_says_about_how_many_frames_it_has() -> None:
    """In the drawing, below its calls, and where it is one of the other threads."""
    estimate = "about 12,000,000 frames (estimated)"
    thread = msgspec.structs.replace(
        thread_of(1000, 700_000, used=900_000), complete=False, frames_total=1_500_000, frames_estimate=12_000_000
    )
    page = Page(html.render(with_thread(thread))).text
    assert page.count(estimate) == 3, "in the drawing, in its words for narrow screens, and below the calls"
    assert "frames that could not be read" in page
    assert f"the stack has {estimate}; 1,500,000 of them were read" in page
    other = msgspec.structs.replace(thread, tid=2, crashed=False, stack=None)
    crash = Crash(pid=1, threads=(Thread(tid=1, crashed=True, frames=thread.frames), other))
    assert f"in f0, {estimate}" in Page(html.render(Report(pid=1, crash=crash))).text
    unknown = msgspec.structs.replace(thread, frames_estimate=None)
    assert "the rest of the stack could not be read" in html.render(with_thread(unknown))
    assert "(estimated)" not in html.render(with_thread(unknown))


@given(
    st.lists(st.integers(0, 1 << 20), max_size=60),
    st.integers(2000, 1 << 24),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 4), st.integers(1, 1000), st.floats(0, 1e6)), max_size=3),
)
@settings(max_examples=200)
def test_blocks_fill_the_bar_and_labels_keep_clear(
    octets: list[int], used: int, folds: list[tuple[int, int, int, float]]
) -> None:
    made = tuple(
        Fold(period=period, times=times, functions=("x",) * period, bytes_per_period=each, start=start)
        for start, period, times, each in folds
    )
    drawing = scale.draw(thread_of(*octets, used=used, folds=made))
    assert drawing is not None
    total = sum(block.height for block in drawing.blocks)
    assert total <= drawing.height * 1.0001
    assert total >= drawing.height * 0.98
    labels = [block.label_y for block in drawing.blocks]
    assert all(b - a >= 37.9 for a, b in itertools.pairwise(labels))
    assert all(0 <= y <= drawing.labels_height for y in labels)
