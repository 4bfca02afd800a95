"""``open``: reads the core of a process that died elsewhere or earlier, with the readers for live processes.

Cores of the kernel, systemd-coredump, apport and gdb, and our own small ones; plain or compressed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from necropsy.capture.linux.core import core_compression
from necropsy.capture.linux.core.core_target import CoreTarget
from necropsy.capture.linux.inspect import crash_builder
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.errors import InputError, NoInputError
from necropsy.formats import elf_core_reader
from necropsy.formats.elf_core_reader import CoreDump
from necropsy.model import Crash, Exit, Gap

MOST_THREADS = 20_000
_HEAD = 64
_KEPT_BY_SYSTEMD = Path("/var/lib/systemd/coredump")
_KEPT_BY_APPORT = (Path("/var/lib/apport/coredump"), Path("/var/crash"))
_PATTERNS = ("core*", "*.core", "*.core.*", "vgcore.*")
"""How cores are called in the folder where a process died: by the kernel's default, by ``%e.core``, by valgrind."""
_MOST_LOOKED_AT = 50


def is_core(path: Path) -> bool:
    """The file is an ELF core, plain or compressed. Never raises."""
    try:
        with _open(path) as file:
            head = file.read(_HEAD)
            if not head.startswith(core_compression.ELF):
                file.seek(0)
                head = core_compression.head(file, _HEAD)
    except (OSError, InputError, NoInputError):
        return False
    return len(head) >= 20 and head[:4] == core_compression.ELF and head[16:18] == b"\x04\x00"


def is_elf(path: Path) -> bool:
    """The file is a program or a library, or a core that is not compressed. Never raises."""
    try:
        with path.open("rb") as file:
            return file.read(4) == core_compression.ELF
    except OSError:
        return False


def newest(folder: Path | None = None) -> Path | None:
    """The newest core that can be found: in ``folder`` (the current one), with systemd-coredump, with apport."""
    newest_first = sorted(_candidates(folder or Path()), key=_written, reverse=True)[:_MOST_LOOKED_AT]
    return next((path for path in newest_first if is_core(path)), None)


def find(pid: int, since: float, folder: Path) -> Path | None:
    """The core of process ``pid``, written since then (seconds since the epoch); in ``folder`` or where cores go."""
    fresh = sorted((one for one in _candidates(folder) if _written(one) >= since), key=_written, reverse=True)
    return next((path for path in fresh[:_MOST_LOOKED_AT] if _process_of(path) == pid), None)


def _process_of(path: Path) -> int | None:
    try:
        with _open(path) as file, _plain(file, path) as plain:
            return _parsed(plain, path)[0].pid
    except (OSError, InputError, NoInputError):
        return None


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def _candidates(folder: Path) -> Iterator[Path]:
    own = ((folder, pattern) for pattern in _PATTERNS)
    for place, pattern in (*own, (_KEPT_BY_SYSTEMD, "core.*"), *((one, "*") for one in _KEPT_BY_APPORT)):
        with contextlib.suppress(OSError):
            yield from place.glob(pattern)


def read(path: Path, *, images: Sequence[Path] = (), budget_s: float = 20.0) -> Crash:
    """The crash in a core; what it lacks is a gap. Raises NoInputError or, where it is not a core, InputError.

    ``images``: folders with the programs and libraries of its machine; those beside the core are found without it.
    """
    with _open(path) as file, _plain(file, path) as plain:
        core, data = _parsed(plain, path)
        if not core.threads:
            raise InputError(f"{path.name}: a core without any thread" + (", it was cut off" if core.missing else ""))
        target = CoreTarget(core, data, path.stat().st_mtime, (*images, path.parent))
        return _as_seen(crash_builder.read(_death(core, target, budget_s), target))


@contextlib.contextmanager
def _plain(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """The core unpacked, if necessary into an unnamed file."""
    head = file.read(_HEAD)
    file.seek(0)
    if head.startswith(core_compression.ELF):
        yield file
        return
    with tempfile.TemporaryFile() as unpacked:
        try:
            core_compression.unpack(file, unpacked)
        except InputError as error:
            raise InputError(f"{path.name}: {error}") from None
        unpacked.flush()
        yield unpacked


def _parsed(file: IO[bytes], path: Path) -> tuple[CoreDump, mmap.mmap]:
    try:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except ValueError:
        raise InputError(f"{path.name} is empty") from None
    try:
        return elf_core_reader.parse(data), data
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None


def _open(path: Path) -> IO[bytes]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise NoInputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoInputError(f"{path}: not a regular file")
    return os.fdopen(handle, "rb")


# ---------------------------------------------------------------- reading


def _death(core: CoreDump, target: CoreTarget, budget_s: float) -> CrashContext:
    first = core.threads[0]
    info = core.siginfo
    signo = int.from_bytes(info[:4], "little", signed=True) if info is not None else first.signal
    signo = signo if 0 < signo < 65 else max(first.signal, 0)
    threads = tuple(dict.fromkeys(one.tid for one in core.threads[:MOST_THREADS]))
    gaps = [Gap(part="log_tail", why="a core does not hold what the process wrote")]
    if core.missing:
        gaps.append(Gap(part="process", why=f"the core was cut off: {core.missing:,} bytes of it are missing"))
    if len(core.threads) > MOST_THREADS:
        gaps.append(Gap(part="threads", why=f"{len(core.threads):,} threads, {MOST_THREADS:,} were read"))
    if target.replaced:
        names = ", ".join(target.replaced[:5]) + (
            f" and {len(target.replaced) - 5} more" if target.replaced[5:] else ""
        )
        gaps.append(Gap(part="modules", why=f"not the files that were mapped, or gone, so not used: {names}"))
    return CrashContext(
        pid=target.pid,
        tid=first.tid,
        signo=signo,
        siginfo=info if signo and info is not None and int.from_bytes(info[:4], "little") == signo else None,
        threads=threads,
        gaps=tuple(gaps),
        budget_s=budget_s,
    )


def _as_seen(crash: Crash) -> Crash:
    """The crash without what this machine's CPU says: a core does not name its own."""
    replace = msgspec.structs.replace
    if crash.instruction is not None and crash.instruction.cpu_has_feature is not None:
        crash = replace(crash, instruction=replace(crash.instruction, cpu_has_feature=None))
    if crash.fault is None:
        return replace(crash, exit=Exit(kind="unknown"))
    return replace(crash, exit=Exit(kind="signaled", signal=crash.fault.signal))
