"""What was found in a dataset, as text, Markdown and HTML: the findings, the specification, what was not checked."""

from __future__ import annotations

import msgspec

from necropsy.model import Column, Dataset, Diagnosis, Document, Evidence
from necropsy.reports import text as reports_text
from necropsy.reports.markdown import code, fence, prose, shortened
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import BOLD, CYAN, RED, YELLOW, Pen, clean, columns, cut, size, without_commands, wrap

LIMIT = 60_000
"""Characters of Markdown; an issue's text has room for 65,536."""
_ORIGINS = {
    "given": "as given",
    "declared": "as the dataset declares it",
    "inferred": "inferred from the first 32 elements",
}
_TINTS = {"error": (BOLD, RED), "warning": (BOLD, YELLOW), "note": (BOLD, CYAN)}


def render(document: Document, form: str, *, color: bool = False, width: int = 80, pages: Source | None = None) -> str:
    """The document as ``text``, ``markdown`` or ``html``; colour and width are the text's only."""
    if form == "markdown":
        return markdown(document)
    if form == "html":
        return html(document, pages)
    return text(document, color=color, width=width)


def text(document: Document, *, color: bool = False, width: int = 80) -> str:
    """For a terminal: each finding with the first affected element and what to do, then the specification."""
    pen = Pen(color=color)
    first, *rest = wrap(headline(document), width, first="necropsy: ", rest="  ")
    lines = [pen(first, BOLD), *rest]
    for one in document.findings:
        lines += ["", *_finding(one, width, pen)]
    rows = spec_rows(document)
    if rows and document.dataset is not None:
        room = min(max(columns(path) for path, _ in rows), width // 2)
        lines += ["", pen(f"Spec, {_ORIGINS[document.dataset.spec]}", BOLD)]
        for path, what in rows:
            name = cut(path, room)
            lines += wrap(what, width, first=f"  {name}{' ' * (room - columns(name))}  ")
    if document.gaps:
        lines += ["", pen("Not checked", BOLD)]
        for gap in document.gaps:
            lines += wrap(f"{gap.part}: {gap.why}", width, first="  * ")
    whole = without_commands("\n".join(lines) + "\n")
    if document.reports:
        died = msgspec.structs.replace(document, findings=(), gaps=())
        whole += reports_text.render(died, color=color, width=width)
    return whole


def _finding(one: Diagnosis, width: int, pen: Pen) -> list[str]:
    lines = wrap(f"{one.severity}: {one.summary} [{one.rule}]", width, rest="  ")
    mark = f"{one.severity}:"
    lines[0] = pen(mark, *_TINTS[one.severity]) + lines[0][len(mark) :]
    for each in one.evidence[:4]:
        lines += wrap(_proof(each), width, first="  * ")
    for fix in one.fixes[:1]:
        lines += wrap(f"Do: {fix.text}", width, first="  ", rest="      ")
        lines += [f"      {clean(line)}" for line in (fix.command or "").splitlines()]
    return lines


def _proof(one: Evidence) -> str:
    return f"{one.claim}: {one.seen}" + (f" [{one.where}]" if one.where else "")


def headline(document: Document) -> str:
    """How much was checked, and how much of it is wrong."""
    dataset = document.dataset or Dataset()
    counts = {kind: sum(one.severity == kind for one in document.findings) for kind in ("error", "warning", "note")}
    told = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    noun = "batch" if dataset.batches else "element"
    plural = "" if dataset.elements == 1 else "es" if dataset.batches else "s"
    seen = f"{dataset.elements:,} {noun}{plural} checked"
    if dataset.bytes:
        seen += f", {size(dataset.bytes)} in {dataset.seconds:.1f} s"
    name = f"{document.subject.text}: " if document.subject.text else ""
    well = "nothing wrong was found" if document.gaps else "nothing is wrong"
    return f"{name}{', '.join(told) or well} ({seen})"


def spec_rows(document: Document) -> list[tuple[str, str]]:
    """Each path, and what is there: type, shape, the values that were seen."""
    return [(one.path or "(the element)", _what(one)) for one in document.dataset.columns] if document.dataset else []


def _what(column: Column) -> str:
    shape = ""
    if column.shape is not None:
        sizes = ", ".join("None" if one is None else str(one) for one in column.shape)
        shape = f" ({sizes}{',' if len(column.shape) == 1 else ''})"
    kind = f"{column.kind} " if column.kind in {"ragged", "sparse"} else ""
    said = f"{kind}{column.dtype or column.kind}{shape}"
    if column.minimum is not None and column.maximum is not None:
        said += f", {column.minimum:g} to {column.maximum:g}"
    if column.low is not None or column.high is not None:
        low, high = ("any" if one is None else f"{one:g}" for one in (column.low, column.high))
        said += f" (allowed: {low} to {high})"
    return said


def markdown(document: Document) -> str:
    """To paste into an issue, in at most ``LIMIT`` characters."""
    parts = [f"### {prose(headline(document))}"]
    for one in document.findings:
        parts += [f"#### {one.severity}: {prose(one.summary)}", code(one.rule)]
        parts.append("\n".join(f"- {prose(_proof(each))}" for each in one.evidence))
        for fix in one.fixes:
            parts.append(prose(fix.text))
            if fix.command:
                parts.append(fence(fix.command.splitlines(), "python"))
    rows = spec_rows(document)
    if rows and document.dataset is not None:
        parts += [f"#### Spec, {_ORIGINS[document.dataset.spec]}", fence([f"{path}  {what}" for path, what in rows])]
    if document.gaps:
        parts += ["#### Not checked", "\n".join(f"- {prose(f'{gap.part}: {gap.why}')}" for gap in document.gaps)]
    if document.reports:
        from necropsy.reports import markdown as reports_markdown

        parts.append(reports_markdown.render(document, limit=LIMIT // 2))
    return shortened(without_commands("\n\n".join(parts) + "\n"), LIMIT)


def html(document: Document, pages: Source | None = None) -> str:
    """A page that loads nothing from anywhere, with the page of each rule that ``pages`` has."""
    from necropsy.reports import page, rule_page

    rows = spec_rows(document)
    return page.render(
        "dataset.html.j2",
        {
            "document": document,
            "evidence": [[_proof(each) for each in one.evidence] for one in document.findings],
            "spec": [f"{path}  {what}" for path, what in rows],
            "origin": _ORIGINS[document.dataset.spec] if document.dataset is not None else "",
            "died": reports_text.render(document, width=100).strip("\n").split("\n") if document.reports else [],
            "pages": rule_page.pages((one.rule for one in document.findings), pages),
        },
        title=headline(document),
        identity=document.id,
        tool=document.tool,
        markdown=markdown(document),
    )
