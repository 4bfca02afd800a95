"""The bugs that a triage found, as text and as Markdown: how many, which first, since when, on which machines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from necropsy.model import BugGroup, Document, GroupMember, Triage
from necropsy.reports import trends
from necropsy.reports.markdown import code, fence, prose, shortened
from necropsy.reports.terminal import BOLD, DIM, GREEN, RED, YELLOW, Pen, clean, cut_path, without_commands, wrap

LIMIT = 60_000
"""Characters of Markdown; an issue's text has room for 65,536."""
_SHORT, _MARKDOWN = 15, 50
"""Bugs that are listed, if not all are."""
_SKIPPED = 5
_NEXT = "Next: `necropsy show FILE` explains one death of a bug; --format html -o bugs.html draws all bugs on one page."
_TINTS = {"new": (BOLD, YELLOW), "regression": (BOLD, RED), "closed": (GREEN,), "rising": (BOLD, YELLOW)}


def render(document: Document, *, color: bool = False, width: int = 80, full: bool = False) -> str:
    """Bugs by count, a paragraph each, then what needs a decision. ``full``: all bugs, with why each is one."""
    triage = document.triage
    if triage is None:
        return ""
    pen = Pen(color=color)
    first, *rest = wrap(headline(triage), width, first="necropsy: ", rest="  ")
    lines = [pen(first, BOLD), *rest]
    rises = {one.id for one in trends.rising(triage)}
    shown = triage.groups if full else triage.groups[:_SHORT]
    for number, one in enumerate(shown, 1):
        lines += ["", *_group(one, number, pen, width, rising=one.id in rises, full=full)]
    if left := len(triage.groups) - len(shown):
        deaths = sum(one.count for one in triage.groups[len(shown) :])
        text = f"and {counted(left, 'more bug')} with {counted(deaths, 'death')}: --full lists them"
        lines += ["", *wrap(text, width)]
    lines += _decisions(document, triage, pen, width, full=full)
    return without_commands("\n".join(lines) + "\n")


def headline(triage: Triage) -> str:
    """``400 deaths are 12 bugs: 3 new, 1 regression, 2 rising.``"""
    if not triage.groups:
        return f"no deaths in {counted(triage.files + triage.unchanged, 'file')}."
    deaths = triage.deaths or sum(one.count for one in triage.groups)
    is_or_are = "is" if deaths == 1 else "are"
    notable = news(triage)
    return f"{counted(deaths, 'death')} {is_or_are} {counted(len(triage.groups), 'bug')}" + (
        f": {', '.join(notable)}." if notable else "."
    )


def news(triage: Triage) -> list[str]:
    """``3 new``, ``1 regression``, ``2 rising``: what changed."""
    statuses = [one.status for one in triage.groups]
    regressions = statuses.count("regression")
    parts = [f"{statuses.count('new'):,} new"] if "new" in statuses else []
    parts += [f"{regressions:,} regression{'s' if regressions > 1 else ''}"] if regressions else []
    found = trends.rising(triage)
    return parts + ([f"{len(found):,} rising"] if found else [])


