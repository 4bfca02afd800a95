"""Pictures of all bugs together: over time, by host, by version and by library. Places are per cent of the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import BugGroup, Triage
from necropsy.reports import treemap, trends
from necropsy.reports.bug_pictures import binned
from necropsy.reports.treemap import Rectangle
from necropsy.reports.trends import Period

COLOURED = 5
"""Bugs that have a colour of their own in the timeline."""
_BARS = 60
_HOSTS, _COLUMNS = 40, 45
_LIBRARIES, _VERSIONS, _ROWS = 3, 12, 15
_MODULES = 40
SHADES = 5
_FEW = 5
"""Of a bug with fewer deaths no share says anything: it is never shaded darker than ``_FEW_SHADE``."""
_FEW_SHADE = 2
_RATIO = 2.2
_OUTSTANDS, _ENOUGH = 3, 10
"""A host is highlighted if it has this many times the median deaths of a host, and at least this many deaths."""


@dataclass(frozen=True)
class Bar:
    """Some days: ``parts`` from the bottom up, each with its colour's number, top and height."""

    x: float
    width: float
    title: str
    parts: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Event:
    """Bugs to which the same happened on the same days."""

    x: float
    number: int
    title: str


@dataclass(frozen=True)
class FleetTimeline:
    """Deaths by day, with the days on which bugs were new, began to rise, or were closed."""

    bars: tuple[Bar, ...]
    lanes: tuple[tuple[str, tuple[Event, ...]], ...]
    ticks: tuple[tuple[float, str], ...]
    top: int
    days_per_bar: int
    named: tuple[BugGroup, ...]
    """The bugs with a colour, by its number."""


