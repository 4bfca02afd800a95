"""Spreads the reading of many files over processes, by parts that are small enough to be done again."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

import msgspec

from necropsy.errors import NecropsyError
from necropsy.triage.store import FileRead
from necropsy.triage.walk import FoundFile

SIZE = 1000
"""Files of a part at most."""
_SMALL = 50
"""Files for which a second process is not worth its start."""
_FEW = 16
"""Parts for each process, so that all end at about the same time."""
KILLED = "reading it ended the process that read it"


class UnreadFile(msgspec.Struct, frozen=True, gc=False):
    """A file to read; ``known_hash`` and ``known_size``: of its contents when it was read before."""

    file: FoundFile
    known_hash: str | None = None
    known_size: int | None = None


Part = tuple[UnreadFile, ...]
ReadPart = Callable[[Part], bytes]
"""What a process does with a part: ``packed`` of what it read. It has to be a function of a module."""


def packed(read: Sequence[FileRead]) -> bytes:
    """What was read of a part, to be sent or kept."""
    return msgspec.msgpack.encode(read)


def unpacked(data: bytes) -> tuple[FileRead, ...]:
    """The same back; raises ``msgspec.MsgspecError`` where it is damaged."""
    return _DECODER.decode(data)


_DECODER = msgspec.msgpack.Decoder(tuple[FileRead, ...])


def parts_of(work: Sequence[UnreadFile], jobs: int) -> list[Part]:
    """``work`` in parts, in its order."""
    size = max(1, min(SIZE, -(-len(work) // (jobs * _FEW))))
    return [tuple(work[at : at + size]) for at in range(0, len(work), size)]


def wanted_jobs(count: int) -> int:
    """How many processes are worth their start for ``count`` files."""
    return max(1, min(_cpus(), count // _SMALL))


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_parts(work: Sequence[UnreadFile], read: ReadPart, jobs: int) -> Iterator[tuple[FileRead, ...]]:
    """What was read of each part, in the order in which they are done. With one job it is done in this process."""
    if jobs == 1:
        for part in parts_of(work, 1):
            yield unpacked(read(part))
        return
    waiting = parts_of(work, jobs)[::-1]
    _try()
    while waiting:
        left = yield from _pooled(waiting, read, jobs)
        if left is None:
            return
        # A worker has died, and nobody says over which of the parts that were being read.
        waiting = left.waiting
        for part in left.unfinished:
            if len(part) > 1:
                waiting += (part[len(part) // 2 :], part[: len(part) // 2])
            else:
                yield from _alone(part, read)


class _Left(msgspec.Struct):
    """What a pool that broke has not done."""

    unfinished: list[Part]
    waiting: list[Part]


def _pooled(waiting: list[Part], read: ReadPart, jobs: int) -> Generator[tuple[FileRead, ...], None, _Left | None]:
    """``waiting`` is emptied from its end. What is left where a worker died; else None."""
    running: dict[Future[bytes], Part] = {}
    with _pool(jobs) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < 2 * jobs:
                    running[pool.submit(read, waiting[-1])] = waiting[-1]
                    waiting.pop()
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    result = unpacked(done.result())
                    del running[done]
                    yield result
        except BrokenProcessPool:
            return _Left(list(running.values()), waiting)
        finally:
            for one in running:
                one.cancel()
    return None


def _alone(part: Part, read: ReadPart) -> Iterator[tuple[FileRead, ...]]:
    try:
        with _pool(1) as pool:
            yield unpacked(pool.submit(read, part).result())
    except BrokenProcessPool:
        yield tuple(FileRead(one.file.name, 0, 0, None, (), why=KILLED) for one in part)


def _try() -> None:
    """A worker that cannot even start would be taken for one that each file kills. Raises ``NecropsyError``."""
    try:
        with _pool(1) as pool:
            pool.submit(os.getpid).result()
    except (BrokenProcessPool, OSError) as error:
        failed = NecropsyError("no process could be started to read files")
        guard = "if __name__ == '__main__':"
        failed.hint = f"a program that calls necropsy.triage with jobs needs the guard `{guard}`; jobs=1 needs none"
        raise failed from error


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Not forked: another thread may hold a lock, which nobody would release in the child.
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    """Ctrl-C goes to every process of the terminal; this one is ended by its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
