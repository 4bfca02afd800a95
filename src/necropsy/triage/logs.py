"""Texts without native frames join a group only where one alone is left."""

from __future__ import annotations

from necropsy.triage.joining import Cluster
from necropsy.triage.messages import contradict, tells_a_bug
from necropsy.triage.nodes import Node
from necropsy.triage.similarity import same_end


def attach(clusters: list[Cluster], texts: list[Node]) -> list[Cluster]:
    """Let each text join its only candidate; those that have none, or more, are groups by themselves.

    Candidates are looked for among the groups as they are: a text that has joined does not decide about the next one.
    Texts alone are one group only if all that they say is the same.
    """
    by_line: dict[str, list[Cluster]] = {}
    by_text: dict[str, list[Cluster]] = {}
    alone: dict[object, Cluster] = {}
    for cluster in clusters:
        if not any(node.chain or node.period for node in cluster.nodes):
            for node in cluster.nodes:
                alone.setdefault(_all_said(node), cluster)
            continue
        for line in {line for node in cluster.nodes for line in node.python_lines}:
            by_line.setdefault(line, []).append(cluster)
        for text in cluster.texts - {None}:
            by_text.setdefault(str(text), []).append(cluster)
    chosen = [(node, _candidate(node, by_line, by_text)) for node in texts if node.before is None]
    fresh: list[Cluster] = []
    for node, candidate in chosen:
        found = candidate if candidate is not None else alone.get(_all_said(node))
        if found is None or node.number in found.apart:
            found = alone[_all_said(node)] = Cluster([node])
            fresh.append(found)
        else:
            found.take(Cluster([node]))
    return [*clusters, *fresh]


def _all_said(node: Node) -> object:
    route = min(node.routes) if node.routes else ()
    return node.family, node.end, node.text, node.verdict, route, frozenset(node.python_lines)


def _candidate(node: Node, by_line: dict[str, list[Cluster]], by_text: dict[str, list[Cluster]]) -> Cluster | None:
    if node.python_lines:
        found = [
            one for line in node.python_lines for one in by_line.get(line, ()) if _may_be(node, one) and _led(node, one)
        ]
    elif node.text is not None and tells_a_bug(node.text):
        found = [one for one in by_text.get(node.text, ()) if _may_be(node, one)]
    else:
        return None
    if node.text is not None and len(found) > 1:
        found = [one for one in found if node.text in one.texts]
    return found[0] if len(found) == 1 else None


def _may_be(node: Node, cluster: Cluster) -> bool:
    if not all(same_end(node, one) for one in cluster.ends.values()):
        return False
    if node.number in cluster.apart:
        return False
    return not any(contradict(node.text, text) for text in cluster.texts)


def _led(node: Node, cluster: Cluster) -> bool:
    """The same Python functions led there."""
    routes = {route for one in cluster.nodes for route in one.routes}
    return any(route[: len(other)] == other[: len(route)] for route in node.routes or {()} for other in routes)
