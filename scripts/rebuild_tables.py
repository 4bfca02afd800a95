"""Rebuild or check the tables of codes in ``src/necropsy/data`` from their primary sources.

    python scripts/rebuild_tables.py --check                 what lies on this machine, nothing is downloaded
    python scripts/rebuild_tables.py --check --fetch DIR     packages of Debian and NVIDIA are downloaded into DIR
    python scripts/rebuild_tables.py --fetch DIR --large     write the tables anew, cuDNN's 700 MB included

Names, numbers and printed texts come from the source; meanings and rules are written by hand in the tables and stay.
A source that is not to be had is named and its part of the table is left as it is. With ``--check`` nothing is written
and the exit code is 1 where a table differs from its source.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tables import linux, nvidia, windows
from tables.sources import Sources

DATA = Path(__file__).parent.parent / "src" / "necropsy" / "data"
Rows = dict[str, Any]
Read = Callable[[Sources], "Mapping[str, int | None] | None"]


@dataclass(frozen=True)
class Group:
    """One group of one table. ``chosen``: the table holds only some of the source's names."""

    table: str
    name: str
    read: Read
    chosen: bool = False
    texts: Callable[[Sources], dict[str, str] | None] | None = None


def _si(signal: str) -> Read:
    def read(sources: Sources) -> dict[str, int] | None:
        found = linux.si_codes(sources)
        return None if found is None else found[signal]

    return read


def _kinds(*libraries: tuple[str, str]) -> Read:
    def read(sources: Sources) -> dict[str, None] | None:
        found: dict[str, None] = {}
        for name, version in libraries:
            kinds = linux.sanitizer_kinds(sources, name, version)
            if kinds is None:
                return None
            found |= kinds
        return found

    return read


