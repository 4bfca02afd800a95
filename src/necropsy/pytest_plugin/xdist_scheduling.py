"""The schedulers of pytest-xdist up to 3.8, corrected for workers that die.

``loadscope``, ``loadfile`` and ``loadgroup`` run the test that died again, until ``--max-worker-restart`` is spent
(pytest-xdist #1371); they hand out scopes in which nothing is left (#1323), and tests to workers that have not
collected yet; and a worker that gets one last test waits for ever for the next one (#1327). ``each`` fails with a
KeyError when a worker dies in its last test, or another one dies in its place. None of these four can run a test again
(``mark_test_pending``), which pytest-rerunfailures asks for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

_LEAST = 2
"""A worker runs a test once it knows the next one, or that there is none."""


def corrected(scheduler: Any) -> Any:
    """The same scheduler. One that this module does not know is left as it is."""
    for part, needed in (
        (_ByScope, ("assigned_work", "workqueue", "registered_collections", "_reschedule")),
        (_Each, ("node2pending", "node2collection", "_started", "_removed2pending")),
    ):
        if all(hasattr(scheduler, name) for name in needed):
            kind = type(scheduler)
            scheduler.__class__ = type(kind.__name__, (part, kind), {})
            break
    return scheduler


class _ByScope:
    """Comes before the class of a scheduler that hands out scopes."""

    assigned_work: dict[Any, dict[str, dict[str, bool]]]
    registered_collections: dict[Any, list[str]]
    workqueue: OrderedDict[str, dict[str, bool]]
    _split_scope: Callable[[str], str]
    _pending_of: Callable[[dict[str, dict[str, bool]]], int]
    _assign_work_unit: Callable[[Any], None]
    nodes: list[Any]

    def remove_node(self, node: Any) -> str | None:
        """Take the worker out. Returns the test that it died in; what it had not begun is handed out again."""
        workload = self.assigned_work.pop(node)
        died = next((test for unit in workload.values() for test, done in unit.items() if not done), None)
        if died is None:
            return None
        for scope, unit in workload.items():
            if died in unit:
                unit[died] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for other in list(self.assigned_work):
            self._reschedule(other)
        return died

    def mark_test_pending(self, item: str) -> None:
        """Have the test that died run again: after the rest of its scope, if that has been handed out already."""
        scope = self._split_scope(item)
        for node, workload in self.assigned_work.items():
            if scope in workload and not node.shutting_down:
                workload[scope].pop(item, None)
                workload[scope][item] = False
                node.send_runtest_some([self.registered_collections[node].index(item)])
                return
        self.workqueue[scope] = {**self.workqueue.get(scope, {}), item: False}
        self.workqueue.move_to_end(scope, last=False)
        for node in list(self.assigned_work):
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:  # it cannot be told which tests to run
            return
        super()._reschedule(node)  # type: ignore[misc] # of the class that this one is put before
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < _LEAST:
            self._assign_work_unit(node)

    def schedule(self) -> None:
        """Hand out work; a worker with none left gets a message, or it would not run its last test."""
        super().schedule()  # type: ignore[misc] # as above
        if not self.workqueue:
            for node in self.nodes:
                if node in self.registered_collections and not node.shutting_down:
                    node.shutdown()


class _Each:
    """Comes before the class of the scheduler that has every worker run every test."""

    node2pending: dict[Any, list[int]]
    node2collection: dict[Any, list[str]]
    collection_is_completed: bool
    _started: list[Any]
    _removed2pending: dict[Any, list[int]]
    _last_removed: Any

    def remove_node(self, node: Any) -> str | None:
        """Take the worker out. Returns the test that it died in."""
        died: str | None = super().remove_node(node)  # type: ignore[misc] # of the class that this one is put before
        self._last_removed = node
        return died

    def mark_test_pending(self, item: str) -> None:
        """Have the test that the last worker died in run again, by the one that takes its place."""
        node = self._last_removed
        index = self.node2collection[node].index(item)
        self._removed2pending[node] = [index, *self._removed2pending.get(node, ())]

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A worker that takes the place of a dead one may die, too: its tests have to be known."""
        is_late = self.collection_is_completed
        super().add_node_collection(node, collection)  # type: ignore[misc] # as above
        if is_late:
            self.node2collection[node] = list(collection)
            if not self.node2pending[node]:  # the other one died in its last test
                self._started.append(node)
                node.shutdown()

    def schedule(self) -> None:
        """Hand out work to the workers that have collected."""
        waiting = {node: self.node2pending.pop(node) for node in list(self.node2pending) if not self._knows(node)}
        super().schedule()  # type: ignore[misc] # as above
        self.node2pending.update(waiting)

    def _knows(self, node: Any) -> bool:
        return node in self.node2collection
