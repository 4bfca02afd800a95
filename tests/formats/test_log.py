"""Known phrases: every one is matched by its example and only by it, and no text whatsoever breaks the scan."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats.log import scan, split_check
from necropsy.formats.phrases import Phrase, parse, phrases

if sys.version_info >= (3, 11):
    from re import _constants as constants  # type: ignore[attr-defined]  # private, but only in a test
    from re import _parser as parser  # type: ignore[attr-defined]  # the same
else:
    import sre_constants as constants
    import sre_parse as parser

PHRASES = phrases()
each_phrase = pytest.mark.parametrize("phrase", PHRASES, ids=[f"{i}-{one.id}" for i, one in enumerate(PHRASES)])
HEADS = [one.example for one in PHRASES] + [one.must for one in PHRASES]


@each_phrase
def test_example_is_matched_by_it_and_only_by_it(phrase: Phrase) -> None:
    assert [message.kind for message in scan(phrase.example)] == [phrase.id]
    forms = [one for one in PHRASES if one.match(phrase.example) or one.match(phrase.example.split("] ")[-1])]
    assert phrase in forms
    assert {one.id for one in forms} == {phrase.id}


ROW = """[[phrase]]
id = "my-message"
must = "it {0}"
pattern = "it {0}"
example = "it {0}"
source = "measured"
{1}
"""


def test_a_form_of_a_message_has_the_verdicts_of_its_first_form() -> None:
    found = parse(ROW.format("broke", 'verdicts = ["abort"]') + ROW.format("fell", ""))
    assert [phrase.verdicts for phrase in found] == [("abort",), ("abort",)]


def test_a_second_message_of_the_same_id_is_refused() -> None:
    twice = ROW.format("broke", 'verdicts = ["abort"]') + ROW.format("fell", 'remark = "harmless"')
    with pytest.raises(ValueError, match=r"my-message is defined twice.*'it broke' and 'it fell'.*id of its own"):
        parse(twice)
    with pytest.raises(ValueError, match="my-message: its first form needs `verdicts`"):
        parse(ROW.format("broke", ""))


@each_phrase
def test_no_quantifier_inside_a_quantifier(phrase: Phrase) -> None:
    def widest(node: object, inside: bool) -> None:
        if isinstance(node, parser.SubPattern):
            for step in node:
                widest(step, inside)
            return
        if not isinstance(node, tuple):
            return
        kind, argument = node
        if kind in {constants.MAX_REPEAT, constants.MIN_REPEAT}:
            _, most, body = argument
            many = most > 1
            assert not (inside and many), f"nested quantifier in {phrase.pattern.pattern}"
            widest(body, inside or many)
        elif isinstance(argument, (tuple, list)):
            for part in argument:
                if isinstance(part, (parser.SubPattern, tuple)):
                    widest(part, inside)
                elif isinstance(part, list):
                    for one in part:
                        widest(one, inside)

    # `libc++`: names that are separated by :: repeat, and each is bounded by its separator.
    if phrase.id != "cpp-terminate":
        widest(parser.parse(phrase.pattern.pattern), inside=False)


@each_phrase
def test_pathological_lines_come_to_an_end(phrase: Phrase) -> None:
    # No clock: a pattern that needs more than linear time would hang here.
    for line in (
        phrase.must * 10_000,
        phrase.example * 1_000,
        phrase.must + "a" * 100_000,
        " " * 100_000 + phrase.must,
    ):
        scan(line)


def test_what_bash_does_without_is_no_missing_library() -> None:
    """A pyenv shim writes this with every command if its helper was not built, and continues."""
    missing = "cannot open shared object file: No such file or directory"
    line = "/home/user/.pyenv/libexec/pyenv: line 23: enable: cannot open shared object /home/user/.pyenv/libexec/pyenv-realpath.dylib"
    assert scan(f"{line}: {missing}") == ()
    assert [one.kind for one in scan(f"ImportError: pyenv-realpath.dylib: {missing}")] == ["missing-library"]


@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    scan(text)


@given(
    st.lists(st.one_of(st.sampled_from(HEADS), st.text(max_size=60)), max_size=30),
    st.sampled_from(["\n", "\r\n", "\r", " ", ""]),
)
def test_any_mixture_of_phrases(parts: list[str], glue: str) -> None:
    for message in scan(glue.join(parts)):
        assert message.line is not None
        assert message.where == f"log line {message.line}"


@given(st.text(max_size=200))
def test_any_check(text: str) -> None:
    expression, _, _ = split_check(text)
    assert isinstance(expression, str)


def test_envelopes_of_all_ages() -> None:
    for head in (
        "F tensorflow/core/framework/tensor_shape.cc:201] ",
        "2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:201] ",
        "F0000 00:00:1795208908.409686    9695 tensor_shape.cc:201] ",
        "F20261120 21:17:51.617250  9695 tensor_shape.cc:201] ",
        "\x1b[31m2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:201] ",
        " 12%|#2   | 12/100\r2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:201] ",
        "1/1 [=====] - 0s2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:201] ",
    ):
        (message,) = scan(head + "Check failed: d < dims() (3 vs. 2)")
        assert message.fields["level"] == "F", head
        assert message.fields["file"].endswith("tensor_shape.cc")
        assert message.fields["source_line"] == "201"
        assert message.fields["expression"] == "d < dims()"
        assert message.fields["operands"] == "3 vs. 2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a == b (1 vs. 2)", ("a == b", "1 vs. 2", None)),
        ("a == b ((1,2) vs. (3)) shapes differ", ("a == b", "(1,2) vs. (3)", "shapes differ")),
        ("x.ok() (no idea) ", ("x.ok() (no idea)", None, None)),
        ("(Init(d)) is OK (INVALID: f(x))", ("(Init(d)) is OK", "INVALID: f(x)", None)),
        ("a == b (1 vs. 2", ("a == b", "1 vs. 2", None)),
    ],
)
def test_parts_of_a_check(text: str, expected: tuple[str, str | None, str | None]) -> None:
    assert split_check(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "F a.cc:1] Non-OK-status: Init(d)\nStatus: INVALID_ARGUMENT: no",
        "F a.cc:1] Non-OK-status: Init(d) status: INVALID_ARGUMENT: no",
        "F a.cc:1] Non-OK-status: Init(d)\nanother thread speaks\nStatus: INVALID_ARGUMENT: no",
    ],
)
def test_status_of_all_ages(text: str) -> None:
    message = scan(text)[0]
    assert (message.kind, message.fields["expression"]) == ("non-ok-status", "Init(d)")
    assert message.fields["status"] == "INVALID_ARGUMENT: no"


def test_cpp_exception_of_two_lines() -> None:
    (message,) = scan(
        "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check"
    )
    assert message.fields == {"type": "std::out_of_range", "what": "vector::_M_range_check"}


TRACEBACK = """\
epoch 1
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in load
    return json.loads(text)
           ^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/train.py", line 14, in <module>
    main()
  File "/usr/lib/python3/dist-packages/thing/core.py", line 3, in main
    raise RuntimeError("no data") from error
