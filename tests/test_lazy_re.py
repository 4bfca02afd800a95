from __future__ import annotations

import copy
import gc
import importlib
import pkgutil
import re

from hypothesis import given
from hypothesis import strategies as st

import necropsy
from necropsy import lazy_re
from necropsy.formats.exit_phrases import forms
from necropsy.formats.readers import readers
from necropsy.lazy_re import regex


def test_every_pattern_that_the_readers_and_the_rules_define_is_a_regular_expression() -> None:
    for package in ("formats", "rules", "secrets"):
        folders = [f"{folder}/{package}" for folder in necropsy.__path__]
        for module in pkgutil.walk_packages(folders, f"necropsy.{package}."):
            importlib.import_module(module.name)
    assert readers()
    assert forms()
    found = [each for each in gc.get_objects() if type(each) is lazy_re._LazyPattern]
    assert len(found) > 700
    for each in found:
        re.compile(each._spelled, each._flags)


@given(st.text("ab\n"))
def test_it_does_what_the_pattern_does(text: str) -> None:
    lazy, real = regex(r"(?P<first>a)b+", re.IGNORECASE), re.compile(r"(?P<first>a)b+", re.IGNORECASE)
    assert lazy.findall(text) == real.findall(text)
    assert lazy.sub("x", text) == real.sub("x", text)
    assert lazy.split(text) == real.split(text)
    for one, other in ((lazy.search, real.search), (lazy.match, real.match), (lazy.fullmatch, real.fullmatch)):
        assert (found := one(text)) is None or found.groupdict() == {"first": "a"}
        assert str(found) == str(other(text))
    assert (lazy.pattern, lazy.flags, lazy.groupindex) == (real.pattern, real.flags, real.groupindex)


def test_bytes() -> None:
    assert regex(rb"\d+").findall(b"a1b22") == [b"1", b"22"]


def test_a_copy_is_a_pattern_too() -> None:
    made = regex("a")
    assert copy.copy(made).search("ba") is not None
    assert made.search("ba") is not None
    assert copy.deepcopy(made).search("ba") is not None
    assert repr(made) == "regex('a', 0)"
