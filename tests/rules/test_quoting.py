"""A command that is offered for copying runs nothing that a log or a dead program put into it: a shell itself says so.

Every case of every rule is judged with hostile names in it. Each command is then given to bash, which finds no program
at all and therefore tells the words of every command that it would have run.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis, Exit, Message, Report
from necropsy.rules import crash_rules, quoting
from sketch import crash, parse

RULES = crash_rules()
CASES = sorted((Path(__file__).parent.parent / "cases").glob("*/*.txt"))
MARK = "qqmarkqq"
PARTS = ("modules", "threads", "libraries", "environment")
BASH = which("bash") or ""
TOUCHED = "TOUCHED"
PAYLOADS = (
    f"; echo >{TOUCHED}",
    f"$(echo >{TOUCHED})",
    f"`echo >{TOUCHED}`",
    f"' ; echo >{TOUCHED} ; '",
    f'" ; echo >{TOUCHED} ; "',
    f"\necho >{TOUCHED}\n",
    f"&& echo >{TOUCHED} &",
    f"| echo >{TOUCHED}",
    f">{TOUCHED}",
    "; rm -rf ~",
    " -rf / ",
    "${IFS}x*?[a]~!{a,b}",
    "\\' \\",
    "\x1b]0;x\x07",
    "\u202e\u0085\u2028",
)
# Told of every command: the words of it, each between marks, and the command's end.
_SCRIPT = r"""
command_not_found_handle() { printf '<%s>' "$@"; printf '\n'; }
for one in "$@"; do (eval "$one") 2>/dev/null; printf '\0'; done
"""


LOST = Crash(
    exit=Exit(kind="lost", text="worker 'gw0' crashed while running 'tests/test_a.py::test_b'"),
    messages=(
        Message(
            kind="process-lost",
            text="worker 'gw0' crashed while running 'tests/test_a.py::test_b'",
            where="text",
            fields={"by": "pytest-xdist", "test": "tests/test_a.py::test_b"},
        ),
    ),
)


def subjects() -> Iterator[Crash]:
    yield LOST
    for rule in RULES:
        yield crash(rule.hit)
    for path in CASES:
        yield parse(path.read_text(encoding="utf-8")).crash


def hostile(one: Crash, part: str, payload: str) -> Crash:
    """The crash with ``payload`` behind every name of one of its ``parts``."""

    def names(value: Any) -> Any:
        if isinstance(value, Message):
            fields = {name: said + payload if name == field else said for name, said in value.fields.items()}
            return msgspec.structs.replace(value, fields=fields)
        if isinstance(value, dict):
            return {name: f"{said}{payload}" if isinstance(said, str) else said for name, said in value.items()}
        if isinstance(value, tuple):
            return tuple(map(names, value))
        if isinstance(value, msgspec.Struct):
            wanted = ("path", "module", "source", "function", "python", "frames", "executable", "variables")
            changed = {
                name: (was + payload if isinstance(was, str) else names(was))
                for name in value.__struct_fields__
                if name in wanted and (was := getattr(value, name)) is not None and type(was) is not int
            }
            return msgspec.structs.replace(value, **changed)
        return value

    of, _, field = part.partition(".")
    before = getattr(one, of)
    return msgspec.structs.replace(one, **{of: names(before)}) if before is not None else one


def parts(one: Crash) -> set[str]:
    """What of a crash has names: ``messages.symbol`` is a field of its messages."""
    return {*PARTS, *(f"messages.{name}" for message in one.messages or () for name in message.fields)}


def commands(report: Report) -> Iterator[str]:
    diagnoses: Sequence[Diagnosis] = (*((report.verdict,) if report.verdict else ()), *report.alternatives)
    for one in diagnoses:
        yield from (fix.command for fix in one.fixes if fix.command)
        yield from (cause.command for cause in one.possible if cause.command)


@cache
def fed() -> tuple[tuple[Crash, str], ...]:
    """The cases whose commands hold a name of theirs, and the part of the crash that it comes from."""
    found = [
        (one, part)
        for one in subjects()
        for part in sorted(parts(one))
        if any(MARK in command for command in commands(diagnose(hostile(one, part, MARK), RULES)))
    ]
    return tuple(found)


def run_by_bash(lines: Sequence[str], folder: Path) -> list[list[str]]:
    """The words of what each line would run, by bash in a folder of its own, where no program is to be found."""
    done = subprocess.run(
        [BASH, "--norc", "-c", _SCRIPT, "bash", *lines],
        cwd=folder,
        env={"PATH": "/nonexistent", "HOME": str(folder), "LC_ALL": os.environ.get("LC_ALL", "C.UTF-8")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.decode("utf-8", "replace").split("\0")
    assert len(told) == len(lines) + 1, "a command ended the shell"
    return [one.splitlines() for one in told[:-1]]


def offered(payload: str) -> list[str]:
    lines = {command for one, part in fed() for command in commands(diagnose(hostile(one, part, payload), RULES))}
    return sorted(line for line in lines if "\0" not in line)


@cache
def harmless() -> frozenset[tuple[tuple[str, int], ...]]:
    """What bash would run with a harmless name, and with none: a placeholder, which is one word just as well."""
    with tempfile.TemporaryDirectory() as folder:
        told = [words for payload in (MARK, "") for words in run_by_bash(offered(payload), Path(folder))]
    return frozenset(tuple(_shape(words)) for words in told)


def test_names_from_outside_do_reach_commands() -> None:
    """Otherwise the tests below could not fail."""
    rules = {
        one.rule
        for subject, part in fed()
        if (one := diagnose(hostile(subject, part, MARK), RULES).verdict) is not None
    }
    assert {"undefined-symbol", "op-abi-mismatch", "static-tls-exhausted", "exit-status-only"} <= rules


@pytest.mark.skipif(not BASH, reason="there is no bash here")
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_word_of_a_name_is_run(payload: str, tmp_path: Path) -> None:
    check(payload, tmp_path)


@pytest.mark.skipif(not BASH, reason="there is no bash here")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(PAYLOADS) | st.text(max_size=8), min_size=1, max_size=4))
def test_no_word_of_any_name_is_run(pieces: list[str], tmp_path: Path) -> None:
    check("".join(pieces).replace("\0", ""), tmp_path)


def check(payload: str, folder: Path) -> None:
    """What bash would run is what it would run with a harmless name, which keeps the number of the words."""
    lines = offered(payload)
    for line, words in zip(lines, run_by_bash(lines, folder), strict=True):
        assert "\x1b" not in line, line
        assert line.isprintable(), line
        assert tuple(_shape(words)) in harmless(), (line, words)
    assert not (folder / TOUCHED).exists()


def _shape(told: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Of each command its name and how many words it has."""
    for line in told:
        words = line.removeprefix("<").removesuffix(">").split("><")
        yield words[0], len(words)


