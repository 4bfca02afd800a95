"""Few files may be open at a time.

What happened
-------------
Each data loader's worker, each shard of a dataset and each connection takes a file descriptor. A process that has used all of them cannot open anything, not
even a library.

How to be sure
--------------
``ulimit -n`` prints the limit; 1,024 is usual. The message is ``Too many open files`` (EMFILE).

How to fix it now
-----------------
``ulimit -S -n 4096`` in the shell that starts the program.

How to prevent it
-----------------
Raise the limit where it is set: /etc/security/limits.conf, ``LimitNOFILE=`` of a systemd unit, ``docker run --ulimit nofile=``.

What it is often mistaken for
-----------------------------
A missing file: a library that cannot be opened for lack of a descriptor is reported as one that cannot be loaded.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
"""

from __future__ import annotations

from necropsy.model import Environment
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit

_FEW = 256
"""macOS gives as many by default; importing a framework takes about a hundred at times."""
_USUAL = 4096


def _match(environment: Environment) -> Finding | None:
    limit = ulimit.soft(environment, "RLIMIT_NOFILE")
    if limit is None or limit >= _FEW:
        return None
    return Finding(
        evidence=(ulimit.evidence(environment, "RLIMIT_NOFILE"),),
        summary=f"A process may have {limit:,} files open; 1,024 are usual.",
        confidence="certain",
        about=frozenset({"limit RLIMIT_NOFILE"}),
        fixes=ulimit.raised(environment, "RLIMIT_NOFILE", _USUAL),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER),
    checks="the limit on open files",
    hit="""
        limit RLIMIT_NOFILE 64
    """,
    miss="""
        limit RLIMIT_NOFILE 1024
    """,
)
