"""``--ray``: files are read on the machines of a Ray cluster, by parts.

A worker writes the rows of its part to a file whose name is derived from the part, and returns its path only: a part
that is lost with its worker is done again, and one that was done twice is there once. The files of the part and the
folder of rows have to be at the same path on all machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from necropsy import ray_cluster
from necropsy.errors import NecropsyError
from necropsy.triage.parts import KILLED, SIZE, Part, ReadPart, UnreadFile, unpacked
from necropsy.triage.store import FileRead

_AT_ONCE = 4
"""Parts for each CPU that are given to the cluster ahead."""
_RETRIES = 2
"""How often Ray does a part again by itself."""
_OLD_S = 86_400.0
"""Seconds after which the rows of a run that has not come back are removed."""
_SUFFIX = ".rows"


def read_parts(
    work: Sequence[UnreadFile], read: ReadPart, address: str, folder: Path, jobs: int | None = None
) -> Iterator[tuple[FileRead, ...]]:
    """What was read of each part, in the order in which they are done. Rows are removed when the next are asked for.

    ``folder``: for the rows, in a place that all machines have. ``jobs``: how many parts are read at a time, by default
    as many as the cluster has CPUs.

    Raises NecropsyError where there is no Ray, no cluster, or a machine cannot read or write there.
    """
    _make(folder)
    try:
        with ray_cluster.connected(address, jobs) as ray:
            cpus = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
            task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_write)
            yield from _spread(ray, task, _parts(work, cpus), read, folder, cpus)
    finally:
        _clean(folder)


def _parts(work: Sequence[UnreadFile], cpus: int) -> list[Part]:
    size = max(1, min(SIZE, -(-len(work) // cpus)))
    return [tuple(work[at : at + size]) for at in range(0, len(work), size)]


def _spread(  # noqa: PLR0917 - all of it is needed
    ray: Any, task: Any, waiting: list[Part], read: ReadPart, folder: Path, cpus: int
) -> Iterator[tuple[FileRead, ...]]:
    waiting.reverse()
    running: dict[Any, Part] = {}
    while waiting or running:
        while waiting and len(running) < _AT_ONCE * cpus:
            part = waiting.pop()
            running[task.remote(read, part, str(folder / name_of(part)))] = part
        for done in ray.wait(list(running), num_returns=1)[0]:
            part = running.pop(done)
            path = folder / name_of(part)
            try:
                ray.get(done)
                rows = unpacked(path.read_bytes())
            except ray.exceptions.RayTaskError as error:
                said = str(error.cause or error).strip().splitlines() or [type(error).__name__]
                raise NecropsyError(f"a machine of the cluster cannot read its part: {said[-1]}") from error
            except ray.exceptions.RayError:
                # Its worker has died each time: over one of these files.
                waiting += [half for half in (part[len(part) // 2 :], part[: len(part) // 2]) if half and half != part]
                if len(part) == 1:
                    yield (FileRead(part[0].file.name, 0, 0, None, (), why=KILLED),)
                continue
            except (OSError, msgspec.MsgspecError) as error:
                raise NecropsyError(
                    f"the rows that a machine of the cluster wrote are not in {folder}: --store has to be in a folder"
                    " that all machines have at the same path"
                ) from error
            yield rows
            path.unlink(missing_ok=True)


def _write(read: ReadPart, part: Part, name: str) -> str:
    """Read a part on a machine of the cluster, unless that has been done; where its rows are."""
    path = Path(name)
    if not path.exists():
        rows = read(part)
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        try:
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(rows)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return name


def name_of(part: Part) -> str:
    """The name of the file of a part's rows: the same for the same files in the same state."""
    digest = hashlib.sha256(msgspec.json.encode([(one.file.name, one.file.size, one.file.mtime_ns) for one in part]))
    return f"{digest.hexdigest()[:32]}{_SUFFIX}"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NecropsyError(f"cannot make {folder}: {error.strerror or error}") from error


def _clean(folder: Path) -> None:
    """Remove rows that nobody came back for, and the folder if nobody uses it."""
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            if _SUFFIX in one.name and time.time() - one.stat().st_mtime > _OLD_S:
                one.unlink()
        folder.rmdir()
