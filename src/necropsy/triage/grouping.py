"""Fingerprints become groups, one for each bug: captures first, then texts with frames, then logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import msgspec

from necropsy.triage.deaths import Fingerprint
from necropsy.triage.joining import Cluster, Scores, joined
from necropsy.triage.logs import attach
from necropsy.triage.nodes import Book, Node, nodes
from necropsy.triage.reasons import common_names, evidence, reasons

_SURE = 0.75
"""A newcomer that fits two groups so well shows that they are one."""


class KeyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One bug."""

    id: str | None = None
    """The group that it was before."""
    keys: tuple[str, ...]
    """Sorted."""
    names: tuple[str, ...] = ()
    """The functions that its members have in common, innermost first."""
    why: tuple[str, ...] = ()
    """Why they are one, in sentences."""
    fit: dict[str, float] = {}
    """How well each key fits the others: 1 for the same place."""


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """All groups, and the groups that a newcomer shows to be one."""

    groups: tuple[KeyGroup, ...] = ()
    suggested: tuple[tuple[str, str, str], ...] = ()
    """Ids of two groups, and the evidence."""


def group(
    everything: Mapping[str, Fingerprint], before: Mapping[str, str], apart: Collection[frozenset[str]]
) -> Grouping:
    """The groups of all fingerprints.

    ``before``: the ids of the groups that keys are in already; these groups stay as they are, and newcomers join them
    or form new ones. ``apart``: pairs of keys that must not be in one group.
    """
    separate: defaultdict[str, set[str]] = defaultdict(set)
    for pair in apart:
        for key in pair & everything.keys():
            separate[key] |= pair - {key}
    known = {key: name for key, name in before.items() if key in everything}
    all_nodes = nodes(everything, known, separate.keys(), Book(everything.values()))
    scores = Scores(all_nodes, _forbidden(all_nodes, separate))
    clusters, met = _clusters(all_nodes, scores)
    groups = tuple(_described(one, scores) for one in sorted(clusters, key=lambda one: one.first))
    return Grouping(groups=groups, suggested=_suggested([*met, *_bridged(clusters, scores)]))


def _forbidden(all_nodes: list[Node], separate: Mapping[str, set[str]]) -> dict[int, set[int]]:
    """Nodes of keys that a person took apart; each of these keys is a node by itself."""
    holders = {key: node.number for node in all_nodes for key in node.keys if key in separate}
    return {
        holders[key]: {holders[other] for other in others if other in holders}
        for key, others in separate.items()
        if key in holders
    }


def _clusters(all_nodes: list[Node], scores: Scores) -> tuple[list[Cluster], list[tuple[Cluster, Cluster]]]:
    old: defaultdict[str, list[Node]] = defaultdict(list)
    for node in all_nodes:
        if node.before is not None:
            old[node.before].append(node)
    clusters = [Cluster(them, identity) for identity, them in sorted(old.items())]
    fresh = [node for node in all_nodes if node.before is None]
    captures = [node for node in fresh if _is_native(node) and node.codes]
    clusters, met = joined([*clusters, *(Cluster([node]) for node in captures)], scores)
    for one in clusters:
        one.is_closed = True
    stacks = [node for node in fresh if _is_native(node) and not node.codes]
    clusters, more = joined([*clusters, *(Cluster([node]) for node in stacks)], scores)
    return attach(clusters, [node for node in fresh if not _is_native(node)]), [*met, *more]


def _bridged(clusters: list[Cluster], scores: Scores) -> list[tuple[Cluster, Cluster]]:
    """Groups with ids that one newcomer fits equally well."""
    old = [one for one in clusters if one.identity is not None]
    holder = {node.number: one for one in old for node in one.nodes}
    found = []
    for one in old:
        for node in one.nodes:
            if node.before is not None:
                continue
            others = {holder[number].identity: holder[number] for number in scores.of[node.number] if number in holder}
            found += [(one, to) for to in others.values() if to is not one and _bridges(node, one, to, scores)]
    return found


def _bridges(node: Node, one: Cluster, other: Cluster, scores: Scores) -> bool:
    if not one.fits(other):
        return False
    return all(scores.average(node, group.nodes) >= _SURE for group in (one, other))


def _is_native(node: Node) -> bool:
    return bool(node.chain or node.period)


def _described(one: Cluster, scores: Scores) -> KeyGroup:
    native = [node for node in one.nodes if _is_native(node)]
    fit = {}
    for node in one.nodes:
        value = scores.average(node, native) if _is_native(node) else (0.5 if native else 1.0)
        fit.update(dict.fromkeys(node.keys, round(value, 3)))
    return KeyGroup(
        id=one.identity,
        keys=tuple(sorted(fit)),
        names=common_names(native),
        why=reasons(one.nodes, native),
        fit=dict(sorted(fit.items())),
    )


def _suggested(met: list[tuple[Cluster, Cluster]]) -> tuple[tuple[str, str, str], ...]:
    found = {}
    for a, b in met:
        if a.identity is not None and b.identity is not None:
            first, second = sorted((a, b), key=lambda one: one.first)
            found[first.identity or "", second.identity or ""] = evidence(first.nodes, second.nodes)
    return tuple((first, second, said) for (first, second), said in sorted(found.items()))
