"""What a walk saw, as a document: each rule is asked about each path, and the findings stand beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from necropsy import __version__, redact
from necropsy.diagnose import judge
from necropsy.document import new_id
from necropsy.model import Dataset, Diagnosis, Document, Gap, Part, Severity, Subject, Tool
from necropsy.rule import Rule
from necropsy.rules import data_rules

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


def document(
    seen: Mapping[str, Any], *, text: str | None, run: Document | None = None, gaps: Sequence[Gap] = ()
) -> Document:
    """The document of a walk. ``text``: what was checked; ``run``: of the process that walked, where it died."""
    dataset = msgspec.convert(dict(seen), Dataset)
    reports = run.reports if run is not None else ()
    if dataset.died is not None and reports:
        verdict = next((one.verdict for one in reports if one.verdict is not None), None)
        dataset = msgspec.structs.replace(dataset, died=msgspec.structs.replace(dataset.died, diagnosis=verdict))
    findings, failed = examine(dataset)
    return redact.document(
        Document(
            kind="dataset",
            id=new_id(),
            tool=Tool(name="necropsy", version=__version__),
            complete=True,
            subject=Subject(kind="dataset", text=text),
            processes=run.processes if run is not None and reports else (),
            reports=reports,
            findings=findings,
            gaps=(*gaps, *_unseen(dataset), *failed),
            dataset=dataset,
        )
    )


def examine(dataset: Dataset) -> tuple[tuple[Diagnosis, ...], tuple[Gap, ...]]:
    """The findings, worst first, and the rules that failed."""
    found: list[Diagnosis] = []
    failed: list[Gap] = []
    for part in (Part(dataset=dataset), *(Part(dataset=dataset, column=one) for one in dataset.columns)):
        here, gaps = _of_part(part, data_rules())
        found += here
        failed += gaps
    found.sort(key=lambda one: _ORDER[one.severity])
    return tuple(found), tuple(failed)


def _of_part(part: Part, rules: Sequence[Rule[Part]]) -> tuple[list[Diagnosis], list[Gap]]:
    """Findings at one path do not compete, so each rule is asked alone."""
    found: dict[str, Diagnosis] = {}
    failed: list[Gap] = []
    for rule in rules:
        judgement = judge(part, (rule,), lambda _part, _need: None)
        found |= {one.rule: one for one in judgement.diagnoses}
        failed += judgement.failed
    beaten = {name for rule in rules if rule.name in found for name in rule.beats}
    return [one for one in found.values() if one.rule not in beaten], failed


def _unseen(dataset: Dataset) -> list[Gap]:
    """Where the walk ended early, and what cannot be checked."""
    objects = [one for one in dataset.columns if one.kind == "object" and not one.faults]
    why = "values of this type are not checked"
    strange = [Gap(part=one.path or "elements", why=f"{why}: {one.dtype}" if one.dtype else why) for one in objects]
    return strange + _cut_short(dataset)


def _cut_short(dataset: Dataset) -> list[Gap]:
    if dataset.ended == "limit":
        return [Gap(part="elements", why=f"only the first {dataset.elements:,} were checked, as the limit says")]
    if dataset.ended == "timeout" and dataset.elements and dataset.columns:
        return [Gap(part="elements", why=f"{dataset.elements:,} were checked when the time was over")]
    if dataset.ended == "error" and dataset.raised is not None and dataset.raised.index is not None:
        return [
            Gap(part="elements", why=f"what comes behind element {dataset.raised.index:,}: the pipeline had raised")
        ]
    return []
