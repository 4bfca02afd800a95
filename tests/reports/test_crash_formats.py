"""SARIF, GitHub annotations and JUnit of crashes: valid by the official schemas, whatever names are in them."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import RECURSION, UNKNOWN
from report_examples import document as report

import triage_documents
from necropsy.model import BugGroup, Document, Subject
from necropsy.reports import rendered
from necropsy.rules import page

SCHEMAS = Path(__file__).parent / "schemas"
FORMS = ("sarif", "github", "junit")
COMMAND = re.compile(r"^\s*::|##(?:\[|vso\[|teamcity\[)", re.MULTILINE)
HOSTILE = (
    "::error::x",
    "##[group]",
    "##vso[x]",
    "\x1b[31m",
    "\x00",
    "\ud800",
    "]]>",
    "</failure>",
    "&x;",
    "%0A",
    ",",
    "\u202e",
    "\n",
)
NAMES = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), min_size=1, max_size=6).map("".join)


@functools.cache
def sarif_schema() -> Any:
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text()))


@functools.cache
def junit_schema() -> Any:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


def sarif(document: Document) -> dict[str, Any]:
    """The log's run, after its validation."""
    log = json.loads(rendered(document, "sarif", pages=page))
    errors = [
        f"{'/'.join(map(str, one.absolute_path))}: {one.message[:200]}" for one in sarif_schema().iter_errors(log)
    ]
    assert errors == []
    run: dict[str, Any] = log["runs"][0]
    return run


def junit(document: Document) -> ET.Element:
    text = rendered(document, "junit")
    junit_schema().validate(text)
    return ET.fromstring(text)


def renamed(document: Document, text: str) -> Document:
    """With ``text`` for what the crashed program named: functions, files, the command, the verdict's words."""
    named = {"Walk", "deep.so", "train.py"}

    def walked(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walked(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [walked(one) for one in value]
        return text if isinstance(value, str) and any(one in value for one in named) else value

    data = walked(msgspec.to_builtins(document, enc_hook=hex))
    made = msgspec.convert(data, Document, dec_hook=lambda wanted, value: wanted(value, 16))
    return msgspec.structs.replace(made, subject=Subject(kind="process", command=(text, text), path=text))


def test_the_schemas_refuse_something() -> None:
    log = json.loads(rendered(report(RECURSION), "sarif"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not sarif_schema().is_valid(log)
    assert not junit_schema().is_valid("<testsuites><testcase/></testsuites>")


def test_a_report_has_a_result_for_each_death() -> None:
    run = sarif(report(RECURSION, UNKNOWN))
    first, second = run["results"]
    assert (first["ruleId"], second["ruleId"]) == ("stack-overflow-recursion", "unrecognised-crash")
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["help"]["text"].startswith("Stack overflow by recursion")
    assert len(first["partialFingerprints"]["necropsySignature/v1"]) == 32
    assert first["stacks"][0]["frames"][0]["location"]["logicalLocations"][0]["fullyQualifiedName"]
    suite = junit(report(RECURSION, UNKNOWN))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert "native calls" in (suite.findtext("testcase/system-out") or "")
    assert rendered(report(RECURSION, UNKNOWN), "github").count("::error ") == 2


def test_a_triage_has_one_for_each_bug() -> None:
    document = triage_documents.document(60, 600)
    assert document.triage is not None
    groups = document.triage.groups
    results = sarif(document)["results"]
    assert [one["partialFingerprints"]["necropsyGroup/v1"] for one in results] == [one.id for one in groups]
    assert [one["occurrenceCount"] for one in results] == [one.count for one in groups]
    assert [bool(one.get("suppressions")) for one in results] == [one.status == "closed" for one in groups]
    suite = junit(document)[0]
    assert len(suite.findall("testcase")) == 60
    assert len(suite.findall("testcase/skipped")) == sum(one.status == "closed" for one in groups)


def test_code_scanning_follows_the_bug_and_not_its_line() -> None:
    triage = triage_documents.document().triage
    assert triage is not None
    group = triage.groups[0]
    assert group.culprit is not None
    assert group.culprit.python is not None
    line = msgspec.structs.replace(group.culprit.python, line=999)
    moved = msgspec.structs.replace(group, title="moved", culprit=msgspec.structs.replace(group.culprit, python=line))

    def fingerprints(one: BugGroup) -> dict[str, str]:
        found: dict[str, str] = sarif(triage_documents.of_groups([one]))["results"][0]["partialFingerprints"]
        return found

    assert fingerprints(group) == fingerprints(moved)
    assert fingerprints(group) != fingerprints(msgspec.structs.replace(group, id="g0"))


def test_annotations_are_at_lines_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/home/user/project")
    document = triage_documents.document()
    first = rendered(document, "github").splitlines()[0]
    assert first.startswith(
        "::error file=train.py,line=5,title=necropsy%3A 135x null-dereference (certain)::null pointer"
    )
    monkeypatch.setenv("GITHUB_WORKSPACE", "/elsewhere")
    first = rendered(document, "github").splitlines()[0]
    assert first.startswith("::error file=src/score_rows.cc,line=25,"), "the source of the native function is relative"


def test_github_shows_ten_of_a_step_so_a_notice_counts_the_others() -> None:
    lines = rendered(triage_documents.document(30, 300), "github").splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 10 + ["::notice"]
    assert "17 more bugs are not shown" in lines[-1], "three of the thirty are closed"
    assert len(rendered(triage_documents.document(5, 50), "github").splitlines()) == 5


def test_nothing_died() -> None:
    assert rendered(report(), "github") == ""
    assert sarif(report())["results"] == []
    suite = junit(report())[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert sarif(triage_documents.of_groups([]))["results"] == []


@settings(max_examples=12)
@given(NAMES)
def test_no_name_breaks_a_format(text: str) -> None:
    for document, errors in ((triage_documents.hostile(text), 2), (renamed(report(RECURSION), text), 1)):
        for form in FORMS:
            said = rendered(document, form)
            lines = [line for line in said.splitlines() if line.strip()]
            commands = [line for line in lines if COMMAND.search(line)]
            assert len(commands) == (errors if form == "github" else 0), form
            assert all(char.isprintable() or char == "\n" for char in said), form
        sarif(document)
        junit(document)
