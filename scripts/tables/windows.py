"""Windows: statuses, errors and fast-fail subcodes, from the headers of mingw-w64 (public domain)."""

from __future__ import annotations

import re

from tables.sources import Sources

_INCLUDE = "/usr/share/mingw-w64/include"
_DEB = "mingw-w64-common"
Names = dict[str, int]


def _header(sources: Sources, name: str) -> str | None:
    path = sources.file(f"mingw-w64/include/{name}", f"{_INCLUDE}/{name}", deb=_DEB)
    return None if path is None else path.read_text(encoding="utf-8", errors="replace")


def ntstatus(sources: Sources) -> Names | None:
    """Every name of ``ntstatus.h``."""
    text = _header(sources, "ntstatus.h")
    if text is None:
        return None
    found = re.findall(r"^#define (\w+) \(\(NTSTATUS\) ?(0x[0-9A-Fa-f]+)\)", text, re.MULTILINE)
    return {name: int(value, 16) for name, value in found}


def fast_fail(sources: Sources) -> Names | None:
    """The subcodes that mingw-w64's ``winnt.h`` has: 0 to 9 in version 10; the others are from the Windows SDK."""
    text = _header(sources, "winnt.h")
    if text is None:
        return None
    found = re.findall(r"^#define (FAST_FAIL_\w+) (\w+)", text, re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


def win32(sources: Sources) -> Names | None:
    """Every error number of ``winerror.h``."""
    text = _header(sources, "winerror.h")
    if text is None:
        return None
    found = re.findall(r"^#define (\w+) __MSABI_LONG\((\d+)\)", text, re.MULTILINE)
    return {name: int(value) for name, value in found if int(value) or name == "ERROR_SUCCESS"}


def hresult(sources: Sources) -> Names | None:
    """Every HRESULT of ``winerror.h``; the table keeps those that programs die with."""
    text = _header(sources, "winerror.h")
    if text is None:
        return None
    found = re.findall(r"^#define (\w+) _HRESULT_TYPEDEF_\((0x[0-9A-Fa-f]+)\)", text, re.MULTILINE)
    return {name: int(value, 16) for name, value in found}