# ---------------------------------------------------------------- Windows, Python, pip


def powershell(word: str) -> str | None:
    """What PowerShell makes of one word by its rules of quoting; None: not one word, or not only a word."""
    if word[:1] != "'":
        return word if all(char.isalnum() or char in "._:\\/+=~-*" for char in word) else None
    inner = word[1:-1]
    if word[-1:] != "'" or len(word) < 2 or inner.replace("''", "").count("'"):
        return None
    return inner.replace("''", "'")


@given(
    st.text()
    | st.lists(st.sampled_from(["a", ".dll", " ", "'", "$(x)", "`", ";", "&", "%PATH%", '"', "\n"])).map("".join)
)
def test_a_word_for_windows_is_one_word_or_a_placeholder(text: str) -> None:
    word = quoting.windows(text, "DLL")
    if word == "DLL":
        return
    assert not set('&|<>^%!"\n') & set(word), "cmd.exe would see it"
    typographic = str.maketrans(dict.fromkeys("‘’‚‛", "'"))
    assert powershell(word.translate(typographic)) == text.translate(typographic)


@given(st.text())
def test_a_string_of_python_is_that_string(text: str) -> None:
    spelled = quoting.python(text)
    assert spelled.isprintable()
    assert eval(spelled, {}) == text


@given(
    st.text() | st.sampled_from(["--index-url=http://x", "a b", "a;b", "-e.", "a$(b)", "numpy", "scikit-learn", "a-"])
)
def test_a_package_is_a_name_or_a_placeholder(text: str) -> None:
    named = quoting.package(text)
    assert named in {text, "PACKAGE"}
    assert named[0].isalnum()
    assert not set(" ;$`|&<>()'\"\n") & set(named)


def test_names_that_look_like_options_are_not_offered() -> None:
    assert quoting.posix("-rf", "FILE") == "FILE"
    assert quoting.posix("", "FILE") == "FILE"
    assert quoting.posix("a b", "FILE") == "'a b'"
    assert quoting.posix("_ZN3fooEv", "SYMBOL") == "_ZN3fooEv"
    assert quoting.windows(r"C:\a b\x.dll", "DLL") == r"'C:\a b\x.dll'"
    assert quoting.windows("x.dll&calc", "DLL") == "DLL"
    assert quoting.python(r"C:\x") == r'r"C:\x"'
