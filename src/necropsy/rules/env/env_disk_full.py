"""A file system that programs write to is full.

What happened
-------------
Temporary files, caches in the home folder and checkpoints cannot be written. Compilers such as XLA's and Triton's, pip and data loaders all need a temporary
folder.

How to be sure
--------------
``df -h /tmp ~`` for bytes, ``df -i /tmp ~`` for the number of files. The message is ``No space left on device`` (ENOSPC), or a file that is cut off.

How to fix it now
-----------------
Remove what is not needed: ``pip cache purge``, old checkpoints, ``~/.cache``. Or write elsewhere: ``export TMPDIR=/path``.

How to prevent it
-----------------
Keep caches and checkpoints on a file system of their own.

What it is often mistaken for
-----------------------------
A damaged package: an installation on a full disk leaves files that are cut off.

Sources
-------
- https://man7.org/linux/man-pages/man3/statvfs.3.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Mount
from necropsy.rule import Finding, Rule, several
from necropsy.rules.wording import size

_LITTLE = 32 << 20
_NAMES = {"TMPDIR": "temporary files", "home": "the home folder", "reports": "necropsy's reports"}


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    told: set[tuple[int, int]] = set()
    for one in environment.mounts or ():
        # The same size and the same room: one file system, told once.
        if one.role not in _NAMES or one.is_read_only or not _is_full(one) or (one.size, one.free) in told:
            continue
        told.add((one.size, one.free))
        files = one.free >= _LITTLE
        left = "no more files can be made" if files else f"{size(one.free)} of {size(one.size)} are free"
        yield Finding(
            evidence=(Evidence(claim="room for " + _NAMES[one.role], seen=left, where=one.path),),
            summary=f"The file system of {_NAMES[one.role]}, {one.path}, is full: {left}.",
            confidence="certain",
            about=frozenset({f"mount {one.path}"}),
            fixes=(
                Fix(
                    text=f"Remove what is not needed there{', or set TMPDIR to another folder' * (one.role == 'TMPDIR')}."
                ),
            ),
        )


def _is_full(one: Mount) -> bool:
    """A small file system that is nearly empty is not full."""
    return (one.size > 0 and one.free < min(_LITTLE, one.size // 10)) or one.free_files == 0


RULE = Rule(
    _match,
    severity="warning",
    needs=("mounts",),
    checks="room on disks",
    hit="""
        mount TMPDIR /tmp 10737418240 4096
    """,
    miss="""
        mount TMPDIR /tmp 10737418240 5368709120
    """,
)
