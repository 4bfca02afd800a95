"""Rules of other packages, from their entry points; one that is broken is a gap and a warning, never an exception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOOD = """
from necropsy.model import Crash, Evidence
from necropsy.rule import Finding, Rule


def _match(crash):
    if "flux capacitor" not in (crash.log_tail or ""):
        return None
    seen = Evidence(claim="the log names it", seen="flux capacitor", where="log")
    return Finding(evidence=(seen,), summary="The flux capacitor overheated.", confidence="certain")


def _raise(crash):
    raise ValueError("a defect of the other package")


def _leave(crash):
    raise SystemExit(3)


def _no_finding(crash):
    return "flux"


def _no_text(crash):
    return Finding(evidence=(Evidence(claim="c", seen="s"),), summary=3, confidence="certain")


def rule(name, match=_match, **more):
    return Rule(match, **{"name": name, "title": "The flux capacitor",
                          "page": "A flux capacitor.\\n\\nSources\\n-------\\n- the manual", **more})


GOOD = rule("flux-capacitor", beats=("exit-status-only",))
RAISES = rule("flux-raises", _raise)
LEAVES = rule("flux-leaves", _leave)
NO_FINDING = rule("flux-no-finding", _no_finding)
NO_TEXT = rule("flux-no-text", _no_text)
OTHER_NAME = rule("another-name")
OURS = rule("stack-smash")
NEEDS = rule("flux-needs", needs=("plutonium",))
SUBJECT = rule("flux-subject", subject=str)
NO_RULE = "flux"
"""

ENTRY_POINTS = """
[console_scripts]
flux = flux:main

[necropsy.rules]
# a comment
flux-capacitor = flux:GOOD
flux-raises = flux:RAISES
flux-leaves = flux:LEAVES
flux-no-finding=flux:NO_FINDING
flux-no-text = flux:NO_TEXT
flux-other = flux:OTHER_NAME
stack-smash = flux:OURS
flux-needs = flux:NEEDS
flux-subject = flux:SUBJECT
flux-no-rule = flux:NO_RULE
flux-nothing = flux:NOTHING_HERE
flux-no-module = no_such_module_here:RULE
flux-exits = flux_exits:RULE
flux-nonsense = :::

[another.group]
flux-elsewhere = flux:GOOD
"""

ASK = """
import json, warnings
import necropsy
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    names = [rule.name for rule in necropsy.rules()]
document = necropsy.diagnose("the flux capacitor said: Killed\\n", 137)
report = document.reports[0]
page = necropsy.render(document, "html")
print(json.dumps({
    "names": names,
    "warnings": [str(one.message) for one in warned],
    "verdict": [report.verdict.rule, report.verdict.summary],
    "gaps": {gap.part: gap.why for gap in report.gaps},
    "same": necropsy.loads(necropsy.dumps(document)) == document,
    "page": "flux-capacitor" in page,
}))
"""

BROKEN = {
    "flux-other": "is called 'another-name'",
    "stack-smash": "another rule of this name",
    "flux-needs": "needs plutonium",
    "flux-subject": "only rules on necropsy.model.Crash",
    "flux-no-rule": "it is a str",
    "flux-nothing": "NOTHING_HERE",
    "flux-no-module": "no_such_module_here",
    "flux-exits": "SystemExit: 5",
    "flux-nonsense": "ValueError",
}
FAILING = {
    "flux-raises": "ValueError: a defect of the other package",
    "flux-leaves": "SystemExit: 3",
    "flux-no-finding": "it found a str",
    "flux-no-text": "Expected `str`",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python in which the package ``flux`` is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "flux.py").write_text(GOOD)
    (folder / "flux_exits.py").write_text("raise SystemExit(5)\n")
    metadata = folder / "flux-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: flux\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "broken-1.0.dist-info").mkdir()
    (folder / "broken-1.0.dist-info" / "entry_points.txt").write_bytes(b"[necropsy.rules]\n\xff\n")
    (folder / "empty-1.0.dist-info").mkdir()
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def asked(installed: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", ASK], env=installed, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_added_rule_gives_the_verdict(asked: dict[str, Any]) -> None:
    assert asked["verdict"] == ["flux-capacitor", "The flux capacitor overheated."]
    assert asked["names"].count("flux-capacitor") == 1
    assert "flux-elsewhere" not in asked["names"]
    assert asked["same"]
    assert asked["page"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_gap_and_a_warning(name: str, asked: dict[str, Any]) -> None:
    assert BROKEN[name] in asked["gaps"][f"rule {name}"]
    assert [one for one in asked["warnings"] if name in one and BROKEN[name] in one]
    assert name == "stack-smash" or name not in asked["names"]


@pytest.mark.parametrize("name", FAILING)
def test_a_rule_that_fails_is_a_gap(name: str, asked: dict[str, Any]) -> None:
    assert FAILING[name] in asked["gaps"][f"rule {name}"]
    assert name in asked["names"]


def test_the_command_line_has_them_too(installed: dict[str, str], tmp_path: Path) -> None:
    def necropsy(*words: str) -> str:
        command = [sys.executable, "-m", "necropsy", *words]
        return subprocess.run(
            command, env=installed, capture_output=True, text=True, check=True, cwd=tmp_path
        ).stdout.replace("\n", " ")

    assert "A flux capacitor." in necropsy("explain", "flux-capacitor")
    assert "A flux capacitor." in necropsy("rules", "flux-capacitor")
    assert "The flux capacitor overheated." in necropsy("explain", "the flux capacitor said: Killed", "137")
