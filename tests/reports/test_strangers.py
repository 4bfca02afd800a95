"""Documents that somebody else sent: any numbers and missing parts in them, and every format renders all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import CASES

from necropsy import serialize
from necropsy.errors import UnreadableReportError
from necropsy.reports import html, markdown, text

NUMBERS: list[Any] = [None, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1e308, -1.5, 1e-9]
TEXTS: list[Any] = [None, "", "x" * 300, "\x00\x1b[2J", "0x0", "0xffffffffffffffff", "-0x8"]
FORMATS: list[Callable[[Any], str]] = [html.render, markdown.render, text.render]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in list(pairs):
        yield value, key
        yield from places(one)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_documents_of_strangers(name: str, data: st.DataObject) -> None:
    raw = json.loads(serialize.dumps(CASES[name]))
    for _ in range(data.draw(st.integers(1, 5))):
        container, key = data.draw(st.sampled_from(list(places(raw))))
        now = container[key]
        if isinstance(now, str):
            container[key] = data.draw(st.sampled_from(TEXTS))
        elif isinstance(now, list):
            container[key] = data.draw(st.sampled_from([None, [], now[:1], now[::-1], now * 3]))
        elif isinstance(now, dict):
            container[key] = None
        else:
            container[key] = data.draw(st.sampled_from([*NUMBERS, True, False]))
    try:
        document = serialize.loads(json.dumps(raw).encode())
    except UnreadableReportError:
        return
    for render in FORMATS:
        assert isinstance(render(document), str)
