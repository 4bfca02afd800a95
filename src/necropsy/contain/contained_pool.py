"""``Contained``: a pool of workers for many calls, and for many records of which some crash."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from necropsy.contain.batches import Batch, Quarantined
from necropsy.contain.pool import Call, Pool, positive

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")
R = TypeVar("R")

_LARGEST = 16_384
_ENOUGH_S = 0.05
"""A batch that takes less is followed by larger ones."""


class Contained:
    """A pool of worker processes, in which a crash costs one call and not the pool. Use it in a ``with`` statement.

    Args:
        workers: how many calls run at once; by default, the number of CPUs.
        timeout: seconds for a call, or for a record of ``map``.
        memory: bytes of address space that a call, or a batch of records, may take over what its worker has already.
        imports: modules that workers import when they start.

    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout: float | None = None,
        memory: int | None = None,
        imports: Iterable[str] = (),
    ) -> None:
        positive(workers=workers, timeout=timeout, memory=memory)
        self._pool = Pool(workers, (imports,) if isinstance(imports, str) else tuple(imports))
        self._threads = ThreadPoolExecutor(self._pool.workers, thread_name_prefix="necropsy-contain")
        self._timeout, self._memory = timeout, memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._pool.closed = True
            self._pool.interrupt()
        self.close()

    def close(self) -> None:
        """Wait for the calls that run, drop those that have not begun, and end the workers."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()

    def call(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Run the function in a worker, and return what it returns.

        Raises:
            Crashed: its process died.
            TimedOut: it did not return in time.
            TypeError: something cannot be pickled.

        """
        result: R = Call(function, args, kwargs, timeout=self._timeout, memory=self._memory).run(self._pool)
        return result

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """The same as ``call``, as a future."""
        return self._threads.submit(self.call, function, *args, **kwargs)

    def map(
        self,
        function: Callable[[T], R],
        records: Iterable[T],
        *,
        errors: Literal["raise", "quarantine", "return"] = "raise",
        quarantine: list[Quarantined] | None = None,
    ) -> Iterator[Any]:
        """The result of the function for each record, in order; ``records`` may be endless.

        Records are sent in batches. Where a batch dies, the record that was being worked at is run once more, alone in
        a new worker, and is blamed only if it crashes again. Where it does not, its result is used, and bisection looks
        for an earlier record of the batch that makes it crash; a ``RuntimeWarning`` names that one, or says that the
        crash is not repeatable. So records are run several times after a crash.

        Args:
            function: called with one record at a time.
            records: what it is called with.
            errors: what becomes of a record that crashes or raises. ``raise``: the exception is raised in its place.
                ``quarantine``: the record has no result, and a ``Quarantined`` is appended to the list ``quarantine``.
                ``return``: the exception is the record's result.
            quarantine: the list, in order of the records.

        Raises:
            ValueError: ``errors`` is none of these, or ``quarantine`` is given without it or missing with it.

        """
        if errors not in {"raise", "quarantine", "return"}:
            raise ValueError(f"errors is 'raise', 'quarantine' or 'return', not {errors!r}")
        if (errors == "quarantine") != (quarantine is not None):
            raise ValueError("errors='quarantine' and quarantine=[] belong together")
        return self._mapped(function, records, errors, quarantine if quarantine is not None else [])

    def _mapped(
        self, function: Callable[[T], R], records: Iterable[T], errors: str, quarantine: list[Quarantined]
    ) -> Iterator[Any]:
        source = iter(records)
        window: deque[tuple[Future[Batch], Batch]] = deque()
        start, size = 0, 1
        try:
            while True:
                while len(window) < 2 * self._pool.workers and (part := list(itertools.islice(source, size))):
                    batch = Batch(function, part, start, timeout=self._timeout, memory=self._memory)
                    window.append((self._threads.submit(batch.run, self._pool), batch))
                    start += len(part)
                if not window:
                    return
                done = window.popleft()[0].result()
                if done.seconds < _ENOUGH_S and self._timeout is None:
                    size = min(2 * size, _LARGEST)
                for place, result in enumerate(done.results):
                    error = done.errors.get(place)
                    if error is None or errors == "return":
                        yield result if error is None else error
                    elif errors == "raise":
                        raise error  # noqa: TRY301 - its place is here
                    else:
                        quarantine.append(Quarantined(done.start + place, done.records[place], error))
        except BaseException:
            for future, batch in window:
                batch.cancelled = True
                future.cancel()
            raise
