"""The result of ``necropsy reduce``: what is left of the program, what it dies of, and the command that runs it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from necropsy.model import Document, Reduction
from necropsy.reports import brief, text
from necropsy.reports.markdown import code, fence, prose, shortened
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import BOLD, Pen, clean, without_commands, wrap

LIMIT = 60_000
"""Characters of Markdown; an issue's text has room for 65,536."""
MOST_LINES = 60


def render(
    document: Document,
    form: str,
    *,
    programs: Mapping[str, str],
    color: bool = False,
    width: int = 80,
    pages: Source | None = None,
) -> str:
    """The document as ``text``, ``markdown`` or ``html``; ``programs``: the reduced Python files, by path."""
    reduction = document.reduction
    if reduction is None:
        return ""
    if form == "markdown":
        return _markdown(document, reduction, programs)
    if form == "html":
        return _html(document, reduction, programs, pages)
    return _text(document, reduction, programs, color=color, width=width)


def headline(reduction: Reduction) -> str:
    """``From 100 statements to 12, and from 3,001 lines of data to 2.``"""
    if reduction.signature is None:
        return "There was nothing to reduce."
    parts = [f"from {reduction.statements_before:,} statements to {reduction.statements:,}"]
    data = [one for one in reduction.files if one.kind == "data" and one.lines_before]
    before, after = sum(one.lines_before for one in data), sum(one.lines for one in data)
    if before > after:
        parts.append(f"from {before:,} lines of data to {after:,}")
    if reduction.statements >= reduction.statements_before and len(parts) == 1:
        return f"Nothing could be left out of its {reduction.statements:,} statements."
    return f"Reduced {' and '.join(parts)}."


def remarks(document: Document, reduction: Reduction) -> list[str]:
    """What a reader of the result has to know, a sentence each."""
    said = []
    if not reduction.finished and reduction.signature is not None:
        said.append("The reduction was stopped before its end: more may be left out by running it longer.")
    if reduction.rate_before is not None and reduction.rate_before < 1 and reduction.rate is not None:
        said.append(
            f"The program died in {reduction.rate_before:.0%} of {reduction.runs} runs, the reduced one in "
            f"{reduction.rate:.0%}."
        )
    if reduction.timed_out:
        said.append(
            f"{reduction.timed_out:,} trials were ended, because they waited or ran much longer than the program did; "
            "--timeout gives each more time."
        )
    if reduction.variables:
        has = "needs" if reduction.finished else "was run with"
        said.append(f"It {has} these environment variables as they are here: {', '.join(reduction.variables)}.")
    if reduction.other_deaths:
        count = len(reduction.other_deaths)
        listed = "; ".join(f"{one.signature} ({one.path})" for one in reduction.other_deaths[:5] if one.path)
        said.append(f"{count} other crash{'es' if count > 1 else ''} seen, each with a program that has it: {listed}.")
    said += [f"{gap.part}: {gap.why}" for gap in document.gaps]
    return said


def effort(reduction: Reduction) -> str:
    """``412 trials in 74 s, 120 more candidates needed no run.``"""
    unneeded = reduction.cached + reduction.rejected_without_run
    more = f"; {unneeded:,} more candidates needed no run" if unneeded else ""
    return f"{reduction.trials:,} trials in {reduction.seconds:.0f} s{more}."


def again(reduction: Reduction) -> str | None:
    """The command that runs the reduced program."""
    if reduction.output is None:
        return None
    return f"cd {shlex.quote(reduction.output)} && {shlex.join(reduction.command)}"


def _text(document: Document, reduction: Reduction, programs: Mapping[str, str], *, color: bool, width: int) -> str:
    pen = Pen(color=color)
    first, *rest = wrap(headline(reduction), width, first="necropsy: ", rest="  ")
    lines = [pen(first, BOLD), *rest, effort(reduction)]
    for remark in remarks(document, reduction):
        lines += wrap(remark, width, first="  * ", rest="    ")
    for path, shown in _shown(programs).items():
        lines += ["", pen(clean(path), BOLD), *(f"    {clean(line)}" for line in shown)]
    died = brief.render(_last(document), color=color, width=width, again=None)
    if died:
        lines += ["", died.rstrip("\n")]
    command = again(reduction)
    if command is not None:
        lines += ["", f"Run it: {clean(command)}", clean(reduction.output or "")]
    return without_commands("\n".join(lines) + "\n")


def _last(document: Document) -> Document:
    return msgspec.structs.replace(document, kind="diagnosis", reports=document.reports[-1:], reduction=None, gaps=())


def _shown(programs: Mapping[str, str]) -> dict[str, list[str]]:
    """The first lines of the files, the script first, limited in total."""
    left, found = MOST_LINES, {}
    for path, content in programs.items():
        lines = content.rstrip("\n").split("\n")
        if left <= 0 or not content.strip():
            continue
        more = len(lines) - left
        found[path] = lines[:left] + ([f"... {more} more lines"] if more > 0 else [])
        left -= len(lines)
    return found


def _markdown(document: Document, reduction: Reduction, programs: Mapping[str, str]) -> str:
    from necropsy.reports import markdown

    parts = [f"### {prose(headline(reduction))}", prose(effort(reduction))]
    parts += ["\n".join(f"- {prose(one)}" for one in remarks(document, reduction))]
    for path, shown in _shown(programs).items():
        parts += [code(path), fence([clean(line) for line in shown], "python")]
    if (command := again(reduction)) is not None:
        parts += ["Run it:", fence([clean(command)], "shell")]
    if document.reports:
        parts.append(markdown.render(_last(document), limit=LIMIT // 2))
    return shortened(without_commands("\n\n".join(part for part in parts if part) + "\n"), LIMIT)


def _html(document: Document, reduction: Reduction, programs: Mapping[str, str], pages: Source | None) -> str:
    from necropsy.reports import page, rule_page

    last = _last(document)
    rules = [one.verdict.rule for one in last.reports if one.verdict is not None]
    return page.render(
        "reduction.html.j2",
        {
            "document": document,
            "effort": effort(reduction),
            "remarks": remarks(document, reduction),
            "programs": _shown(programs),
            "again": again(reduction),
            "died": text.render(last, width=100).strip("\n").split("\n"),
            "pages": rule_page.pages(rules, pages),
        },
        title=headline(reduction),
        markdown=_markdown(document, reduction, programs),
        identity=document.id,
        tool=document.tool,
    )