GROUPS = (
    Group("win32.json", "Win32 error", windows.win32),
    Group("exceptions.json", "HRESULT", windows.hresult, chosen=True),
    *(
        Group("si_codes.json", signal, _si(signal))
        for signal in ("any", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
    ),
    Group("abort_messages.json", "glibc", linux.glibc),
    Group("abort_messages.json", "glibc, malloc debugging", linux.glibc_debug, chosen=True),
    Group("abort_messages.json", "libstdc++", linux.libstdcxx),
    Group("sanitizers.json", "AddressSanitizer", _kinds(("asan", "8"), ("lsan", "0"))),
    Group("sanitizers.json", "ThreadSanitizer", _kinds(("tsan", "2")), chosen=True),
    Group("sanitizers.json", "UndefinedBehaviorSanitizer", _kinds(("ubsan", "1")), chosen=True),
    Group("nvidia.json", "CUDA runtime error", nvidia.runtime, texts=nvidia.texts),
    Group("nvidia.json", "CUDA driver error", nvidia.driver),
    Group("nvidia.json", "cuDNN 8 status", nvidia.cudnn8),
    Group("nvidia.json", "cuDNN 9 status", nvidia.cudnn9),
    Group("nvidia.json", "cuBLAS status", nvidia.cublas),
    Group("nvidia.json", "cuFFT result", nvidia.cufft),
    Group("nvidia.json", "cuRAND status", nvidia.curand),
    Group("nvidia.json", "cuSOLVER status", nvidia.cusolver),
    Group("nvidia.json", "cuSPARSE status", nvidia.cusparse),
    Group("nvidia.json", "NCCL result", nvidia.nccl),
    Group("nvidia.json", "NVML return", nvidia.nvml),
)


def merged(old: Rows, found: Mapping[str, int | None], texts: Mapping[str, str], *, chosen: bool) -> Rows:
    """The rows of a group as the source has them, with what is written by hand.

    Rows that this source has not stay: other versions have them. Of a table of many versions nothing is ever removed.
    """
    rows: Rows = {}
    for name, value in found.items():
        if chosen and name not in old:
            continue
        row = dict(old.get(name, {}))
        if value is not None:
            row["value"] = value
        if name in texts:
            row["text"] = texts[name]
        rows[name] = row
    return rows | {name: row for name, row in old.items() if name not in rows}


def rebuilt(name: str, table: dict[str, Any], sources: Sources, told: list[str]) -> dict[str, Any]:
    """The table ``name`` with every group that could be read made anew."""
    new = json.loads(json.dumps(table))
    for group in (one for one in GROUPS if one.table == name):
        found = group.read(sources)
        if not found:
            told.append(f"{name}, {group.name}: not checked, its source is not here")
            continue
        texts = (group.texts(sources) if group.texts else None) or {}
        old = table["groups"][group.name]["codes"]
        new["groups"][group.name]["codes"] = merged(old, found, texts, chosen=group.chosen)
    return new


def names(table: dict[str, Any], read: Callable[[Sources], dict[str, int] | None], sources: Sources) -> dict[str, Any]:
    """``ntstatus.json``: code -> name, or names where a code has several."""
    found = read(sources)
    if found is None:
        return table
    codes: dict[str, list[str]] = {}
    for one, value in found.items():
        codes.setdefault(f"0x{value:08X}", []).append(one)
    return table | {"names": {code: some[0] if len(some) == 1 else some for code, some in sorted(codes.items())}}


def subcodes(table: dict[str, Any], sources: Sources) -> dict[str, Any]:
    """``fast_fail.json``: the rows that mingw-w64 knows."""
    found = windows.fast_fail(sources)
    if found is None:
        return table
    codes = dict(table["codes"])
    for name, value in found.items():
        codes[str(value)] = codes.get(str(value), {}) | {"name": name}
    return table | {"codes": codes}


def build(sources: Sources) -> tuple[dict[str, Any], list[str]]:
    """File name -> what it should hold, and what could not be checked."""
    told: list[str] = []
    tables: dict[str, Any] = {}
    for name in dict.fromkeys(group.table for group in GROUPS):
        table = json.loads((DATA / name).read_text(encoding="utf-8"))
        tables[name] = rebuilt(name, table, sources, told)
    for name, make in (("ntstatus.json", partial(names, read=windows.ntstatus)), ("fast_fail.json", subcodes)):
        before = set(sources.missing)
        tables[name] = make(json.loads((DATA / name).read_text(encoding="utf-8")), sources=sources)
        if set(sources.missing) - before or "mingw-w64/include/ntstatus.h" in sources.missing:
            told.append(f"{name}: not checked, its source is not here")
    return tables, told


def spell(table: dict[str, Any]) -> str:
    """JSON with one row a line: small changes are small in a diff."""
    if "groups" not in table:
        return json.dumps(table, indent=0, ensure_ascii=False) + "\n"
    head = {key: value for key, value in table.items() if key != "groups"}
    lines = [json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ",", ' "groups": {']
    for name, group in table["groups"].items():
        more = {key: value for key, value in group.items() if key != "codes"}
        lines.append(f'  {json.dumps(name)}: {json.dumps(more, ensure_ascii=False)[:-1]}, "codes": {{')
        rows = [f"   {json.dumps(one)}: {json.dumps(row, ensure_ascii=False)}" for one, row in group["codes"].items()]
        lines += [row + "," for row in rows[:-1]] + rows[-1:] + ["  }},"]
    lines[-1] = "  }}"
    return "\n".join([*lines, " }", "}"]) + "\n"


def main() -> int:
    """Check or write, and say what could not be checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    parser.add_argument("--sources", type=Path, help="a folder that holds unpacked sources")
    parser.add_argument("--fetch", type=Path, help="download what is missing into this folder")
    parser.add_argument("--large", action="store_true", help="with --fetch: downloads of 50 MB and more too")
    given = parser.parse_args()
    sources = Sources(given.fetch or given.sources, fetch=given.fetch is not None, large=given.large)
    tables, told = build(sources)
    for line in told:
        print(line)
    for path, how in sources.missing.items():
        print(f"not here: {path}    {how}")
    stale = [name for name, table in tables.items() if (DATA / name).read_text(encoding="utf-8") != spell(table)]
    for name in stale:
        print(f"{name}: {'differs from its source' if given.check else 'written'}")
        if not given.check:
            (DATA / name).write_text(spell(tables[name]), encoding="utf-8")
    print(f"{len(tables)} tables, {len(stale)} {'differ' if given.check else 'written'}")
    return bool(stale) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
