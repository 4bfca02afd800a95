"""What necropsy reports on the example of each rule: the ``hit`` that its tests are made of, judged by all rules.

How examples are written is in ``tests/sketch.py``, ``tests/environment_sketch.py`` and ``tests/walked.py``.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from necropsy import reports
from necropsy.diagnose import diagnose
from necropsy.examine import examine
from necropsy.model import (
    CallComparison,
    Crash,
    Dataset,
    Diagnosis,
    Died,
    Document,
    Environment,
    Process,
    Report,
    Subject,
    Tool,
)
from necropsy.reports import text
from necropsy.rule import Rule, to_diagnosis
from necropsy.rules import audit_rules, call_rules, crash_rules, environment_rules, profile_rules
from necropsy.validation import judging

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from environment_sketch import environment
from sketch import crash
from walked import of_body

KILLS = "data-crash"
"""Its example kills the process that reads it: what is seen of that is written here."""


def of_rule(rule: Rule[Any]) -> str:
    """The text of the report, without gaps that only exist because an example is short."""
    if rule.subject is Crash:
        return _of_crash(diagnose(crash(rule.hit), crash_rules()))
    if rule.subject is Environment:
        found = examine(environment(rule.hit), (*environment_rules(), *audit_rules())).findings
        return _wrapped(_of_findings(found, "doctor", Subject(kind="environment")))
    if rule.subject is CallComparison:
        comparison = msgspec.json.decode(rule.hit, type=CallComparison)
        judged = tuple(to_diagnosis(one, found) for one in call_rules() if (found := one.match(comparison)) is not None)
        return _wrapped(_of_findings(judged, "doctor", Subject(kind="environment")))
    if rule.subject is Process:
        process = msgspec.json.decode(rule.hit, type=Process)
        judged = tuple(to_diagnosis(one, found) for one in profile_rules() if (found := one.match(process)) is not None)
        return _wrapped(_of_findings(judged, "doctor", Subject(kind="environment")))
    found = tuple(one for one in _of_dataset(rule) if one.rule == rule.name)
    return _of_findings(found, "dataset", Subject(kind="dataset", text="data.py:train")).partition("\n\n")[2]


def _wrapped(findings: str) -> str:
    lines = findings.splitlines()[1:]
    return "\n".join(textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False) for line in lines)


def _of_crash(report: Report) -> str:
    shown = text.render(report, width=80).strip()
    # Their names change with every new rule.
    return re.sub(r"\n\n(?:Rules that could not be tried|What was not observed)\n(?:  .*\n?)+", "\n", shown).strip()


def _of_findings(findings: tuple[Diagnosis, ...], kind: Any, subject: Subject) -> str:
    tool = Tool(name="necropsy", version="")
    document = Document(kind=kind, id="", tool=tool, complete=True, subject=subject, findings=findings)
    return reports.rendered(document, "text", width=80).strip()


def _of_dataset(rule: Rule[Any]) -> tuple[Diagnosis, ...]:
    if rule.name != KILLS:
        return of_body(rule.hit)
    died = Died(index=37, last_index=37, how="killed by SIGSEGV")
    return judging.examine(Dataset(type="generator", died=died))[0]
