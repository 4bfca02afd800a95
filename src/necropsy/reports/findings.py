"""What doctor or check has found, as text, Markdown and HTML: findings, what is in order, what was not checked."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.model import LAYERS, Binary, Diagnosis, Document, Fix, NotTried
from necropsy.reports.markdown import code, fence, prose, shortened
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import BOLD, CYAN, RED, YELLOW, Pen, clean, file_name, without_commands

LIMIT = 60_000
_TINTS = {"error": (BOLD, RED), "warning": (BOLD, YELLOW), "note": (BOLD, CYAN)}


def render(document: Document, form: str, *, color: bool = False, pages: Source | None = None) -> str:
    """The document as text, ``markdown`` or ``html``; a line is as long as its command needs."""
    if form == "markdown":
        return markdown(document)
    if form == "html":
        return html(document, pages)
    return text(document, color=color)


def text(document: Document, *, color: bool = False) -> str:
    """One line for each finding with its fix, one that lists what is in order, one for what was not checked."""
    pen = Pen(color=color)
    lines = [f"{clean(document.subject.path or '')}: {clean(document.subject.text or '')}"]
    lines += [_line(one, pen) for one in document.findings]
    lines += _summary(document)
    if not (document.findings or document.passed):
        lines += [
            line for one in document.binaries or () for line in _frames(one, named=len(document.binaries or ()) > 1)
        ]
    return without_commands("\n".join(lines) + "\n")


def _line(one: Diagnosis, pen: Pen) -> str:
    """In compilers' form for a place in a file, ``op.cc:12:5: error: ...``, which editors follow."""
    fix = "".join(f" {_in_a_line(fix)}" for fix in one.fixes[:1])
    at, summary = "", one.summary
    place = next(iter(one.locations), None)
    if place is not None and place.line is not None:
        summary = summary.removeprefix(f"{file_name(place.path)}:{place.line}: ")
        at = clean(":".join(str(part) for part in (place.path, place.line, place.column) if part is not None)) + ": "
    tried = "".join(f"\n    {clean(line)}" for line in tried_in_words(one))
    return f"{at}{pen(one.severity, *_TINTS[one.severity])}: {clean(summary)}{fix} [{one.rule}]{tried}"


def tried_in_words(one: Diagnosis) -> list[str]:
    """What calls of the op have shown of a finding: its status with how they ended, and the call that shows it."""
    if one.status == "observed" or not one.experiments:
        return []
    row = one.experiments[-1]
    return [f"{one.status}: {row.outcome}", *([row.change] if row.crashed else [])]


def _frames(binary: Binary, *, named: bool) -> list[str]:
    rows = [f"{one.bytes:>12,}  {clean(one.function)}" for one in binary.frames]
    return [*([f"{clean(binary.path)}:"] if named else []), f"{'bytes':>12}  function", *rows]


def _in_a_line(fix: Fix) -> str:
    words = clean(fix.text)
    if fix.command is None:
        return words
    command = clean("; ".join(fix.command.splitlines()))
    return f"{words.rstrip('.:')}: {command}"


def _summary(document: Document) -> list[str]:
    lines = []
    if document.passed:
        lines.append(f"In order: {_listed([one.checks or one.rule for one in document.passed])}.")
    left = not_checked(document)
    if left:
        lines.append(f"Not checked: {'; '.join(left)}.")
    unused = [gap.part for gap in document.gaps if gap.part in LAYERS]
    if unused:
        lines.append(f"Without optional layers: {', '.join(unused)}.")
    return [clean(line) for line in lines]


def not_checked(document: Document) -> list[str]:
    """What was not checked, each with the reason; rules with the same reason stand together."""
    by_reason: dict[str, list[NotTried]] = {}
    for one in document.not_tried:
        by_reason.setdefault(one.reason, []).append(one)
    told = {gap.why for gap in document.gaps if any(gap.why in reason for reason in by_reason)}
    left = [f"{_listed([one.checks or one.rule for one in rules])} ({reason})" for reason, rules in by_reason.items()]
    return left + [f"{gap.part} ({gap.why})" for gap in document.gaps if gap.why not in told and gap.part not in LAYERS]


def _listed(words: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def markdown(document: Document) -> str:
    """Every finding with its evidence and its fixes, in at most ``LIMIT`` characters."""
    parts = [f"### {prose(_title(document))}", prose(f"{document.subject.path}: {document.subject.text}")]
    for one in document.findings:
        parts += [f"#### {one.severity}: {prose(one.summary)}", code(one.rule)]
        parts.append(
            "\n".join(
                f"- {prose(each.claim)}: {prose(each.seen)}" + (f" *({prose(each.where)})*" if each.where else "")
                for each in one.evidence
            )
        )
        if told := tried_in_words(one)[:1]:
            parts.append(prose(told[0]))
        for fix in one.fixes:
            parts.append(prose(fix.text))
            if fix.command:
                parts.append(fence(fix.command.splitlines(), "sh"))
    parts += [prose(line) for line in _summary(document)]
    return shortened(without_commands("\n\n".join(parts) + "\n"), LIMIT)


def _title(document: Document) -> str:
    counts = {kind: sum(one.severity == kind for one in document.findings) for kind in ("error", "warning", "note")}
    told = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    command = "check" if document.kind == "audit" else "doctor"
    return f"necropsy {command}: {', '.join(told) or 'nothing is wrong'}"


def html(document: Document, pages: Source | None = None) -> str:
    """A page that loads nothing from anywhere, with the page of each rule that ``pages`` has."""
    from necropsy.reports import page, rule_page

    rules = rule_page.pages((one.rule for one in document.findings), pages)
    return page.render(
        "findings.html.j2",
        {"document": document, "summary": _summary(document), "pages": rules},
        title=_title(document),
        identity=document.id,
        tool=document.tool,
        markdown=markdown(document),
    )
