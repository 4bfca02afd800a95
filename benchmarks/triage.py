"""How long `necropsy triage` takes: to read a fleet's reports, to read what is new, to group, and to answer queries.

    python benchmarks/triage.py [--documents 5000] [--deaths 100000] [--million 1000000] [--out benchmarks/RESULTS.md]

The reports are one real capture with other functions, hosts and times, so that reading and grouping have work to do.
The queries are those of docs/how-to/triage-queries.md, and one on each view.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import results

from necropsy.triage.death_rows import deaths
from necropsy.triage.documents import ReportDocument
from necropsy.triage.fingerprints import fingerprint
from necropsy.triage.queries import query
from necropsy.triage.store import FILE, FileRead, TriageStore
from necropsy.triage.summaries import refresh

TITLE = "# Triage of many deaths"
PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "triage-queries.md"
BUGS, HOSTS, DAYS = 300, 40, 60
_PROGRAM = (
    "import numpy, threading, ctypes; [threading.Thread(target=threading.Event().wait).start() for _ in range(3)]; "
)


def capture(folder: Path) -> dict[str, Any]:
    """A real report, of a null pointer."""
    path = folder / "capture.json"
    command = [sys.executable, "-c", f"{_PROGRAM}ctypes.string_at(0)"]
    subprocess.run(
        [sys.executable, "-m", "necropsy", "run", "--json", str(path), *command], capture_output=True, check=False
    )
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def variants(base: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Reports of ``BUGS`` bugs, a few of them frequent, each reached by several callers."""
    chance = random.Random(1)
    begin = datetime.now(timezone.utc) - timedelta(days=DAYS)
    text = json.dumps(base)
    for number in range(count):
        document = json.loads(text)
        bug, caller = min(int(chance.expovariate(1 / 40)), BUGS - 1), chance.randrange(12)
        at = begin + timedelta(seconds=chance.randrange(DAYS * 86_400))
        document["id"] = f"{at:%Y%m%dT%H%M%SZ}-{number:08x}"
        document["host"] = f"node{chance.randrange(HOSTS):02d}"
        report = document["reports"][0]
        report["crash"]["at"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
        thread = next(one for one in report["crash"]["threads"] if one.get("crashed"))
        for place, frame in enumerate(thread["frames"][:2]):
            name = f"kernels::bug_{bug}" if place == 0 else f"ops::caller_{bug}_{caller}"
            frame.update(function=name, module="/opt/app/libkernels.so", owner="native-code")
            frame.update(module_offset=hex(0x1000 + bug * 0x100 + place * 0x40 + caller), line=bug)
            frame.update(source="/src/kernels.cc")
        report["signature"] = f"null-dereference|kernels::bug_{bug}|{bug * 100 + caller:012x}"
        culprit = report["verdict"].get("culprit") or {}
        report["verdict"]["culprit"] = {**culprit, "function": f"kernels::bug_{bug}", "module": "libkernels.so"}
        yield document


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command and its children."""
    before, start = _cpu(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(store: Path, base: dict[str, Any], count: int) -> None:
    """A store with so many deaths, as if they had been read."""
    decoder = msgspec.json.Decoder(ReportDocument)
    made = [
        deaths(decoder.decode(msgspec.json.encode(one)), "x", fingerprint)[0]
        for one in variants(base, min(count, 20_000))
    ]
    chance = random.Random(2)
    begin = datetime.now(timezone.utc) - timedelta(days=DAYS)

    def files() -> Iterator[FileRead]:
        for number in range(count):
            row, key = made[number % len(made)]
            at = begin + timedelta(seconds=chance.randrange(DAYS * 86_400))
            row = msgspec.structs.replace(
                row,
                path=f"/fleet/reports/{number // 1000:04d}/{number:07d}.json",
                document=f"{at:%Y%m%dT%H%M%SZ}-{number:08x}",
                died_at=f"{at:%Y-%m-%dT%H:%M:%SZ}",
                host=f"node{chance.randrange(HOSTS):02d}",
            )
            yield FileRead(row.path, 50_000, number, None, ((row, key),))

    kept = TriageStore(store)
    with kept.session(create=True) as session:
        session.begin_run()
        session.add(files())


def queries() -> dict[str, str]:
    """Those of the page by their headings, and one on each view."""
    text = PAGE.read_text()
    found = dict(re.findall(r"^## (.+?)\n.*?^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return {
        **found,
        "the view `groups`": "SELECT * FROM groups ORDER BY count DESC LIMIT 20",
        "the view `deaths`": "SELECT * FROM deaths ORDER BY died_at DESC LIMIT 20",
        "the view `members`": "SELECT * FROM members LIMIT 20",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=5_000)
    parser.add_argument("--deaths", type=int, default=100_000)
    parser.add_argument("--million", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    rows, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="necropsy-bench-") as name:
        folder = Path(name)
        base = capture(folder)
        if wanted.documents:
            rows += _reading(folder, base, wanted.documents)
        if wanted.deaths:
            rows += _grouping(folder, base, wanted.deaths)
        if wanted.million:
            rows += _asking(folder, base, wanted.million)
    section = _section(rows, load)
    print(section)
    if wanted.out is not None:
        results.put(wanted.out, section)
    return 0


def _reading(folder: Path, base: dict[str, Any], count: int) -> list[tuple[str, str]]:
    fleet = folder / "fleet"
    fleet.mkdir()
    size = 0
    for number, one in enumerate(variants(base, count)):
        size += (fleet / f"{number:05d}.json").write_text(json.dumps(one, indent=1))
    command = [sys.executable, "-m", "necropsy", "triage", str(fleet), "--store", str(folder / "store"), "--json"]
    wall, cpu = timed([*command, str(folder / "out.json")])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    again, again_cpu = timed([*command, str(folder / "out.json")])
    groups = len(json.loads((folder / "out.json").read_text())["triage"]["groups"])
    return [
        (
            f"{count:,} reports of {size / count / 1000:.0f} kB: read, grouped, kept",
            f"{wall:.1f} s ({cpu:.1f} s of CPU)",
        ),
        ("the largest of its processes", f"{peak:.0f} MB"),
        ("groups, of bugs with another function each", f"{groups} of at most {BUGS}"),
        ("the same again, nothing new", f"{again:.1f} s ({again_cpu:.1f} s of CPU)"),
    ]


def _grouping(folder: Path, base: dict[str, Any], count: int) -> list[tuple[str, str]]:
    store = folder / "many"
    fill(store, base, count)
    wall, cpu = timed([sys.executable, "-m", "necropsy", "triage", "--store", str(store)])
    return [(f"{count:,} deaths grouped, after reading", f"{wall:.1f} s ({cpu:.1f} s of CPU)")]


def _asking(folder: Path, base: dict[str, Any], count: int) -> list[tuple[str, str]]:
    store = folder / "million"
    fill(store, base, _BASE)
    timed([sys.executable, "-m", "necropsy", "triage", "--store", str(store)])
    start = time.monotonic()
    _multiply(store, count // _BASE)
    with TriageStore(store).session() as session:
        refresh(session)
        ((deaths_,),) = query(session, "SELECT count(*) FROM deaths").rows
    rows = [(f"a store of {deaths_:,} deaths", f"{(store / FILE).stat().st_size / 1e6:.0f} MB")]
    print(f"filled in {time.monotonic() - start:.0f} s", file=sys.stderr)
    for name, sql in queries().items():
        best = float("inf")
        with TriageStore(store).session() as session:
            ((identity,),) = query(session, "SELECT id FROM groups ORDER BY count DESC LIMIT 1").rows
            sql = sql.replace("g1f0c77a2", identity)  # noqa: PLW2901 - of the page's example
            for _ in range(3):
                start = time.monotonic()
                query(session, sql)
                best = min(best, time.monotonic() - start)
        rows.append((f"{deaths_:,} deaths: {name}", f"{best:.2f} s"))
        print(rows[-1], file=sys.stderr)
    return rows


_BASE = 20_000
"""Deaths that are read as any; SQL makes more of them, at other times and on other hosts."""


def _multiply(store: Path, times: int) -> None:
    columns = [
        *("path", "place", "document", "pid", "died_at", "source", "host", "rule", "confidence", "ended", "signature"),
        *("summary", "function", "module", "source_line", "python_file", "python_line", "python_function", "op"),
        *("versions", "fingerprint", "bug", "run"),
    ]
    other = {
        "path": "path || '.' || copy.n",
        "document": "document || '-' || copy.n",
        "died_at": "strftime('%Y-%m-%dT%H:%M:%SZ', died_at, '-' || (number * 7919 + copy.n * 104729) % 86400 || ' seconds')",
        "host": f"printf('node%02d', (number * 31 + copy.n * 17) % {HOSTS})",
    }
    chosen = ", ".join(other.get(name, name) for name in columns)
    with TriageStore(store).session() as session:
        session.connection.execute(
            f"WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {times - 1})"
            f" INSERT INTO death ({', '.join(columns)}) SELECT {chosen} FROM copy, (SELECT * FROM death)"
        )
        session.connection.execute("DELETE FROM summary")


def _section(rows: list[tuple[str, str]], load: float) -> str:
    lines = [
        TITLE,
        "",
        (
            f"`python benchmarks/triage.py`, {datetime.now(timezone.utc):%Y-%m-%d}, {platform.system()}"
            f" {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}, SQLite"
            f" {sqlite3.sqlite_version}. The load average was {load:.1f}: others were using the machine. Queries: the best"
            " of three."
        ),
        "",
        "| what | figure |",
        "|---|---|",
        *(f"| {name} | {figure} |" for name, figure in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
