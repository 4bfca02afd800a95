"""What is read of a log: the first cause and the last words, whatever lies between, and in bounded work.

Work is counted (bytes that were searched, lines that were made, messages and bytes that were kept), never timed.
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_logs import HOSTILE, NOISE, WORDS, Source, words
from necropsy.formats import lines, literal_search, log, log_excerpts, log_sampler, piece_search
from necropsy.formats.decoding import BLOCK
from necropsy.formats.first_last import FirstLast
from necropsy.formats.lines import Line
from necropsy.formats.literal_search import Hit, by_search, finder, passing_finder
from necropsy.formats.log import digest
from necropsy.formats.log_prefixes import Unwrap
from necropsy.formats.phrases import phrases
from necropsy.formats.piece_search import PieceSearch
from necropsy.formats.readers import readers
from necropsy.formats.text_reports import TextReader
from necropsy.model import Message

LONG = NOISE * (2 * log_sampler.WHOLE_BYTES // len(NOISE))
"""More than is kept whole."""
EXAMPLES = [phrase.example for phrase in phrases()]


def read(*parts: bytes) -> log.Digest:
    return digest(io.BytesIO(b"".join(parts)))


def said(found: log.Digest) -> list[tuple[int | None, str]]:
    return [(message.line, message.text) for message in found.messages]


# ---------------------------------------------------------------- literals


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=4)), max_size=30))
def test_all_finders_find_the_same(parts: list[bytes]) -> None:
    text = b"".join(parts)
    expected = sorted(
        (index, start, start + len(word))
        for index, word in enumerate(WORDS)
        for start in range(len(text))
        if text.startswith(word, start)
    )
    for find in (finder(WORDS), passing_finder(WORDS), by_search(WORDS)):
        hits = find(text)
        assert sorted(hits) == expected
        assert [hit[2] for hit in hits] == sorted(hit[2] for hit in hits)


def test_a_log_is_read_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log, log_sampler):
        monkeypatch.setattr(module, "passing_finder", by_search)
        monkeypatch.setattr(module, "finder", by_search)
    assert said(read(LONG[: 2 * log_sampler.WHOLE_BYTES], b"free(): invalid pointer\n"))


def test_nothing_to_look_for() -> None:
    assert finder(())(b"text") == []
    assert not log_sampler.sift([LONG], ()).whole


# ---------------------------------------------------------------- what survives


def test_a_small_text_is_kept_whole() -> None:
    found = log_sampler.sift([NOISE * 10], [b"x"])
    assert found.whole
    assert found.lines == 10
    assert found.runs[0].data == NOISE * 10
    assert (read().lines, read(b"\n").lines, read(b"a").lines, read(b"a\nb").lines) == (0, 1, 1, 2)


def test_of_a_long_text_the_ends_and_what_is_around_literals() -> None:
    found = log_sampler.sift([LONG, b"Check failed: a\n", LONG], [b"Check failed: "])
    rows = LONG.count(b"\n")
    assert not found.whole
    assert found.lines == 2 * rows + 1
    assert found.runs[0].number == 1
    head, middle, tail = found.runs
    assert head.data.count(b"\n") >= log_sampler.HEAD[0]
    assert middle.number <= rows + 1 - 100
    assert b"\n".join([NOISE[:-1]] * 100 + [b"Check failed: a"]) in middle.data
    assert tail.data.count(b"\n") >= log_sampler.TAIL[0]
    assert sum(len(run.data) for run in found.runs) < len(LONG) / 4


def test_line_numbers_are_those_of_the_input() -> None:
    rows = LONG.count(b"\n")
    found = read(LONG, b"Check failed: a\r\n", LONG, b"\n\nfree(): invalid pointer\n", LONG)
    assert said(found) == [(rows + 1, "Check failed: a"), (2 * rows + 4, "free(): invalid pointer")]
    assert found.lines == 3 * rows + 4
    assert found.messages[0].where == f"log line {rows + 1}"
    assert digest(io.BytesIO(b"Check failed: a"), "train.log").messages[0].where == "train.log line 1"


@pytest.mark.parametrize("before", range(BLOCK - 40, BLOCK + 5, 3))
@pytest.mark.parametrize("row", [b"x", b"x\r"])
def test_a_literal_that_two_blocks_share(before: int, row: bytes) -> None:
    text = (row * before)[:before] + b"\rCheck failed: a (1 vs. 2)\r"
    found = read(text, row * (2 * log_sampler.WHOLE_BYTES))
    assert said(found)[0] == (1, "Check failed: a (1 vs. 2)")


@pytest.mark.parametrize("before", range(BLOCK - 40, BLOCK + 5, 3))
def test_a_colour_that_two_blocks_share(before: int) -> None:
    text = b"x" * before + b" \x1b[31mCheck \x1b[1;31mfail\x1b[0med: a"
    found = read(text, b"x" * (2 * log_sampler.WHOLE_BYTES))
    assert "Check failed: a" in said(found)[0][1]


def test_a_message_in_the_middle_of_a_bar() -> None:
    bar = b"".join(b"\r %3d%%|####   | 12/100 [00:01<00:10, 9.9it/s]" % (number % 100) for number in range(50_000))
    found = read(bar, b"\rfree(): invalid pointer\r", bar, b"\nAborted (core dumped)\n")
    assert said(found)[0] == (1, "free(): invalid pointer")
    assert found.lines == 2
    assert found.tail.splitlines() == [bar.split(b"\r")[-1].decode(), "Aborted (core dumped)"]


def test_a_redrawn_line_counts_once_and_its_last_state_counts() -> None:
    found = read(b"1%\r50%\rdone\r\nnext\n")
    assert (found.lines, found.tail) == (2, "done\nnext")


@pytest.mark.parametrize(
    "text",
    [
        b"free(): invalid pointer\r\n",
        b"free(): \x1b[1minvalid\x1b[0m pointer\n",
        b"\x00f\x00r\x00ee(): invalid pointer\x00\n",
        b"\xff\xfe\xfd\nfree(): invalid pointer\n"[3:],
        b"50%|###  |\rfree(): invalid pointer\n",
    ],
)
def test_forms_of_a_line(text: bytes) -> None:
    for around in (b"", LONG):
        assert [kind for _, kind in said(read(around, text, around))] == ["free(): invalid pointer"]


def test_a_line_without_end() -> None:
    found = read(b"x" * 3_000_000, b" Check failed: a (1 vs. 2)", b"y" * 3_000_000)
    ((line, text),) = said(found)
    assert line == 1
    assert text.startswith("\u2026 ")
    assert "Check failed: a (1 vs. 2)" in text
    assert len(text) < 4 * log_excerpts.LONGEST


def test_nothing_begins_in_the_middle_of_a_line() -> None:
    # `corrupted ...` must stand at the start of a line, not at the start of a piece of one.
    assert not read(b"x" * 3_000_000, b"double free or corruption (!prev)", b"y" * 3_000_000).messages


def test_the_first_cause_and_the_last_words_survive_a_flood() -> None:
    flood = b"".join(b"line %d Check failed: n == %d\n" % (number, number) for number in range(100_000))
    found = read(b"free(): invalid pointer\n", flood, b"munmap_chunk(): invalid pointer\n", LONG)
    texts = [text for _, text in said(found)]
    assert texts[0] == "free(): invalid pointer"
    assert texts[1:51] == [f"line {number} Check failed: n == {number}" for number in range(50)]
    assert texts[-2] == "line 99999 Check failed: n == 99999"
    assert texts[-1] == "munmap_chunk(): invalid pointer"
    assert "occurs 100000 times" in " ".join(gap.why for gap in found.gaps)


def test_a_rare_literal_in_a_flood_of_others() -> None:
    flood = b"Check failed: n\n" * 100_000
    found = read(flood, b"free(): invalid pointer\n", flood)
    assert (100_001, "free(): invalid pointer") in said(found)


def test_a_literal_that_fills_the_text_for_a_while_is_found_again() -> None:
    flood = b"Check failed: n\n" * 50_000
    found = read(flood, LONG, b"Check failed: alone\n", LONG, flood, LONG, b"Check failed: late\n", LONG)
    texts = [text for _, text in said(found)]
    assert texts[-1] == "Check failed: late"
    assert texts[0] == "Check failed: n"


def test_what_was_left_out_is_a_gap() -> None:
    assert read(NOISE).gaps == ()
    gap = read(LONG).gaps[0]
    assert (gap.part, f"of {LONG.count(10)} lines" in gap.why) == ("log", True)


def test_a_long_line_is_quoted_around_what_is_known() -> None:
    line = b"." * 2500 + b" Check failed: a (1 vs. 2) " + b"." * 1400
    (message,) = read(line + b"\n").messages
    assert "Check failed: a (1 vs. 2)" in message.text
    assert message.text.startswith(log_excerpts.CUT)
    assert len(message.text) < 1100
    assert max(map(len, message.fields.values())) <= 1000


def test_of_very_many_kinds_fewer_of_each() -> None:
    ends = FirstLast[Message](50)
    for number in range(20_000):
        kind = f"kind-{number % 40}"
        ends.add(kind, Message(kind=kind, text=str(number), where="log"))
    kept = ends.all()
    assert len(kept) <= 1000
    assert {one.kind for one in kept} == {f"kind-{number}" for number in range(40)}
    texts = [int(one.text) for one in kept if one.kind == "kind-7"]
    assert (texts[0], texts[-1]) == (7, 19_967)
    assert "kind-" in ends.left_out("messages")[0].why


def test_readers_that_are_asked_in_vain_give_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def in_vain(lines: Sequence[Line], index: int) -> None:
        asked.append(lines[index].number)

    search = PieceSearch([TextReader("vain", ("trigger",), in_vain)])
    monkeypatch.setattr(piece_search, "_TRIES", 50)
    rows = tuple(Line(number, "trigger", "trigger", {}) for number in range(1, 401))
    marks = tuple((index, frozenset({b"trigger"})) for index in range(400))
    assert not list(search.pieces(log_excerpts.Excerpt(rows, marks, final=True)))
    assert asked == [*range(1, 51), *range(371, 401)]
    assert search.left_out()


def test_long_lines_of_json_are_handed_whole() -> None:
    line = '{"bug_type":"309"}\n{\n  "threads" : [' + '{"frames":[]},' * 20_000 + '"end"]\n}\n'
    rows = next(
        iter(log_excerpts.excerpts(log_sampler.sift([line.encode()], [b"x"]).runs, [b"x"], finder((b"x",)), Unwrap()))
    ).lines
    assert rows[2].text.endswith('"end"]')
    assert len(rows[2].message) <= log_excerpts.LONGEST


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(EXAMPLES), max_size=12),
    st.lists(st.integers(0, 3_000), min_size=13, max_size=13),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_long_text_gives_what_a_short_one_does(chosen: list[str], between: list[int], end: str) -> None:
    rows = list(itertools.chain.from_iterable(["."] * gap + [text] for gap, text in zip(between, chosen, strict=False)))
    data = end.join([*rows, *["."] * 2000]).encode()
    whole = digest(io.BytesIO(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_sampler, "WHOLE_BYTES", 0)
        sifted = digest(io.BytesIO(data))
    assert sifted.messages == whole.messages
    assert (sifted.lines, sifted.tail) == (whole.lines, whole.tail)


# ---------------------------------------------------------------- work


@dataclass
class Work:
    """What was done."""

    searched: int = 0
    hits: int = 0
    lines: int = 0


def work_of(blocks: Iterator[bytes], size: int, monkeypatch: pytest.MonkeyPatch) -> tuple[log.Digest, Work]:
    work = Work()

    def counting(
        make: Callable[[tuple[bytes, ...]], literal_search.Finder],
    ) -> Callable[[tuple[bytes, ...]], literal_search.Finder]:
        def counted(chosen: tuple[bytes, ...]) -> literal_search.Finder:
            find = make(chosen)

            def search(block: bytes) -> list[Hit]:
                hits = find(block)
                work.searched += len(block)
                work.hits += len(hits)
                return hits

            return search

        return counted

    made = lines.line

    def line(*given: Any) -> object:
        work.lines += 1
        return made(*given)

    with monkeypatch.context() as patch:
        for module in (log, log_sampler):
            patch.setattr(module, "finder", counting(finder))
            patch.setattr(module, "passing_finder", counting(passing_finder))
        patch.setattr(log_excerpts, "line", line)
        return digest(Source(blocks, size)), work  # type: ignore[arg-type]  # it has what is asked of a stream


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_work_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 12 << 20
    found, work = work_of(HOSTILE[name](), size, monkeypatch)
    kept = (
        log_sampler._HARD[0] + (1 << 20) + log_sampler._LAST_CLIPS * (log_sampler._NARROW[1] + log_sampler._NARROW[3])
    )
    assert work.searched <= 2.2 * size + 3 * kept
    # Dense blocks are searched once before that is known: a block of them holds one hit in four bytes at most.
    assert work.hits <= size / 2
    assert work.lines <= 2 * log_sampler._HARD[1] + log_sampler._LAST_CLIPS * (
        log_sampler._NARROW[0] + log_sampler._NARROW[2]
    )
    kinds = {message.kind for message in found.messages}
    assert len(found.messages) <= 2 * log._MOST_MESSAGES * max(1, len(kinds))
    assert len(found.tail) <= log_sampler.TAIL[1]
    assert len(found.gaps) <= 10
    assert found.bytes == size


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["one line", "a trigger in every line", "tracebacks", "a bar", "fatal lines", "wrapped"]
)
def test_ten_times_the_text_is_no_more_to_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, small = work_of(HOSTILE[name](), 4 << 20, monkeypatch)
    _, large = work_of(HOSTILE[name](), 40 << 20, monkeypatch)
    assert large.lines <= small.lines * 1.1 + 100
    assert large.searched <= small.searched + 2.2 * (36 << 20)


@given(
    st.lists(st.one_of(st.binary(max_size=80), st.sampled_from(words()), st.sampled_from([b"\n", b"\r"])), max_size=60)
)
@settings(deadline=None)
def test_any_bytes(parts: list[bytes]) -> None:
    data = b"".join(parts)
    if data.startswith((b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        return
    found = digest(io.BytesIO(data))
    numbers = [message.line for message in found.messages]
    assert numbers == sorted(numbers, key=lambda number: number or 0)
    assert all(number is not None and 1 <= number <= max(1, found.lines) for number in numbers)
    by_kind: dict[str, Sequence[tuple[int, int]]] = {}
    for piece in found.pieces:
        assert 1 <= piece.first <= piece.last <= max(1, found.lines)
        by_kind[piece.kind] = [*by_kind.get(piece.kind, ()), (piece.first, piece.last)]
    readers_of = Counter(reader.kind for reader in readers())
    for kind, ranges in by_kind.items():
        assert readers_of[kind] > 1 or all(low[1] < high[0] for low, high in itertools.pairwise(sorted(ranges)))
