"""No line that came from outside is a command to the CI service in whose log a report is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.model import Crash, Diagnosis, Document, Evidence, Fix, Message, Report, Subject, Tool
from necropsy.reports import html, markdown, text
from necropsy.reports.terminal import without_commands

HOSTILE = (
    "::error::x",
    " ::add-mask::x",
    "##[set-env name=x]y",
    "##vso[task.setvariable]x",
    "##teamcity[x]",
    "\n::stop::",
)
COMMAND = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*\s*::|##(?:\[|vso\[|teamcity\[)", re.MULTILINE)


def document(said: str) -> Document:
    verdict = Diagnosis(
        rule="abort",
        title=said,
        summary=said,
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim=said, seen=said, where=said),),
        fixes=(Fix(text=said, command="true"), Fix(text=said)),
    )
    crash = Crash(log_tail=said, messages=(Message(kind="x", text=said, where="log"),))
    return Document(
        kind="run",
        id="1",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process", command=("python", said)),
        reports=(Report(crash=crash, verdict=verdict),),
    )


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=30), min_size=1, max_size=12), st.integers(20, 100))
def test_no_line_is_a_command(pieces: list[str], width: int) -> None:
    for joined in (" ".join(pieces), "\n".join(pieces)):
        subject = document(joined)
        for rendered in (
            text.render(subject, width=width),
            text.render(subject, width=width, color=True),
            markdown.render(subject),
            html.render(subject).partition("</style>")[2],
        ):
            assert not COMMAND.search(rendered), COMMAND.search(rendered)


@pytest.mark.parametrize("said", HOSTILE)
def test_each_of_them_would_be_one(said: str) -> None:
    assert COMMAND.search(said)
    assert not COMMAND.search(without_commands(said))


def test_names_of_the_global_namespace_stay_readable() -> None:
    assert without_commands("  #3 ::operator new(unsigned long)\n") == "  #3 ::operator new(unsigned long)\n"
    assert without_commands("::operator new") == r"\x3a:operator new"
    assert without_commands("### abort\n## x [1]") == "### abort\n## x [1]"
