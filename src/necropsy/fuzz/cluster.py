"""``necropsy fuzz --ray ADDRESS``: the processes that run campaigns are on the machines of a Ray cluster.

Each process has an actor, and ends with it. If an actor is lost, another one runs its campaign again. necropsy must be
installed on the machines, in the same version.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from necropsy import ray_cluster, serialize
from necropsy.errors import NecropsyError
from necropsy.fuzz import test_writer
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.op_campaigns import Options, Watch
from necropsy.fuzz.opened_target import read_target
from necropsy.fuzz.recorded_calls import Recorded
from necropsy.fuzz.slot import Slot, SlotLostError, Unit
from necropsy.model import Document
from necropsy.temporary_folders import TemporaryFolder

_LOOK_S = 0.5
_PREFIX = "necropsy-cluster-"


@dataclass(frozen=True)
class Ran:
    """What a campaign on another machine has left: its document, and the tests that it wrote, by their paths there."""

    document: bytes
    interrupted: bool
    tests: dict[str, str]
    library: str | None
    """Where the library is there."""


class Worker:
    """The actor: it holds the process on its machine."""

    def __init__(self, target: str, options: Options, folder: str, library: bytes | None) -> None:
        """Start the process, in this folder if the machine has it.

        ``library``: the contents of the target, for a machine that does not have it.
        """
        with contextlib.suppress(OSError):
            os.chdir(folder)
        self._folder = TemporaryFolder(_PREFIX)
        self._library: Path | None = None
        if library is not None:
            self._library = Path(target).resolve()
            if not _is_there(self._library, library):
                self._library = self._folder.path / Path(target).name
                self._library.write_bytes(library)
            target = str(self._library)
        self._tests = self._folder.path / "tests"
        self._slot = Slot(target, replace(options, tests=self._tests, command=()))
        self._said = ""

    def ops(self) -> tuple[OpDefinition, ...]:
        """Wait until the target is loaded."""
        return self._slot.ops()

    def run(self, unit: Unit, first: Recorded) -> Ran:
        """Run a campaign."""
        document, interrupted = self._slot.run(unit, first, self._hear)
        tests = {str(one): one.read_text(encoding="utf-8") for one in self._tests.glob("*.py")}
        for one in tests:
            Path(one).unlink()
        library = str(self._library) if self._library is not None else None
        return Ran(serialize.dumps(document), interrupted, tests, library)

    def _hear(self, text: str) -> None:
        self._said = text

    def said(self) -> str:
        """How far it is."""
        return self._said

    def interrupt(self) -> None:
        """End the campaign in order."""
        self._slot.interrupt()

    def close(self) -> None:
        """End the process."""
        self._slot.close()
        self._folder.close()


def _is_there(path: Path, data: bytes) -> bool:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest()
    return False


class RemoteSlot:
    """A process on another machine, as a slot."""

    def __init__(self, ray: Any, target: str, options: Options) -> None:
        """Start it."""
        self._ray, self._tests = ray, options.tests
        source = read_target(target).source
        self._place = source.library or Path(source.module or "")
        library = source.library.read_bytes() if source.library is not None else None
        here = options.python == str(Path(sys.executable).absolute())
        actor = ray.remote(num_cpus=1, max_concurrency=3)(_NodeWorker if here else Worker)
        self._actor = actor.remote(target, options, str(Path.cwd()), library)

    def ops(self) -> tuple[OpDefinition, ...]:
        """Wait until the target is loaded."""
        ops: tuple[OpDefinition, ...] = self._get(self._actor.ops.remote())
        return ops

    def run(self, unit: Unit, first: Recorded, watch: Watch) -> tuple[Document, bool]:
        """Run a campaign: its document, and whether it was interrupted."""
        running = self._actor.run.remote(unit, first)
        while not self._ray.wait([running], timeout=_LOOK_S)[0]:
            if said := self._get(self._actor.said.remote()):
                watch(said)
        ran: Ran = self._get(running)
        return self._brought_here(ran), ran.interrupted

    def _brought_here(self, ran: Ran) -> Document:
        """The document, with its tests in the folder for tests on this machine."""
        text = ran.document.decode()
        for old, test in ran.tests.items():
            there = Path(ran.library) if ran.library is not None else self._place
            new = test_writer.moved(test, there, Path(old), self._place, self._tests)
            text = text.replace(_in_json(old), _in_json(str(new)))
        document = serialize.loads(text.encode())
        if document.fuzz is None:
            return document
        return msgspec.structs.replace(document, fuzz=_with_relative_tests(document.fuzz))

    def _get(self, reference: Any) -> Any:
        """Raises ``SlotLostError`` if the actor or its machine is lost, and what the actor raised."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, NecropsyError) else NecropsyError(str(error)) from error
        except self._ray.exceptions.RayError as error:
            raise SlotLostError(f"an actor, which ran campaigns, was lost ({type(error).__name__})") from error

    def interrupt(self) -> None:
        """End the campaign in order."""
        self._actor.interrupt.remote()

    def close(self) -> None:
        """End the process, and the actor."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.close.remote(), timeout=_LOOK_S * 20)
        self._ray.kill(self._actor)


class _NodeWorker(Worker):
    """The target is loaded by the interpreter that the machine's Ray runs on."""

    def __init__(self, target: str, options: Options, folder: str, library: bytes | None) -> None:
        super().__init__(target, replace(options, python=sys.executable), folder, library)


def _in_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _with_relative_tests(fuzz: Any) -> Any:
    found = []
    for one in fuzz.findings:
        test = Path(one.test) if one.test is not None else None
        if test is not None and test.is_relative_to(Path.cwd()):
            one = msgspec.structs.replace(one, test=str(test.relative_to(Path.cwd())))  # noqa: PLW2901
        found.append(one)
    return msgspec.structs.replace(fuzz, findings=tuple(found))


@contextlib.contextmanager
def connected(address: str) -> Iterator[tuple[Callable[[str, Options], RemoteSlot], int]]:
    """Connect to a cluster: what starts a slot there, and how many CPUs it has.

    Raises:
        NecropsyError: Ray is not installed, or there is no cluster.

    """
    with ray_cluster.connected(address) as ray:
        cpus = int(ray.cluster_resources().get("CPU", 1))
        yield lambda target, options: RemoteSlot(ray, target, options), max(1, cpus)
