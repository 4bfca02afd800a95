"""Libraries take more static thread-local storage than there is room for.

What happened
-------------
A library that is loaded while the program runs, and whose thread-local variables are in the static block, takes from a reserve that glibc sets aside when the
program starts: about 1.6 KiB. When it is used up, further such libraries cannot be loaded.

How to be sure
--------------
``readelf -dl FILE`` shows ``STATIC_TLS`` and the size of the TLS segment. On import: ``cannot allocate memory in static TLS block``.

How to fix it now
-----------------
Give more room: ``export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384``; or preload the library: ``LD_PRELOAD=FILE``.

How to prevent it
-----------------
Import the package that brings the library before all others.

What it is often mistaken for
-----------------------------
A machine that is out of memory: it has enough; the reserve is used up.

Sources
-------
- https://sourceware.org/glibc/manual/latest/html_node/Dynamic-Linking-Tunables.html
- https://bugzilla.redhat.com/show_bug.cgi?id=1722181
"""

from __future__ import annotations

import re

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import libraries

_RESERVE = 1664
"""Bytes that glibc sets aside with its default tunables (``TLS_STATIC_SURPLUS``, rtld.nns 4, optional_static_tls 512)."""
_DEFAULT = 512
_ALLOCATOR = re.compile(r"/lib(?:jemalloc|tcmalloc|mimalloc)\w*\.so[^/]*$")
_TUNABLE = re.compile(r"glibc\.rtld\.optional_static_tls=(0[xX][0-9a-fA-F]+|[0-9]+)(?=:|$)")
"""glibc ignores what is no number."""


def _match(environment: Environment) -> Finding | None:
    match = _TUNABLE.search((environment.variables or {}).get("GLIBC_TUNABLES", ""))
    room = _RESERVE + (_number(match[1]) - _DEFAULT if match is not None else 0)
    preloaded = {one.path for one in environment.preload or ()}
    rows = [
        one
        for one in libraries.own(environment)
        # An allocator that a package brings is made to be preloaded, as ray does: then there is room.
        if one.static_tls and one.tls_size and one.path not in preloaded and not _ALLOCATOR.search(one.path)
    ]
    rows.sort(key=lambda one: -(one.tls_size or 0))
    taken = sum(one.tls_size or 0 for one in rows)
    if taken <= room:
        return None
    alone = (rows[0].tls_size or 0) > room
    wanted = 1 << (taken + _DEFAULT).bit_length()
    return Finding(
        evidence=tuple(
            Evidence(claim="static thread-local storage", seen=f"{one.tls_size:,} bytes", where=one.path)
            for one in rows[:5]
        ),
        summary=f"{f'`{rows[0].path}` takes' if alone else f'{len(rows)} libraries together take'} {rows[0].tls_size if alone else taken:,} bytes of static thread-local storage, and about {room:,} are set aside.",
        confidence="certain" if alone else "likely",
        severity="error" if alone else "warning",
        about=frozenset({f"file {one.path}" for one in rows}),
        fixes=(
            Fix(text="Have more set aside.", command=f"export GLIBC_TUNABLES=glibc.rtld.optional_static_tls={wanted}"),
        ),
    )


def _number(text: str) -> int:
    """As strtoul(3) in base 0: a leading 0 means octal, up to the first invalid digit."""
    if octal := re.match(r"0[0-7]*(?![xX])", text):
        return int(octal[0], 8)
    return int(text, 0)


RULE = Rule(
    _match,
    severity="warning",
    needs=("libraries", "variables"),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="static thread-local storage",
    hit="""
        distribution a 1.0 checked
        library /env/a.so of a
        tls 4096
    """,
    miss="""
        variable GLIBC_TUNABLES glibc.rtld.optional_static_tls=16384
        distribution a 1.0 checked
        library /env/a.so of a
        tls 4096
    """,
)
