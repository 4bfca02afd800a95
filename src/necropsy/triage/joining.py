"""Average linkage over nodes: the pair of groups whose members look most alike on average is joined first."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping

from necropsy.triage.messages import contradict
from necropsy.triage.nodes import UNKNOWN, Node
from necropsy.triage.similarity import ENOUGH, Contexts, conflict, same_end, similarity

_POPULAR = 400
"""A function that is innermost in more nodes tells nothing: these pairs are compared only if the caller is the same."""
_COMMON = 100
"""The same of a function that is further out."""
_EXACT = 1e-9


class Cluster:
    """Nodes that are one bug."""

    def __init__(self, nodes: list[Node], identity: str | None = None) -> None:
        self.nodes = nodes
        self.identity = identity
        self.is_closed = identity is not None
        """Joins no other closed one."""
        self.texts = {node.text for node in nodes}
        self.ends = {(node.family, node.end): node for node in nodes}
        self.first = min(node.keys[0] for node in nodes)
        """What orders clusters."""
        self.apart: set[int] = set()
        """Numbers of nodes that must not come in."""

    def fits(self, other: Cluster) -> bool:
        """Nothing forbids that they are one."""
        if any(node.number in other.apart for node in self.nodes):
            return False
        if any(node.number in self.apart for node in other.nodes):
            return False
        if any(contradict(a, b) for a in self.texts for b in other.texts):
            return False
        return all(same_end(a, b) for a in self.ends.values() for b in other.ends.values())

    def take(self, other: Cluster) -> None:
        """Become both."""
        self.nodes = [*self.nodes, *other.nodes]
        self.identity = self.identity or other.identity
        self.is_closed = self.is_closed or other.is_closed
        self.first = min(self.first, other.first)
        self.texts = self.texts | other.texts
        self.ends = {**other.ends, **self.ends}
        self.apart = self.apart | other.apart


class Scores:
    """How alike nodes are: pairs with something in common only."""

    def __init__(self, nodes: list[Node], apart: Mapping[int, set[int]]) -> None:
        self.apart: defaultdict[int, set[int]] = defaultdict(set)
        self.of: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for number, others in apart.items():
            self.apart[number] |= others
        contexts = Contexts(nodes)
        for a, b in _pairs(nodes):
            if conflict(a, b):
                self.apart[a.number].add(b.number)
                self.apart[b.number].add(a.number)
            elif score := similarity(a, b, contexts):
                self.of[a.number][b.number] = self.of[b.number][a.number] = score

    def average(self, node: Node, others: Iterable[Node]) -> float:
        """Of one node with others; 1 where there are none."""
        scores = [self.of[node.number].get(other.number, 0.0) for other in others if other is not node]
        return sum(scores) / len(scores) if scores else 1.0


def _pairs(nodes: list[Node]) -> list[tuple[Node, Node]]:
    """Pairs that have the innermost function, or code, in common."""
    index: defaultdict[object, tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
    for node in nodes:
        heads: list[object] = [(node.end, name) for name in node.period]
        tails: list[object] = []
        if node.chain:
            heads += [(node.end, name) for name, _ in node.chain[:1] if name != UNKNOWN[0]]
            if len(node.chain) > 1:
                heads.append((node.end, node.chain[0][0], node.chain[1][0]))
                heads += [(node.chain[1], line) for line in (*node.python_lines, node.text) if line is not None]
            tails += [(node.end, name) for name, _ in node.chain[1:4]]
        for at in dict.fromkeys(heads):
            index[at][0].append(node)
        for at in dict.fromkeys(tails):
            index[at][1].append(node)
    found: dict[tuple[int, int], tuple[Node, Node]] = {}
    for heads_of, tails_of in index.values():
        if len(heads_of) > _POPULAR:
            continue
        for place, a in enumerate(heads_of):
            for b in (*heads_of[place + 1 :], *(tails_of if len(tails_of) <= _COMMON else ())):
                if a is not b:
                    low, high = (a, b) if a.number < b.number else (b, a)
                    found[low.number, high.number] = (low, high)
    return [found[at] for at in sorted(found)]


Met = tuple[Cluster, Cluster]


def joined(clusters: list[Cluster], scores: Scores) -> tuple[list[Cluster], list[Met]]:
    """Join what looks alike; also the pairs of closed clusters that would have been joined."""
    alive = dict(enumerate(sorted(clusters, key=lambda one: one.first)))
    holder = {node.number: at for at, one in alive.items() for node in one.nodes}
    links: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for at, one in alive.items():
        for node in one.nodes:
            one.apart |= scores.apart[node.number]
            for other, score in scores.of[node.number].items():
                to = holder.get(other)
                if to is not None and to != at:
                    links[at][to] = links[at].get(to, 0.0) + score
    heap: list[tuple[float, str, str, int, int]] = []

    def push(at: int, to: int) -> None:
        a, b = alive[at], alive[to]
        average = links[at][to] / (len(a.nodes) * len(b.nodes))
        if average > ENOUGH - _EXACT:
            average = round(average, 9)  # the order of the sums does not decide
            (first, low), (second, high) = sorted(((a.first, at), (b.first, to)))
            heapq.heappush(heap, (-average, first, second, low, high))

    for at in alive:
        for to in links[at]:
            if at < to:
                push(at, to)
    met: list[Met] = []
    fresh = len(alive)
    while heap:
        _, _, _, at, to = heapq.heappop(heap)
        if at not in alive or to not in alive or not alive[at].fits(alive[to]):
            continue
        if alive[at].is_closed and alive[to].is_closed:
            met.append((alive[at], alive[to]))
            continue
        one = alive.pop(at)
        one.take(alive.pop(to))
        alive[fresh] = one
        for gone in (at, to):
            for other, total in links.pop(gone, {}).items():
                links[other].pop(gone, None)
                if other in alive and other != fresh:
                    links[fresh][other] = links[other][fresh] = links[fresh].get(other, 0.0) + total
        for other in links[fresh]:
            push(fresh, other)
        fresh += 1
    return sorted(alive.values(), key=lambda one: one.first), met
