"""Call paths in a graph of functions: circles of calls, and how deep the stack gets. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from necropsy.formats.call_graph import FunctionCalls


@dataclass
class CallDepths:
    """The part of a call graph reachable from given functions.

    ``frame(function)``: its stack bytes; ``calls(function)``: what it calls; functions are numbers. Beyond ``most``
    functions, unvisited ones count as indirect calls.
    """

    frame: Callable[[int], int]
    calls: Callable[[int], FunctionCalls]
    most: int
    known: dict[int, FunctionCalls] = field(default_factory=dict)
    is_cut: bool = False
    """There were more than ``most``."""

    def reach(self, roots: Iterable[int]) -> None:
        """Look at all that can be called from ``roots``, functions whose address is taken included."""
        waiting = deque(roots)
        while waiting:
            one = waiting.popleft()
            if one in self.known:
                continue
            if len(self.known) >= self.most:
                self.is_cut = True
                return
            found = self.known[one] = self.calls(one)
            waiting.extend((*found.called, *found.jumped, *found.taken))

    def below(self, root: int) -> list[int]:
        """``root`` and every function that it reaches by direct calls, in the order of distance."""
        seen, waiting = {root: None}, deque([root])
        while waiting:
            found = self.known.get(waiting.popleft(), FunctionCalls())
            for one in (*found.called, *found.jumped):
                if one not in seen:
                    seen[one] = None
                    waiting.append(one)
        return list(seen)

    def circles(self) -> list[tuple[int, ...]]:
        """Of each set of functions that call each other: the shortest circle, with at least one call in it."""
        found = []
        for members in self._components:
            inside = set(members)
            shortest: tuple[int, ...] | None = None
            for one in sorted(members):
                # From each call inside on, the shortest way back.
                for target in self.known[one].called:
                    way = self._way(target, one, inside) if target in inside else None
                    if way is not None and (shortest is None or len(way) < len(shortest)):
                        shortest = way
                if shortest is not None and len(shortest) == 1:
                    break
            if shortest is not None:
                first = shortest.index(min(shortest))
                found.append((*shortest[first:], *shortest[:first]))
        return sorted(found)

    def turn(self, circle: Sequence[int]) -> int:
        """Bytes that one turn of ``circle`` takes: the frames of the functions that go on by a call."""
        return sum(
            self.frame(one)
            for one, after in zip(circle, (*circle[1:], circle[0]), strict=True)
            if after in self.known[one].called
        )

    def deepest(self, root: int) -> tuple[int, tuple[int, ...]]:
        """The bytes of the deepest path from ``root``, and the functions on it; of a circle, one turn."""
        best: dict[int, tuple[int, int | None]] = {}
        order: list[int] = []
        entered: set[int] = set()
        stack: list[tuple[int, bool]] = [(root, False)]
        while stack:
            one, is_left = stack.pop()
            if is_left:
                order.append(one)
            elif one not in entered:
                entered.add(one)
                stack.append((one, True))
                found = self.known.get(one, FunctionCalls())
                stack += [(each, False) for each in (*found.called, *found.jumped) if each not in entered]
        for one in order:
            found = self.known.get(one, FunctionCalls())
            bytes_, after = self.frame(one), None
            for called in found.called:
                if called in best and self.frame(one) + best[called][0] > bytes_:
                    bytes_, after = self.frame(one) + best[called][0], called
            for jumped in found.jumped:
                if jumped in best and best[jumped][0] > bytes_:
                    bytes_, after = best[jumped][0], jumped
            best[one] = bytes_, after
        path, at = [], root
        while True:
            path.append(at)
            after = best[at][1]
            if after is None:
                return best[root][0], tuple(path)
            at = after

    def _way(self, start: int, end: int, inside: set[int]) -> tuple[int, ...] | None:
        """The shortest path from ``start`` to ``end``, which comes first: a cycle in order."""
        before: dict[int, int] = {}
        waiting = deque([start])
        seen = {start}
        while waiting:
            one = waiting.popleft()
            if one == end:
                way = [one]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return (end, *reversed(way[1:]))
            for each in (*self.known[one].called, *self.known[one].jumped):
                if each in inside and each not in seen:
                    seen.add(each)
                    before[each] = one
                    waiting.append(each)
        return None

    @property
    def _components(self) -> list[list[int]]:
        """Functions that can call each other, by Tarjan's algorithm, including self-recursive ones."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        on_stack: set[int] = set()
        stack: list[int] = []
        found: list[list[int]] = []
        for root in self.known:
            if root in index:
                continue
            work = [(root, iter(self._next(root)))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
            while work:
                one, following = work[-1]
                for each in following:
                    if each not in index:
                        index[each] = low[each] = len(index)
                        stack.append(each)
                        on_stack.add(each)
                        work.append((each, iter(self._next(each))))
                        break
                    if each in on_stack:
                        low[one] = min(low[one], index[each])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[one])
                    if low[one] == index[one]:
                        members = []
                        while True:
                            members.append(stack.pop())
                            on_stack.discard(members[-1])
                            if members[-1] == one:
                                break
                        if len(members) > 1 or one in self._next(one):
                            found.append(members)
        return found

    def _next(self, one: int) -> list[int]:
        found = self.known[one]
        return [each for each in (*found.called, *found.jumped) if each in self.known]
