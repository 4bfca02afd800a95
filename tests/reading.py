"""Runs readers over a text as the scan of a log does, and asks the rules what it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from necropsy.capture.merge import told
from necropsy.diagnose import diagnose
from necropsy.formats.lines import Line
from necropsy.formats.log import Digest, scan
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Diagnosis
from necropsy.rules import crash_rules


def lines_of(text: str) -> list[Line]:
    return [Line(number, row, row.lstrip(), {}) for number, row in enumerate(text.split("\n"), 1)]


def pieces(text: str, *readers: TextReader) -> list[TextReport]:
    """Every stretch that a reader knows; it is asked at each trigger that no earlier stretch of its own holds."""
    lines = lines_of(text)
    return [piece for reader in readers for piece in asked(reader, lines)]


def asked(reader: TextReader, lines: Sequence[Line]) -> Iterator[TextReport]:
    """What the reader finds in these lines."""
    done = 0
    for index, line in enumerate(lines):
        text = str(line.text)
        if line.number <= done or not any(trigger in text for trigger in reader.triggers):
            continue
        low, high = max(0, index - reader.reach), index + reader.reach + 1
        piece = reader.read(lines[low:high], index - low)
        if piece is not None:
            assert piece.first <= line.number <= piece.last
            assert piece.kind == reader.kind
            yield piece
            done = piece.last


def only(text: str, *readers: TextReader) -> Crash:
    """The crash of the only stretch that there is."""
    found = pieces(text, *readers)
    assert len(found) == 1, found
    return found[0].crash


def death(text: str, *readers: TextReader) -> Crash:
    """All that the text says of one death, the known phrases included."""
    lines = text.count("\n") + 1
    digest = Digest(
        messages=scan(text), pieces=tuple(pieces(text, *readers)), tail=text[-4000:], lines=lines, bytes=len(text)
    )
    return told((), [digest]).crash


def verdict(text: str, *readers: TextReader) -> Diagnosis:
    """What the rules say of the text."""
    report = diagnose(death(text, *readers), crash_rules())
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")], report.gaps
    assert report.verdict is not None
    shown = " ".join([report.verdict.summary, *(one.seen for one in report.verdict.evidence)])
    assert "None" not in shown, shown
    return report.verdict


def survive(text: str, reader: TextReader) -> None:
    """The reader is asked at every line, with a trigger or not, and must not raise; what it gives lies in the text."""
    lines = lines_of(text)
    for index in range(len(lines)):
        piece = reader.read(lines, index)
        if piece is None:
            continue
        assert 1 <= piece.first <= piece.last <= len(lines)
        if any(trigger in lines[index].text for trigger in reader.triggers):
            assert piece.first <= index + 1 <= piece.last


def cut_and_mixed(samples: Sequence[str]) -> st.SearchStrategy[str]:
    """Real texts cut anywhere, with lines lost, doubled, glued together and mixed with rubbish; and rubbish alone."""
    rows = [row for sample in samples for row in sample.split("\n")]
    cut = st.sampled_from(list(samples)).flatmap(
        lambda sample: st.tuples(st.integers(0, len(sample)), st.integers(0, len(sample))).map(
            lambda ends: sample[min(ends) : max(ends)]
        )
    )
    row = st.one_of(
        st.sampled_from(rows), st.text(max_size=60), st.sampled_from(rows).map(lambda one: one[: len(one) // 2])
    )
    mixed = st.lists(row, max_size=30).flatmap(
        lambda many: st.sampled_from(["\n", ""]).map(lambda glue: glue.join(many))
    )
    return st.one_of(cut, mixed, st.text(max_size=400))
