"""The shared memory is full.

What happened
-------------
A file in shared memory (``/dev/shm``, a memfd, or another tmpfs) was made as large as wanted, which costs nothing.
When its pages were touched, no memory was left for them, and the kernel sent SIGBUS. Worker processes that pass
tensors on use this: PyTorch's DataLoader, multiprocessing, Ray.

How to be sure
--------------
SIGBUS with BUS_ADRERR at an address in a mapping of such a file, inside the file's size; and its file system has no
space left. PyTorch's own message is *insufficient shared memory (shm)*.

How to fix it now
-----------------
``df -h /dev/shm``. In Docker it has 64 MiB: ``docker run --shm-size=8g`` or ``--ipc=host``; in Kubernetes mount an
``emptyDir`` with ``medium: Memory`` there. Or use fewer workers;
``torch.multiprocessing.set_sharing_strategy('file_system')``.

How to prevent it
-----------------
Reserve the space with ``posix_fallocate`` before mapping it: then there is an error that can be handled.

What it is often mistaken for
-----------------------------
A bad pointer: the pointer is good. A file that was shortened, which gives the same signal: there the address is past
the end of the file. A limit of the control group, which kills.

Sources
-------
- https://man7.org/linux/man-pages/man7/shm_overview.7.html
- https://docs.docker.com/reference/cli/docker/container/run/#options (--shm-size)
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, instruction_at_fault, messages, quote, real_fault
from necropsy.rule import NEVER, Finding, Occurs, Rule, Tried
from necropsy.rules import limits
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence
from necropsy.rules.wording import size

_SHARED = re.compile(r"/dev/shm/|/run/shm/|/memfd:|/dev/zero|/SYSV")  # noqa: S108 - looked for, not used
SMALL = 1 << 20
"""Bytes. A file system with less than this left counts as full: other processes free and take pages meanwhile."""


def _match(crash: Crash) -> Finding | None:
    fault = crash.fault
    if fault is None or fault.signal != "SIGBUS" or not real_fault(crash):
        return _told(crash)
    mapping = fault.mapping
    path = mapping.path if mapping and mapping.path else None
    full = fault.space_left is not None and fault.space_left < SMALL
    if (
        path is None
        or fault.beyond_file is True
        or (not _SHARED.match(path) and not (full and fault.beyond_file is False))
    ):
        return None
    if fault.space_left is not None and not full and not path.startswith("/memfd:"):
        return None
    said = messages(crash, "shared-memory")
    place = limits.evidence(*limits.all_of(crash, "/dev/shm")) if path.startswith("/dev/shm/") else ()  # noqa: S108
    place += (
        Evidence(
            claim="the address is in a file in memory",
            seen=f"{path}" + (", inside the file" if fault.beyond_file is False else ""),
            where="memory map of the process",
        ),
    )
    if fault.space_left is not None:
        place += (Evidence(claim="what its file system has left", seen=size(fault.space_left), where="file system"),)
    culprit = culprit_of(crash)
    return Finding(
        evidence=(
            *died_by(crash, "SIGBUS"),
            *place,
            *(quote(one, "the program says so") for one in said[-1:]),
            *instruction_at_fault(crash),
            *python_line(crash),
        ),
        summary=f"No shared memory was left for a write to `{path}`."
        if _SHARED.match(path)
        else f"The file system was full: no space was left for a write to `{path}`.",
        confidence="certain" if full and fault.beyond_file is False else "likely",
        culprit=culprit,
        fixes=_FIXES,
    )


def _told(crash: Crash) -> Finding | None:
    """A dead worker's parent says so."""
    said = messages(crash, "shared-memory")
    if not said or crash.fault is not None:
        return None
    died = died_by(crash, "SIGBUS")
    confidence = "likely" if died else told_of_the_end(crash, said[-1])
    if confidence is None:
        return None
    return Finding(
        evidence=(quote(said[-1], "a worker died, and its parent says why"), *died, *exit_evidence(crash)),
        summary="A worker process died because the shared memory is full, as its parent reports.",
        confidence="likely" if confidence == "certain" else confidence,
        culprit=teller(crash),
        fixes=_FIXES,
    )


_FIXES = (
    Fix(
        text="See how much there is, and give the container more.",
        command="df -h /dev/shm; docker run --shm-size=8g ...",
    ),
    Fix(text="Or use fewer workers, or share by files: torch.multiprocessing.set_sharing_strategy('file_system')."),
)

RULE = Rule(
    _match,
    needs=(),
    beats=("bus-error", "python-exception", "exit-status-only"),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    tried=Tried(
        advice="See how much there is by the printed command, and give the container more.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36): the printed ``df -h /dev/shm`` showed "
            "1 MiB, of which 8 were wanted; with 64 MiB the program ended normally."
        ),
    ),
    hit="""
        signal SIGBUS BUS_ADRERR 0x7f0000002000 write
        mapping 0x7f0000000000-0x7f0000010000 rw-s /dev/shm/torch_1
        file inside left 0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame __memmove_avx_unaligned_erms @ libc.so.6 takes 8
        frame share(float*) @ ext.so takes 32
    """,
    miss="""
        signal SIGBUS BUS_ADRERR 0x7f0000002000 read
        mapping 0x7f0000000000-0x7f0000010000 rw-s /dev/shm/torch_1
        file beyond left 5GiB
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame __memmove_avx_unaligned_erms @ libc.so.6 takes 8
        frame share(float*) @ ext.so takes 32
    """,
)
