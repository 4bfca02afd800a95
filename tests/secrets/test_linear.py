"""Masking takes one pass: four times the text takes four times the steps, however hostile it is. Times are not looked at."""

from __future__ import annotations

import importlib

import pytest

import counted
from necropsy import redact

UNITS = (
    *(
        "token",
        "token=",
        "password: ",
        "a:b@",
        "eyJ",
        "eyJ-",
        "eyJ.",
        "://",
        "x://a:b/",
        "x://a:b@",
        "_-",
        "sk-",
        "bearer ",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\nMIIE\n"),
    *("key=x)", "token=a(", "pwd=/", "key='", 'key=\\"', "${password=", "Cookie: a", "password=${", "'key':["),
    *(
        "name=a value=",
        "==",
        " --token ",
        "<token>",
        "token: str =",
        "\x1b[1m",
        "%3Dsk-",
        "key=a,",
        "&sig=",
        "M-M",
        "s.u+",
    ),
    *(
        "A" * 22 + "%",
        "hooks.slack.com/services/",
        "curl -u a:",
        "-us1",
        "a" * 32 + "-",
        "password=a,",
        "secret: word ",
    ),
)
_SMALL, _EACH = 1_500, 400
"""Characters, and the most steps for one of them."""


def steps(text: str, most: int) -> int:
    with counted._copied():
        masked = importlib.import_module("necropsy.secrets.commands").masked
        masked("loads the table: ghp_" + "a1" * 20)
        return counted.counted(lambda: masked(counted.Text(text)), most)


@pytest.mark.parametrize("unit", UNITS)
def test_steps_grow_with_the_text(unit: str) -> None:
    small, large = unit * (_SMALL // len(unit)), unit * (4 * _SMALL // len(unit))
    before = steps(small, _EACH * len(small))
    behind = steps(large, _EACH * len(large))
    assert behind <= 6 * before + 20_000, (before, behind)


def test_the_count_can_tell_a_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that begins anew at each place of a run takes more than that."""
    spelled = r"a[a-z]*="

    def search(size: int) -> int:
        with counted._copied():
            pattern = counted._pattern(spelled, 0)
            return counted.counted(lambda: pattern.search("a" * size), 0)

    monkeypatch.undo()
    assert search(4 * 300) > 10 * search(300)


def test_most_texts_do_not_load_the_table() -> None:
    """A run that ends well must not pay for it: what is looked at first are a few words and the length of runs."""
    for text in ("python", "train.py", "--epochs", "3", "/usr/bin/python3", "loss: 0.25", "Segmentation fault", "-O2"):
        assert not redact._is_suspicious(text), text
