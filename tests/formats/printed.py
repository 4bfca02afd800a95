"""Texts that the real tools printed, kept beside the tests: ``=== name`` begins each of them.

Made with gdb 13.1, lldb 14, GCC 12.2's and clang 14's sanitizers, valgrind 3.19, py-spy 0.4.3, pystack 1.7.2, elfutils 0.188,
glog 0.6, clang 14 and OpenJDK 17, of the same small programs; paths are shortened, shadow bytes left out.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"


@cache
def printed(tool: str) -> dict[str, str]:
    """Every text of ``tool`` by its name."""
    found: dict[str, list[str]] = {}
    rows: list[str] = []
    for row in (TEXTS / f"{tool}.txt").read_text("utf-8").split("\n"):
        if row.startswith("=== "):
            rows = found.setdefault(row[4:], [])
        else:
            rows.append(row)
    return {name: "\n".join(rows).rstrip("\n") + "\n" for name, rows in found.items()}