RuntimeError: no data
"""


def test_chained_traceback_is_one_message() -> None:
    (message,) = scan(TRACEBACK)
    fields = message.fields
    assert (fields["exception"], fields["text"]) == ("RuntimeError", "no data")
    assert fields["first_exception"] == "json.decoder.JSONDecodeError"
    assert fields["chained"] == "cause"
    assert (fields["user_file"], fields["user_line"], fields["user_function"]) == ("/home/u/train.py", "14", "<module>")
    assert fields["file"].endswith("core.py")


def test_two_tracebacks_that_are_not_chained() -> None:
    one = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\n'
    assert [message.fields["exception"] for message in scan(one + "and then\n" + one)] == ["ValueError", "ValueError"]


def test_faulthandler_dump() -> None:
    (message,) = scan(
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 5 in call\n'
        '  File "/home/u/train.py", line 3 in main\n\n'
        "Extension modules: numpy (total: 1)\n"
    )
    assert message.kind == "faulthandler"
    assert message.fields["what"] == "Segmentation fault"
    assert message.fields["thread"] == "0x00007f02"
    assert message.fields["function"] == "call"
    assert message.fields["user_line"] == "3"


def test_where_is_kept_for_other_places() -> None:
    assert scan("free(): invalid pointer", "__abort_msg")[0].where == "__abort_msg"


def test_ids_are_names() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", phrase.id) for phrase in PHRASES)
    assert all(phrase.source in {"measured", "binary", "source", "issue"} for phrase in PHRASES)