def counted(number: int, noun: str) -> str:
    """``1 death``, ``1,204 deaths``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(one: BugGroup) -> str:
    """``2026-11-02 to 2026-11-27``; empty where no death tells when it was."""
    first, last = (one.first or "")[:10], (one.last or "")[:10]
    return first if first == last else f"{first or '?'} to {last or '?'}"


def on_hosts(hosts: Mapping[str, int]) -> str:
    """``14 hosts, most on gpu-13 (212)``; empty where none is known."""
    if not hosts:
        return ""
    most = max(hosts, key=lambda name: (hosts[name], name))
    return f"on {most}" if len(hosts) == 1 else f"{len(hosts):,} hosts, most on {most} ({hosts[most]:,})"


def status_of(one: BugGroup) -> str:
    """``regression: closed as fixed in 1.10`` and the like in one phrase; empty where nothing is known."""
    fixed = f" as fixed in {one.fixed_in}" if one.fixed_in else ""
    if one.status == "regression":
        return f"regression: it was closed{fixed} and is back"
    return f"closed{fixed}" if one.status == "closed" else one.status


def shows(member: GroupMember) -> str:
    """The command that shows a member: of a log, which may tell of more than one death, at its line."""
    if member.line is not None:
        return f"necropsy explain {shlex.quote(member.path)} --line {member.line}"
    return f"necropsy show {shlex.quote(member.path)}"


def _group(one: BugGroup, number: int, pen: Pen, width: int, *, rising: bool, full: bool) -> Iterator[str]:
    first, *rest = wrap(clean(one.title), width, first=f"{number}. {one.count:,}x ", rest="   ")
    yield pen(first, BOLD)
    yield from rest
    states = [*([status_of(one)] if one.status != "known" else []), *(["rising"] if rising else [])]
    tint = _TINTS[one.status] if one.status != "known" else _TINTS["rising"]
    facts = [one.id, *states, span(one), on_hosts(one.hosts), "from logs only" if one.texts_only else ""]
    lines = wrap(" - ".join(clean(fact) for fact in facts if fact), width, first="   ", rest="     ")
    for line in lines:
        yield pen(line, *tint) if states and line is lines[0] else pen(line, DIM)
    if full:
        if one.rule is not None:
            yield from wrap(f"Cause: {one.rule}, {one.confidence or 'possible'}", width, first="   ", rest="     ")
        for reason in one.why:
            yield from wrap(f"Why one bug: {reason}", width, first="   ", rest="     ")
        if one.worst is not None and one.worst.fit is not None:
            text = f"Fits worst ({100 * one.worst.fit:.0f} %): {one.worst.path}"
            yield from wrap(text, width, first="   ", rest="     ")
        if one.aliases:
            yield from wrap(f"Also known as {', '.join(one.aliases)}", width, first="   ", rest="     ")
    if one.example is not None:
        yield f"   {clean(shows(one.example))}"


def _decisions(document: Document, triage: Triage, pen: Pen, width: int, *, full: bool) -> Iterator[str]:
    """What a person has to decide or to know, and the next command."""
    if triage.suggested_merges:
        yield ""
        yield pen("These look like one bug:", BOLD)
        for one in triage.suggested_merges:
            yield from wrap(one.evidence, width, first="  * ", rest="    ")
            yield f"      necropsy triage merge {clean(' '.join(map(shlex.quote, one.groups)))}"
    if triage.skipped:
        yield ""
        yield pen(f"Skipped: {counted(len(triage.skipped), 'file')}", BOLD)
        shown = triage.skipped if full else triage.skipped[:_SKIPPED]
        for each in shown:
            path = cut_path(clean(each.path), max(width - 8, 20))
            yield from wrap(f"{path}: {each.why}", width, first="  * ", rest="    ")
        if left := len(triage.skipped) - len(shown):
            yield f"    and {left:,} more"
    if full and triage.corrections:
        yield ""
        yield pen("Corrected by hand:", BOLD)
        for correction in triage.corrections:
            yield from wrap(correction, width, first="  * ", rest="    ")
    yield ""
    yield from wrap(read(triage), width)
    if triage.groups:
        yield from wrap(_NEXT, width)
    for gap in document.gaps:
        yield from wrap(f"{gap.part}: {gap.why}", width, first="  * ", rest="    ")


def read(triage: Triage) -> str:
    """``431 files read, 23 of them without a death; 2,000 more have not changed since an earlier run.``"""
    said = f"{counted(triage.files, 'file')} read"
    said += f", {triage.without_death:,} of them without a death" if triage.without_death else ""
    said += f"; {triage.unchanged:,} more have not changed since an earlier run" if triage.unchanged else ""
    return said + "."


# ---------------------------------------------------------------- Markdown


def markdown(document: Document, *, limit: int = LIMIT) -> str:
    """A table of bugs, then the first of them with why each is one, in at most ``limit`` characters."""
    triage = document.triage
    if triage is None:
        return ""
    rises = {one.id for one in trends.rising(triage)}
    parts = [f"### {prose(headline(triage).capitalize())}", prose(read(triage))]
    if triage.groups:
        parts.append(_table(triage.groups[:_MARKDOWN], rises))
    if left := len(triage.groups) - _MARKDOWN:
        parts += [f"and {counted(left, 'more bug')}"] if left > 0 else []
    if triage.suggested_merges:
        merges = [
            f"- {code(one.groups[0])} and {code(one.groups[1])}: {prose(one.evidence)}"
            for one in triage.suggested_merges
        ]
        parts += ["#### These look like one bug", "\n".join(merges)]
    if triage.skipped:
        skipped = [f"- {code(one.path)}: {prose(one.why)}" for one in triage.skipped[: 4 * _SKIPPED]]
        left = len(triage.skipped) - len(skipped)
        skipped += [f"- and {left:,} more"] if left else []
        parts += [f"#### Skipped: {counted(len(triage.skipped), 'file')}", "\n".join(skipped)]
    if document.gaps:
        parts += ["\n".join(f"- {prose(gap.part)}: {prose(gap.why)}" for gap in document.gaps)]
    for one in triage.groups[:_MARKDOWN]:
        parts += _details(one)
    return shortened(without_commands("\n\n".join(parts) + "\n"), limit)


def _table(groups: Sequence[BugGroup], rises: set[str]) -> str:
    lines = ["| Deaths | Bug | Status | First and last | Hosts | Id |", "|---:|---|---|---|---|---|"]
    for one in groups:
        states = [status_of(one), *(["rising"] if one.id in rises else [])]
        cells = [f"{one.count:,}", prose(one.title), prose(", ".join(states)), prose(span(one))]
        cells += [prose(on_hosts(one.hosts)), code(one.id)]
        lines.append(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A bar would end the cell, also in code; ``prose`` escapes those outside of it."""
    return text.replace("\\|", "|").replace("|", "\\|")


def _details(one: BugGroup) -> list[str]:
    facts = [f"- Cause: {prose(one.rule)} ({one.confidence or 'possible'})"] if one.rule is not None else []
    facts += [f"- Why one bug: {prose(reason)}" for reason in one.why]
    if one.worst is not None and one.worst.fit is not None:
        facts.append(f"- Fits worst ({100 * one.worst.fit:.0f} %): {code(one.worst.path)}")
    for library, used in one.versions.items():
        facts.append(f"- {prose(library)}: {prose(', '.join(f'{name} ({count:,})' for name, count in used.items()))}")
    parts = [f"#### {prose(f'{one.count:,}x {one.title}')}", "\n".join(facts)]
    if one.names:
        parts.append(fence([clean(name) for name in one.names]))
    if one.example is not None:
        parts.append(fence([clean(shows(one.example))], "sh"))
    return [part for part in parts if part]
