"""What can be pasted into a package's issue tracker: of a real death inside NumPy, and nothing where no package is to blame."""

from __future__ import annotations

import re

import msgspec
import pytest
from report_examples import CASES, native

from necropsy.model import (
    Address,
    Crash,
    Culprit,
    Diagnosis,
    Environment,
    Evidence,
    Exit,
    Fault,
    Frame,
    Instruction,
    Module,
    PythonPlace,
    Report,
    Thread,
)
from necropsy.reports import markdown, tracker
from necropsy.rules import crash_rules

UMATH = "_multiarray_umath.cpython-312-x86_64-linux-gnu.so"
SITE = "/home/u/secret-project/.venv/lib/python3.12/site-packages/"
IN_NUMPY = Report(
    pid=4711,
    verdict=Diagnosis(
        rule="null-dereference",
        title="",
        summary="`array_scalar` read through a null pointer.",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="the process died by SIGSEGV", seen="SIGSEGV"),),
        culprit=Culprit(function="array_scalar", module=UMATH, python=PythonPlace(file="train.py", line=3)),
    ),
    crash=Crash(
        pid=4711,
        exit=Exit(kind="signaled", signal="SIGSEGV"),
        fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0x8), access="read"),
        instruction=Instruction(address=Address(0x7F0000001000), text="mov rax, qword ptr [rdi + 8]"),
        threads=(
            Thread(
                tid=4711,
                crashed=True,
                frames=(native(0, "array_scalar", UMATH), native(1, "cfunction_call", "/usr/lib/libpython3.12.so.1.0")),
                python=(
                    Frame(index=0, kind="python", function="load", source=SITE + "numpy/lib/_npyio_impl.py", line=7),
                    Frame(
                        index=1, kind="python", function="<module>", source="/home/u/secret-project/train.py", line=3
                    ),
                ),
            ),
        ),
        modules=(
            Module(path=SITE + "numpy/_core/" + UMATH, low=Address(0x1000), high=Address(0x2000), version="2.2.6"),
            Module(path="/usr/lib/libpython3.12.so.1.0", low=Address(0x3000), high=Address(0x4000)),
        ),
        libraries={"numpy": "2.2.6", "libstdc++": "6.0.30"},
        environment=Environment(python="3.12.1", platform="Linux x86_64", libc="glibc 2.36"),
    ),
)


def part_of(report: Report) -> str:
    match = re.search(r"<details><summary>For the issue tracker of .*?</details>", markdown.render(report), re.DOTALL)
    return match[0] if match else ""


def test_what_a_maintainer_needs() -> None:
    part = part_of(IN_NUMPY)
    assert part.startswith("<details><summary>For the issue tracker of numpy</summary>")
    assert "Title: `SIGSEGV in array_scalar (numpy 2.2.6)`" in part
    for line in (
        "- numpy: 2.2.6",
        "- Python: 3.12.1",
        "- C library: glibc 2.36",
        "numpy/lib/_npyio_impl.py:7 in load",
        "train.py:3 in <module>",
        f"#0 array_scalar  {UMATH}",
        "SIGSEGV (SEGV_MAPERR), read at 0x8",
    ):
        assert line in part, line
    assert "secret-project" not in part  # of the user's folders nothing


def test_a_known_fix_is_tried_first() -> None:
    assert IN_NUMPY.verdict is not None
    seen = "this fits #28332, fixed in NumPy 2.3.0; installed: 2.2.6"
    known = Evidence(claim="reported and fixed elsewhere", seen=seen)
    verdict = msgspec.structs.replace(IN_NUMPY.verdict, evidence=(*IN_NUMPY.verdict.evidence, known))
    assert "**Try the newer version first:** this fits" in part_of(msgspec.structs.replace(IN_NUMPY, verdict=verdict))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "out-of-memory-killed"},  # not what the package's code did
        {"culprit": Culprit(function="f", module="mine.so")},
        {"culprit": None},
    ],
)
def test_nothing_where_no_package_is_to_blame(change: dict[str, object]) -> None:
    assert IN_NUMPY.verdict is not None
    verdict = msgspec.structs.replace(IN_NUMPY.verdict, **change)
    assert part_of(msgspec.structs.replace(IN_NUMPY, verdict=verdict)) == ""


def test_an_unknown_version_is_not_reported() -> None:
    modules = tuple(msgspec.structs.replace(one, version=None) for one in IN_NUMPY.crash.modules or ())
    crash = msgspec.structs.replace(IN_NUMPY.crash, modules=modules)
    assert part_of(msgspec.structs.replace(IN_NUMPY, crash=crash)) == ""


def test_hostile_words_stay_in_their_block() -> None:
    assert IN_NUMPY.verdict is not None
    evil = Culprit(function="f```\n# heading", module=UMATH)
    verdict = msgspec.structs.replace(IN_NUMPY.verdict, culprit=evil, summary="```\n</details>")
    part = part_of(msgspec.structs.replace(IN_NUMPY, verdict=verdict))
    assert "````markdown" in part
    assert "\n# heading" not in part


@pytest.mark.parametrize("name", CASES)
def test_other_reports_have_no_such_part(name: str) -> None:
    assert "For the issue tracker" not in markdown.render(CASES[name])


def test_the_rules_exist() -> None:
    assert {rule.name for rule in crash_rules()} >= tracker._ON_CODE