def timeline(triage: Triage) -> FleetTimeline | None:
    """None where deaths of two days are not known."""
    whole = trends.period(triage)
    if whole is None or whole.days < 2:
        return None
    named = triage.groups[:COLOURED]
    per_bar = -(-whole.days // _BARS)
    series = [binned(trends.counts(one, whole), _BARS) for one in triage.groups]
    totals = [sum(one) for one in zip(*series, strict=True)]
    top = max(*totals, 1)
    wide = 100 / len(totals)
    short = whole.days % per_bar
    begins = [0, *range(short, whole.days, per_bar)] if short else [*range(0, whole.days, per_bar)]
    bars = []
    for place, total in enumerate(totals):
        parts, height = [], 0.0
        others = total - sum(one[place] for one in series[:COLOURED])
        for number, count in enumerate([*(one[place] for one in series[:COLOURED]), others]):
            if count:
                part = 100 * count / top
                height += part
                parts.append((number if number < len(named) else COLOURED, 100 - height, part))
        day = whole.day(begins[place])
        title = f"{day if per_bar == 1 else f'from {day}'}: {total:,} death{'s' if total != 1 else ''}"
        bars.append(Bar(place * wide, wide, title, tuple(parts)))
    return FleetTimeline(tuple(bars), _lanes(triage, whole, begins), _ticks(whole, begins), top, per_bar, named)


def _lanes(triage: Triage, whole: Period, begins: Sequence[int]) -> tuple[tuple[str, tuple[Event, ...]], ...]:
    new: dict[int, list[str]] = {}
    rising: dict[int, list[str]] = {}
    closed: dict[int, list[str]] = {}
    for one in triage.groups:
        for lane, days in (
            (new, [whole.place(one.first)]),
            (rising, trends.rising_on(trends.counts(one, whole))),
            (closed, [whole.place(one.closed_at)]),
        ):
            for day in days:
                if day is not None:
                    lane.setdefault(sum(begin <= day for begin in begins) - 1, []).append(one.title)
    wide = 100 / len(begins)
    return tuple(
        (
            name,
            tuple(
                Event((place + 0.5) * wide, len(titles), f"{whole.day(begins[place])}: {_listed(titles)}")
                for place, titles in sorted(lane.items())
            ),
        )
        for name, lane in (("new", new), ("rising", rising), ("closed", closed))
    )


def _listed(titles: Sequence[str]) -> str:
    shown = [one[:120] for one in titles[:4]]
    return "; ".join(shown) + (f"; and {len(titles) - 4} more" if len(titles) > 4 else "")


def _ticks(whole: Period, begins: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """At most five days that are spread over the period."""
    step = max(1, -(-len(begins) // 5))
    return tuple((100 * place / len(begins), whole.day(begins[place])) for place in range(0, len(begins), step))


# ---------------------------------------------------------------- hosts


@dataclass(frozen=True)
class HostRow:
    """One host: its cells are (column, shade, deaths)."""

    name: str
    deaths: int
    bugs: int
    share: float
    outstanding: bool
    cells: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class HeatMap:
    """Hosts by their deaths, against bugs by theirs."""

    rows: tuple[HostRow, ...]
    bugs: tuple[BugGroup, ...]
    more_hosts: int
    more_bugs: int
    said: str
    """What stands out, in a sentence; empty where nothing does."""


def heat_map(triage: Triage) -> HeatMap | None:
    """None where no host is known, or only one."""
    deaths: Counter[str] = Counter()
    bugs: Counter[str] = Counter()
    for one in triage.groups:
        for host, count in one.hosts.items():
            deaths[host] += count
            bugs[host] += 1
    if len(deaths) < 2:
        return None
    order = sorted(deaths, key=lambda name: (-deaths[name], name))
    columns = triage.groups[:_COLUMNS]
    middle = deaths[order[len(order) // 2]]
    whole = sum(deaths.values())
    rows = []
    for host in order[:_HOSTS]:
        cells = tuple(
            (place, _shade(count, one.count), count)
            for place, one in enumerate(columns)
            if (count := one.hosts.get(host, 0)) > 0
        )
        stands_out = deaths[host] >= max(_OUTSTANDS * middle, _ENOUGH)
        rows.append(HostRow(host, deaths[host], bugs[host], deaths[host] / deaths[order[0]], stands_out, cells))
    said = "; ".join(
        f"{row.name} has {100 * row.deaths / whole:.0f} % of the deaths, in {row.bugs:,} of {len(triage.groups):,} bugs"
        for row in rows
        if row.outstanding
    )
    return HeatMap(tuple(rows), columns, len(order) - len(rows), len(triage.groups) - len(columns), said)


def _shade(count: int, whole: int) -> int:
    """1 to ``SHADES``, by the share of a bug's deaths."""
    shade = min(SHADES, max(1, -(-SHADES * count // max(whole, 1))))
    return min(shade, _FEW_SHADE) if whole < _FEW else shade


# ---------------------------------------------------------------- versions


@dataclass(frozen=True)
class VersionTable:
    """The versions of one library that each bug lives in; a row's cells are (deaths, shade), 0 where there are none."""

    library: str
    versions: tuple[str, ...]
    rows: tuple[tuple[BugGroup, tuple[tuple[int, int], ...]], ...]
    more: int


def versions(triage: Triage) -> list[VersionTable]:
    """A table for each of the libraries with the most versions, if there are two or more."""
    known: dict[str, Counter[str]] = {}
    for one in triage.groups:
        for library, used in one.versions.items():
            known.setdefault(library, Counter()).update(used)
    several = sorted((name for name in known if len(known[name]) > 1), key=lambda name: (-len(known[name]), name))
    tables = []
    for library in several[:_LIBRARIES]:
        shown = _sorted([name for name, _ in known[library].most_common(_VERSIONS)])
        living = [one for one in triage.groups if one.versions.get(library)]
        rows = []
        for one in living[:_ROWS]:
            used = one.versions[library]
            most = max(used.values())
            rows.append((one, tuple((used.get(each, 0), _shade(used.get(each, 0), most)) for each in shown)))
        tables.append(VersionTable(library, tuple(shown), tuple(rows), len(living) - len(rows)))
    return tables


def _sorted(names: Sequence[str]) -> list[str]:
    """Oldest first. What is not a version by PEP 440 comes before those that are."""
    from packaging.version import InvalidVersion, Version

    def key(name: str) -> tuple[bool, Version, str]:
        try:
            return True, Version(name), name
        except InvalidVersion:
            return False, Version("0"), name

    return sorted(names, key=key)


# ---------------------------------------------------------------- libraries


@dataclass(frozen=True)
class ModuleArea:
    """One library; ``bugs`` are (bug, rectangle in per cent of this area)."""

    name: str
    deaths: int
    place: Rectangle
    colour: int
    bugs: tuple[tuple[BugGroup, Rectangle], ...]


def modules(triage: Triage) -> list[ModuleArea]:
    """The libraries with the deaths of the bugs in them, the largest first; none for a single bug."""
    if len(triage.groups) < 2:
        return []
    found: dict[str, list[BugGroup]] = {}
    for one in triage.groups:
        if one.count > 0:
            found.setdefault(module_of(one), []).append(one)
    by_deaths = sorted(found.items(), key=lambda item: (-sum(one.count for one in item[1]), item[0]))
    if len(by_deaths) > _MODULES:
        rest = [one for _, groups in by_deaths[_MODULES:] for one in groups]
        by_deaths = [*by_deaths[:_MODULES], ("other libraries", rest)]
        by_deaths.sort(key=lambda item: -sum(one.count for one in item[1]))
    places = treemap.squarified([sum(one.count for one in groups) for _, groups in by_deaths], ratio=_RATIO)
    areas = []
    for number, ((name, groups), place) in enumerate(zip(by_deaths, places, strict=True)):
        shown = sorted(groups, key=lambda one: -one.count)
        ratio = _RATIO * place.width / place.height if place.height else 1.0
        inside = treemap.squarified([one.count for one in shown], ratio=ratio)
        deaths = sum(one.count for one in groups)
        areas.append(ModuleArea(name, deaths, place, number % 6, tuple(zip(shown, inside, strict=True))))
    return areas


def module_of(one: BugGroup) -> str:
    """The library to blame; the language where none is named."""
    culprit = one.culprit
    if culprit is not None and culprit.module:
        return culprit.module
    return "Python code" if culprit is not None and culprit.python is not None else "unknown"
