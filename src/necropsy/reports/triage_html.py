"""The bugs that a triage found, as one page: pictures of all of them, then each with its stacks and its deaths."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from necropsy.model import BugGroup, Culprit, Document, GroupMember, Triage
from necropsy.reports import bug_pictures, fleet_pictures, page, rule_page, trends
from necropsy.reports import triage as in_words
from necropsy.reports.icicle import Icicle
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import file_name
from necropsy.reports.trends import Period

_MEMBERS, _HOSTS, _VERSIONS, _REASONS, _ALIASES = 8, 8, 6, 6, 10
_CHOICES = 200
"""Hosts and libraries that the filters offer."""
_CELLS, _LEAST_CELLS = 4_500, 12
"""Cells of all flame graphs together, and of each at least."""
_RULES = 12
"""Pages of rules that are part of the page: of those with the most deaths."""


@dataclass(frozen=True)
class BugView:
    """One bug as it is shown. ``key``: the id of its element."""

    key: str
    group: BugGroup
    states: tuple[tuple[str, str], ...]
    """Class and words of each."""
    module: str
    line: str
    spark: str
    span: str
    hosts: str
    where: tuple[str, ...]
    flame: Icicle | None
    all_hosts: tuple[tuple[str, int], ...]
    more_hosts: int
    versions: tuple[tuple[str, str], ...]
    members: tuple[GroupMember, ...]
    more_members: int
    shows: str | None
    filed_hosts: str
    """The numbers of its hosts in the filter, each between two blanks."""
    why: tuple[str, ...]
    aliases: tuple[str, ...]


def render(document: Document, pages: Source | None = None) -> str:
    """The page, which loads nothing from anywhere; ``pages`` has the pages of rules."""
    triage = document.triage or Triage()
    whole = trends.period(triage)
    rises = {one.id for one in trends.rising(triage)}
    frequent_hosts = Counter[str]()
    for one in triage.groups:
        frequent_hosts.update(one.hosts)
    hosts = sorted(name for name, _ in frequent_hosts.most_common(_CHOICES))
    overall = _Overall(
        whole, frozenset(rises), {name: place for place, name in enumerate(hosts)}, _cells_of_each(len(triage.groups))
    )
    bugs = [_view(one, number, overall) for number, one in enumerate(triage.groups)]
    keys = {id(one.group): one.key for one in bugs}
    rules: dict[str, int] = {}
    for one in triage.groups:
        if one.rule is not None:
            rules[one.rule] = rules.get(one.rule, 0) + one.count
    frequent = sorted(rules, key=lambda name: -rules[name])[:_RULES]
    return page.render(
        "triage.html.j2",
        {
            "document": document,
            "triage": triage,
            "headline": in_words.headline(triage),
            "read": in_words.read(triage),
            "bugs": bugs,
            "key_of": lambda group: keys[id(group)],
            "notable": [(name, found) for name, found in _notable(bugs) if found],
            "timeline": fleet_pictures.timeline(triage),
            "heat": fleet_pictures.heat_map(triage),
            "versions": fleet_pictures.versions(triage),
            "modules": fleet_pictures.modules(triage),
            "statuses": sorted({kind for one in bugs for kind, _ in one.states}),
            "hosts": hosts,
            "libraries": sorted({one.module for one in bugs})[:_CHOICES],
            "pages": rule_page.pages(frequent, pages),
        },
        title=f"necropsy triage: {in_words.headline(triage)}",
        identity=document.id,
        tool=document.tool,
        markdown=in_words.markdown(document),
        extra="triage",
    )


def _notable(bugs: list[BugView]) -> list[tuple[str, list[BugView]]]:
    def with_state(name: str) -> list[BugView]:
        return [one for one in bugs if any(kind == name for kind, _ in one.states)]

    return [
        ("Back after a fix", with_state("regression")),
        ("New", with_state("new")),
        ("Rising", with_state("rising")),
    ]


@dataclass(frozen=True)
class _Overall:
    """What is known of all bugs together. ``hosts``: their places in the filter."""

    period: Period | None
    rising: frozenset[str]
    hosts: dict[str, int]
    cells: int


def _cells_of_each(bugs: int) -> int:
    return max(_CELLS // max(bugs, 1), _LEAST_CELLS)


def _view(one: BugGroup, number: int, overall: _Overall) -> BugView:
    by_day = trends.counts(one, overall.period) if overall.period is not None else []
    rising = one.id in overall.rising
    states: list[tuple[str, str]] = [(one.status, in_words.status_of(one))] if one.status != "known" else []
    states += [("rising", "rising")] if rising else []
    states += [("known", "")] if not states else []
    ordered = sorted(one.hosts.items(), key=lambda item: (-item[1], item[0]))
    members = tuple(reversed(one.members[-_MEMBERS:]))
    culprit = one.culprit
    return BugView(
        key=f"bug{number + 1}",
        group=one,
        states=tuple(states),
        module=fleet_pictures.module_of(one),
        line=_line(culprit) if culprit is not None else "",
        spark=bug_pictures.spark(by_day),
        span=in_words.span(one),
        hosts=in_words.on_hosts(one.hosts),
        where=_where(culprit) if culprit is not None else (),
        flame=bug_pictures.flame(one, overall.cells),
        all_hosts=tuple(ordered[:_HOSTS]),
        more_hosts=max(len(ordered) - _HOSTS, 0),
        versions=tuple(
            (library, ", ".join(f"{name} ({count:,})" for name, count in list(used.items())[:_VERSIONS]))
            for library, used in list(one.versions.items())[:_VERSIONS]
        ),
        members=members,
        more_members=max(one.count - len(members), 0),
        shows=in_words.shows(one.example) if one.example is not None else None,
        filed_hosts="".join(f" {overall.hosts[host]}" for host in one.hosts if host in overall.hosts) + " ",
        why=one.why[:_REASONS],
        aliases=one.aliases[:_ALIASES],
    )


def _line(culprit: Culprit) -> str:
    line = culprit.python
    return f"{file_name(line.file)}:{line.line}" if line is not None and line.file and line.line is not None else ""


def _where(culprit: Culprit) -> tuple[str, ...]:
    """The native function, its line of Python, the operation."""
    parts = []
    if culprit.function or culprit.module:
        said = f"`{culprit.function}`" if culprit.function else "an unnamed function"
        said += f" in {culprit.module}" if culprit.module else ""
        said += f" ({culprit.source}:{culprit.line})" if culprit.source and culprit.line is not None else ""
        parts.append(said)
    line = culprit.python
    if line is not None and line.file:
        parts.append(f"{line.file}:{line.line}" + (f" in {line.function}" if line.function else ""))
    return (*parts, *([f"operation {culprit.op}"] if culprit.op else []))
