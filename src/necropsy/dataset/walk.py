"""Walks over a dataset, one batch at a time, comparing each element with the specification and value bounds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from necropsy.dataset import spec as specs
from necropsy.dataset.columns import Column
from necropsy.dataset.comparing import compare, is_smaller_batch
from necropsy.dataset.journal import CHECKING, FETCHING
from necropsy.dataset.leaves import Leaf, leaves_of, of_array
from necropsy.dataset.loading import raised
from necropsy.dataset.sources import Arrays, NotADatasetError, Rows, Source, TensorFlow
from necropsy.dataset.spec import Sign, Want, sign_of
from necropsy.dataset.values import Bounds

_IN_A_ROW = 10
"""Consecutive exceptions that end the walk, because a source that always raises never ends."""


_TELL = 64
"""Elements between progress reports."""


class Walk:
    """One walk over ``source``.

    ``ranges``: bounds of values by path. ``limit``: elements; ``seconds``: time limit. ``journal``: gets the position.
    ``memory``: bytes the process may use; ``spec``: the caller's specification, if any.
    """

    def __init__(
        self,
        source: Source,
        spec: list[Want] | None = None,
        ranges: dict[str, Bounds] | None = None,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        journal: Any,
        memory: int | None = None,
        snapshot: Any = None,
    ) -> None:
        self.source, self.given, self.ranges = source, spec, dict(ranges or {})
        self.limit, self.journal, self.memory = limit, journal, memory
        self._started = time.monotonic()
        self._deadline = None if seconds is None else self._started + seconds
        self._snapshot = snapshot
        self._reset()

    def _reset(self) -> None:
        self.columns: dict[str, Column] = {}
        self.wants: dict[str, Want] = {}
        self.index = 0
        self.bytes = 0
        self.largest = 0
        self.largest_index: int | None = None
        self.raised: dict[str, Any] | None = None
        self._sample: list[tuple[int, list[Sign]]] | None = []
        self._paths: list[str] = []
        self._path_set: set[str] = set()
        self._together: list[str] | None = None
        self._pending: tuple[list[Leaf], int] | None = None
        self._in_a_row = 0
        self.origin = "inferred"
        declared = self.source.spec
        if self.given is not None:
            self._accept(self.given, "given")
        elif declared is not None and all(want.shape is not None or want.kind != "dense" for want in declared):
            self._accept(declared, "declared")

    def run(self) -> dict[str, Any]:
        """Walk and return plain data; raises ``NotADatasetError`` (no or endless elements, unknown range path)."""
        if isinstance(self.source, TensorFlow) and self.source.infinite and self.limit is None:
            raise NotADatasetError("the dataset never ends (repeat()): give a limit")
        ended = self._walk()
        if ended is None:
            # An exception took a whole batch with it: again, one by one, for the exact element and exact counts.
            first = self.raised
            self.source.one_by_one()
            self._reset()
            ended = self._walk() or "error"
            if self.raised is None:
                self.raised = first
        if not self.index and self.raised is None and ended == "end":
            raise NotADatasetError("the dataset has no elements")
        if self._sample is not None:
            self._infer()
        self._last(final=True)
        return self.report(ended)

    def _walk(self) -> str | None:
        """How the walk ended; None if it must be repeated element by element."""
        journal, source, limit = self.journal, self.source, self.limit
        step = source.step
        journal.total = min([one for one in (source.declared, limit) if one is not None], default=0)
        elements = None
        while True:
            if limit is not None and self.index >= limit:
                return "end" if source.declared == self.index else "limit"
            if self._deadline is not None and time.monotonic() > self._deadline:
                return "timeout"
            journal.note(self.index, step, FETCHING)
            try:
                if elements is None:
                    elements = source.start(limit)
                item = next(elements)
            except StopIteration:
                return "end"
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's pipeline raises
                self._note_exception(error)
                if step > 1:
                    return None
                if elements is None or not source.resumes or self._in_a_row >= _IN_A_ROW:
                    return "error"
                self.index += 1
                continue
            self._in_a_row = 0
            journal.note(self.index, step, CHECKING)
            if step > 1 or isinstance(item, Rows):
                self._batch(item)
            else:
                self._element(leaves_of(item), self.index)
                self.index += 1
            del item
            if step > 1 or self.index % _TELL == 0:
                self._tell()

    def _tell(self) -> None:
        journal = self.journal
        journal.bytes = float(self.bytes)
        wrong = sum(len(column.faults) for column in self.columns.values()) + (self.raised is not None)
        if wrong != journal.wrong:
            journal.wrong = wrong
            if self._snapshot is not None:
                self._snapshot(self.report("crash"))

    def _note_exception(self, error: BaseException) -> None:
        self._in_a_row += 1
        if self.raised is not None:
            self.raised["times"] += 1
            return
        self.raised = raised(error, self.index)

    # ---------------------------------------------------------------- elements

    def _batch(self, item: Any) -> None:
        """Several elements stacked by the source, with the declared shapes."""
        if isinstance(item, Rows):
            leaves = [of_array(path, array) for path, array in item]
        else:
            leaves = [Leaf(leaf.path, leaf.kind, leaf.dtype, leaf.shape, leaf.array) for leaf in leaves_of(item)]
        rows = leaves[0].shape[0] if leaves and leaves[0].shape else 0
        size = 0
        for leaf in leaves:
            column = self._column(leaf.path)
            column.elements += rows
            size += leaf.array.nbytes if leaf.array is not None else 0
            if leaf.array is not None:
                column.add_batch(leaf.array, self.index)
            form = leaf._replace(shape=(leaf.shape or (0,))[1:])
            if (form.dtype, form.shape) != (column.dtype, column.shape) and compare(column, form, self.index, rows):
                column.dtype, column.shape = form.dtype, form.shape
        self._weigh(size // max(1, rows), self.index)
        self.bytes += size
        self.index += rows

    def _element(self, leaves: list[Leaf], index: int) -> None:
        self._last()
        if self._sample is not None:
            self._sample.append((index, [sign_of(leaf) for leaf in leaves]))
            if len(self._sample) == specs.SAMPLE:
                self._infer()
        elif not self._judge(leaves, index):
            # Perhaps the last batch, which may be smaller: the next element tells, or that there is none.
            self._pending = ([leaf._replace(array=None) for leaf in leaves], index)
        size = 0
        for leaf in leaves:
            column = self.columns.get(leaf.path) or self._column(leaf.path)
            column.elements += 1
            if leaf.array is not None:
                size += leaf.array.nbytes
                column.add(leaf.array, index)
            for problem in leaf.problems:
                column.fault(problem.kind, index, problem.value, position=problem.position, expected=problem.expected)
        self.bytes += size
        if size > self.largest:
            self._weigh(size, index)

    def _weigh(self, size: int, index: int) -> None:
        if size > self.largest:
            self.largest, self.largest_index = size, index

    def _column(self, path: str) -> Column:
        column = self.columns.get(path)
        if column is None:
            column = self.columns[path] = Column(path, self.ranges.get(path, (None, None)))
            column.want = self.wants.get(path)
        return column

    # ---------------------------------------------------------------- what they should look like

    def _accept(self, wants: Sequence[Want], origin: str) -> None:
        self.origin, self._sample = origin, None
        for want in wants:
            bounds = self.ranges.get(want.path)
            one = want.bounded(bounds)
            self.ranges.setdefault(want.path, (one.low, one.high))
            self.wants[want.path] = one
            column = self._column(want.path)
            column.want, column.bounds = one, (one.low, one.high)
        self._paths = [want.path for want in wants]
        self._path_set = set(self._paths)
        unknown = sorted(set(self.ranges) - self._path_set)
        if unknown:
            known = ", ".join(path or "''" for path in self._paths[:20])
            raise NotADatasetError(f"ranges names {unknown[0]!r}, which no element has; there is: {known}")

    def _infer(self) -> None:
        """Called after the first elements: what they share, and which of them differ."""
        sample, self._sample = self._sample or [], None
        signs = [one for _, one in sample]
        self._accept(
            specs.infer(signs, batches=self.source.batches, declared=self.source.spec),
            "inferred" if self.source.spec is None else "declared",
        )
        self._together = self._of_one_size(signs)
        for place, (index, one) in enumerate(sample, 1):
            leaves = [Leaf(*sign) for sign in one]
            if not self._judge(leaves, index, last=place == len(sample)):
                self._pending = (leaves, index)

    def _of_one_size(self, sample: Sequence[Sequence[Sign]]) -> list[str]:
        """Paths whose first sizes vary together: almost always equal within one element, but not across elements."""
        paths = [
            path for path, want in self.wants.items() if want.kind == "dense" and want.shape and want.shape[0] is None
        ]
        if self.source.batches:
            return [path for path, want in self.wants.items() if want.kind in {"dense", "string"} and want.shape]
        sizes = []
        for signs in sample:
            by_path = {sign.path: sign.shape for sign in signs}
            first = [(by_path.get(path) or (None,))[0] for path in paths]
            sizes.append(first)
        agreed = [first[0] for first in sizes if len(set(first)) == 1]
        enough = len(agreed) >= 3 and len(set(agreed)) >= 3 and len(agreed) >= 0.9 * len(sizes)
        return paths if len(paths) > 1 and enough else []

    def _judge(self, leaves: Sequence[Leaf], index: int, *, last: bool = True) -> bool:
        """False if the comparison is postponed, see ``_last``."""
        if [leaf.path for leaf in leaves] != self._paths and not self._same_paths(leaves, index):
            return True
        wrong = [leaf for leaf in leaves if not self._known(leaf)]
        if wrong:
            if self.origin == "inferred" and last and is_smaller_batch(leaves, self.wants):
                return False
            for leaf in wrong:
                column = self._column(leaf.path)
                if compare(column, leaf, index, 1):
                    column.dtype, column.shape = leaf.dtype, leaf.shape
        self._compare_sizes(leaves, index)
        return True

    def _known(self, leaf: Leaf) -> bool:
        column = self.columns.get(leaf.path)
        return column is not None and leaf.shape == column.shape and leaf.dtype == column.dtype

    def _same_paths(self, leaves: Sequence[Leaf], index: int) -> bool:
        here = {leaf.path for leaf in leaves}
        if here == self._path_set:
            return True  # the keys of a dict have no order
        missing = [path for path in self._paths if path not in here]
        extra = [leaf.path for leaf in leaves if leaf.path not in self._path_set]
        parts = [
            f"{', '.join(_named(one) for one in paths[:5])} {what}"
            for paths, what in ((missing, "missing"), (extra, "not expected"))
            if paths
        ]
        self._column((missing or extra)[0]).fault("structure", index, " and ".join(parts))
        return False

    def _last(self, *, final: bool = False) -> None:
        """A postponed element: at the end it was a smaller last batch, otherwise it differs."""
        if self._pending is None:
            return
        leaves, index = self._pending
        self._pending = None
        if final:
            return
        for leaf in leaves:
            compare(self._column(leaf.path), leaf, index, 1)

    def _compare_sizes(self, leaves: Iterable[Leaf], index: int) -> None:
        if self._together is None:
            self._together = self._of_one_size([]) if self.source.batches else []
        if not self._together:
            return
        group = set(self._together)
        sizes = [(leaf.path, leaf.shape[0]) for leaf in leaves if leaf.path in group and leaf.shape]
        if len({size for _, size in sizes}) > 1:
            first = sizes[0]
            path, size = next(one for one in sizes if one[1] != first[1])
            column = self._column(path)
            column.fault("inconsistent", index, str(size), expected=f"{first[1]}, as at {first[0] or 'the top'}")

    # ---------------------------------------------------------------- the result

    def report(self, ended: str) -> dict[str, Any]:
        """Plain data, in the shape of ``necropsy.model.Dataset``."""
        source = self.source
        if isinstance(source, Arrays):
            for (path, _), length in zip(source.arrays, source.lengths):
                if length != source.declared:
                    column = self._column(path)
                    column.faults.pop("inconsistent", None)
                    column.fault(
                        "inconsistent",
                        source.declared or 0,
                        f"{length} elements",
                        expected=f"{source.declared}, as the shortest has",
                        elements=length - (source.declared or 0),
                    )
        order = {path: place for place, path in enumerate(self._paths)}
        columns = sorted(self.columns.values(), key=lambda one: order.get(one.path, len(order)))
        return {
            "type": source.name,
            "columns": [column.report() for column in columns],
            "spec": self.origin,
            "elements": self.index,
            "declared": source.declared,
            "batches": source.batches,
            "ended": ended,
            "bytes": self.bytes,
            "seconds": round(time.monotonic() - self._started, 3),
            "largest": self.largest,
            "largest_index": self.largest_index,
            "memory": self.memory,
            "raised": self.raised,
        }


def _named(path: str) -> str:
    return path or "an array"
