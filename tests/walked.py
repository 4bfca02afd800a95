"""Datasets written as the body of a generator: what the data rules' ``hit`` and ``miss`` are made of.

Besides its elements, a body may set ``ranges``, ``memory`` (bytes that the process may use) and ``length`` (the number
of elements that the dataset declares) before the first ``yield``; ``np``, ``os`` and ``signal`` are at hand.
"""

from __future__ import annotations

import os
import re
import signal
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from necropsy.dataset.answering import walked
from necropsy.dataset.journal import NoJournal
from necropsy.model import Dataset, Diagnosis
from necropsy.validation.judging import examine

_SETTINGS = re.compile(r"^(ranges|memory|length) = .*\n", re.MULTILINE)


class Sized:
    """An iterable that says how long it is."""

    def __init__(self, elements: Iterator[Any], length: int) -> None:
        self._elements, self._length = elements, length

    def __iter__(self) -> Iterator[Any]:
        return self._elements

    def __len__(self) -> int:
        return self._length


def source_of(body: str) -> str:
    """The module of a body, with a function ``elements``."""
    return f"import os, signal\nimport numpy as np\ndef elements():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"


def seen(made: Any, **request: Any) -> Dataset:
    """What a walk over a live dataset sees."""
    answer = walked(made, request, NoJournal())
    assert "dataset" in answer, answer
    return msgspec.convert(answer["dataset"], Dataset)


def findings(made: Any, **request: Any) -> tuple[Diagnosis, ...]:
    """What is found in a live dataset."""
    found, failed = examine(seen(made, **request))
    assert not failed
    return found


def of_body(body: str) -> tuple[Diagnosis, ...]:
    """What is found in the dataset that this body yields."""
    text = textwrap.dedent(body).strip("\n") + "\n"
    settings: dict[str, Any] = {}
    exec("".join(match.group() for match in _SETTINGS.finditer(text)), settings)
    space: dict[str, Any] = {"np": np, "os": os, "signal": signal}
    exec(source_of(_SETTINGS.sub("", text)), space)
    made: Any = space["elements"]()
    if "length" in settings:
        made = Sized(made, settings["length"])
    return findings(made, ranges=settings.get("ranges"), memory=settings.get("memory"))
