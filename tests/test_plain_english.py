"""Texts that users see are plain technical English: turns that must not come back, and the length of sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import shown_texts

TURNS = (
    # Left: what was once written. Right: what to write.
    (r"\bfor want of\b", "because ... is missing; killed by the OOM killer"),
    (r"\bat the most\b", "at most"),
    (r"\b(?:is|are) told\b", "is reported, is shown"),
    (r"\btells no\b", "does not report"),
    (r"\bof necropsy's\b", "of necropsy, a necropsy report"),
    (r"\b(?:inside|outside) of\b", "inside, outside"),
    (r"\bnobody\b", "no process; passive voice"),
    (r"\bsomebody\b", "a user, another process; passive voice"),
    (r"\bwhoever\b", "the process that, its launcher"),
    (r"\b(?:lies|lain)\b", "is"),
    (r"\b(?:stands|stood) (?:in|at|on|there|above|below|earlier|beside|before|behind)\b", "is"),
    (r"\bWhat it can (?:be|have)\b", "Possible causes"),
    (r"\bTo decide\b", "How to check"),
    (r"\bthe (?:address|thread) sanitizer\b", "AddressSanitizer, ThreadSanitizer"),
    (r"\b(?:lack|want) of memory\b", "out of memory, the OOM killer"),
    (r"\bno rival rule\b", "proved by what was observed"),
    (r"\b(?:it|that|this|which|what) (?:is|was) no (?!longer\b|more than\b|larger\b|newer\b|older\b)\w", "is not a"),
    (r"\bso many (?:runs|times|at)\b", "the maximum number of"),
    (r"\ball the same\b", "still, even then"),
    (r"\bto be had\b", "available"),
    (r"\bmend(?:s|ed)?\b", "fix"),
    (r"\bin vain\b", "without success; timed out"),
    (r"\b(?:has|have) not (?:the|a)\b", "lacks"),
    (r"\bgives? (?:itself )?up on itself\b|\bgave up\b", "called abort(), stopped with an error"),
    (r"\band (?:the like|its like|their like)\b", "such as"),
    (r"\bFor the moment\b", "As a workaround"),
    (r"\b(?:was|were) asked for\b", "requested"),
    (r"\bone look does not\b|\blooked at while\b", "a snapshot; observed"),
    (r"\bfrom which on\b", "the smallest value that"),
    (r"\blog_tail\b|\bmemory_events\b", "the name that a reader knows"),
    (r"\bPython's (?:that|of)\b|\bof (?:Python|NumPy|CPython|malloc|NVIDIA|AMD)'s\b(?! [a-z])", "of Python; a Python ..."),
)  # fmt: skip
LONGEST = 55
"""Words of a sentence. A list of messages or of commands in one sentence is what comes near it."""


def test_no_turn_comes_back() -> None:
    """One test for all, so that one process reads the texts, and not each worker of pytest."""
    found = [
        f"{place}: {text[:160]}: instead of {turn} write: {better}"
        for turn, better in TURNS
        for place, text in _with(re.compile(turn, re.IGNORECASE))
    ]
    assert found == []


def _with(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    return ((place, text) for place, text in shown_texts.all_texts() if pattern.search(text))


def test_the_turns_are_found_where_they_are_written() -> None:
    said = "The kernel killed it for want of memory; it stands in the log, and it is no crash."
    assert sum(bool(re.search(turn, said, re.IGNORECASE)) for turn, _ in TURNS) == 4


@pytest.mark.parametrize(
    ("texts", "mean", "longest"),
    [
        pytest.param(shown_texts.pages_of_examinations, 16, 50, id="pages of env, op and data rules"),
        pytest.param(shown_texts.guidance, 17, 50, id="guides"),
    ],
)
def test_the_manual_is_written_in_short_sentences(
    texts: Callable[[], Iterator[tuple[str, str]]], mean: int, longest: int
) -> None:
    found = [(len(one.split()), place, one) for place, text in texts() for one in shown_texts.sentences(text)]
    assert sum(words for words, _, _ in found) / len(found) <= mean
    assert [one for one in found if one[0] > longest] == []


def test_sentences_are_short() -> None:
    """Rule pages: 16 words on average. Everywhere: no sentence that has to be read twice."""
    lengths = [len(one.split()) for _, text in shown_texts.pages() for one in shown_texts.sentences(text)]
    assert sum(lengths) / len(lengths) <= 16
    long = [
        f"{place}: {len(one.split())} words: {' '.join(one.split())[:120]}"
        for place, text in shown_texts.all_texts()
        for one in shown_texts.sentences(text)
        if len(one.split()) > LONGEST and not place.startswith(("docs/", "necropsy "))
    ]
    assert long == []
