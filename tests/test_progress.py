"""How far a long input is read, shown in one line of the terminal."""

from __future__ import annotations

import io

import pytest

from necropsy import console


def told(monkeypatch: pytest.MonkeyPatch, name: str, size: int | None, width: int | None) -> list[str]:
    """What is shown while 30 MB of a text are read."""
    monkeypatch.setattr(console, "SLOW_S", 0.0)
    monkeypatch.setattr(console, "whole_width", lambda _: width)
    shown: list[str] = []
    stream = console.Watched(io.BytesIO(bytes(30_000_000)), name, size, shown.append)
    assert len(stream.read(30_000_000)) == 30_000_000
    return shown


def test_it_says_how_much_of_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "train.log", 60_000_000, 80) == ["\r\x1b[Ktrain.log: 30 MB of 60 MB"]
    assert told(monkeypatch, "standard input", None, None) == ["\r\x1b[Kstandard input: 30 MB read"]


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_name_does_not_fill_a_second_line(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    (shown,) = told(monkeypatch, "/a" * 200 + "/train.log", 50_000_000_000, width)
    line = shown.removeprefix("\r\x1b[K")
    assert len(line) < width
    assert line.startswith(".../")
    assert line.endswith("/train.log: 30 MB of 50,000 MB"[-(width - 4) :])


def test_a_name_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = told(monkeypatch, "a\x1b[31m\n.log", None, 80)
    assert shown == "\r\x1b[Ka?[31m?.log: 30 MB read"
