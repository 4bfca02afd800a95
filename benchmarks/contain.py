"""``necropsy.Contained`` beside other pools of processes: small calls, arrays, many records, deaths. See ``make bench``.

    python benchmarks/contain.py [--runs 3] [--out benchmarks/RESULTS.md]

Each pool does the same in turn, and the best run counts: what else the machine does makes it slower, never faster. loky
and pebble take part where they are installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import contain_functions as functions
import results

import necropsy

TITLE = "# Contained calls beside other pools"
WORKERS = 2
CALLS = 2000
RECORDS = 1_000_000
CHUNK = 10_000
"""Records of one message, for those pools that do not choose it themselves."""
SIZE = 100_000_000
"""Bytes of the array."""
LIMIT_S = 600
DEATHS = 5
GAP_S = 1.0
"""How long a pool rests before each death, as a program would do something else."""


class Executor(Protocol):
    """What all these pools can do, each in its own words."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any: ...
    def map(self, function: Callable[[Any], Any], records: Iterable[Any]) -> Iterable[Any]: ...
    def close(self) -> None: ...


class Ours:
    def __init__(self) -> None:
        self.pool = necropsy.Contained(workers=WORKERS)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.pool.call(function, *args)

    def map(self, function: Callable[[Any], Any], records: Iterable[Any]) -> Iterable[Any]:
        return self.pool.map(function, records, errors="quarantine", quarantine=[])

    def close(self) -> None:
        self.pool.close()


class Standard:
    def __init__(self, method: str) -> None:
        self.pool = ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context(method))

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.pool.submit(function, *args).result()

    def map(self, function: Callable[[Any], Any], records: Iterable[Any]) -> Iterable[Any]:
        return self.pool.map(function, records, chunksize=CHUNK)

    def close(self) -> None:
        self.pool.shutdown()


class Loky(Standard):
    def __init__(self) -> None:
        self.pool = importlib.import_module("loky").ProcessPoolExecutor(WORKERS)


class Pebble:
    def __init__(self) -> None:
        self.pool = importlib.import_module("pebble").ProcessPool(WORKERS)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.pool.schedule(function, args=list(args)).result()

    def map(self, function: Callable[[Any], Any], records: Iterable[Any]) -> Iterable[Any]:
        found: Iterable[Any] = self.pool.map(function, records, chunksize=CHUNK).result()
        return found

    def close(self) -> None:
        self.pool.stop()
        self.pool.join()


def pools() -> dict[str, Callable[[], Executor]]:
    found: dict[str, Callable[[], Executor]] = {
        "`necropsy.Contained`": Ours,
        "`ProcessPoolExecutor`, fork": lambda: Standard("fork"),
        "`ProcessPoolExecutor`, spawn": lambda: Standard("spawn"),
    }
    for name, made in (("loky", Loky), ("pebble", Pebble)):
        if importlib.util.find_spec(name) is not None:
            found[f"{name} {version(name)}"] = made
    return found


def timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def measured(make: Callable[[], Executor], array: Any) -> tuple[dict[str, float], str]:
    """One run of everything, and what a death was called."""
    found: dict[str, float] = {}
    said = ""
    pool = make()
    try:
        found["first"] = timed(lambda: pool.call(functions.add, 1))
        found["call"] = statistics.median(timed(lambda: pool.call(functions.add, 1)) for _ in range(CALLS))
        found["array"] = min(timed(lambda: pool.call(functions.same, array)) for _ in range(4))
        healthy = range(RECORDS, 2 * RECORDS)
        found["map"] = timed(lambda: sum(1 for _ in pool.map(functions.increment, healthy)))
        deaths, nexts = [], []
        for _ in range(DEATHS):
            time.sleep(GAP_S)
            died, said = death(pool)
            deaths.append(died)
            began = time.perf_counter()
            try:
                pool.call(functions.add, 1)
            except Exception:  # noqa: BLE001 - each has its own; the pool is of no use any more
                pool.close()
                pool = make()
                pool.call(functions.add, 1)
                said += "; then the pool is broken"
            nexts.append(time.perf_counter() - began)
        found["death"], found["next"] = statistics.median(deaths), statistics.median(nexts)
        began = time.perf_counter()
        with suppress(Exception):
            count = sum(1 for _ in pool.map(functions.increment, range(RECORDS)))
            if count == RECORDS - len(functions.BAD):
                found["bad"] = time.perf_counter() - began
    finally:
        pool.close()
    return found, said


def death(pool: Executor) -> tuple[float, str]:
    """How long it takes, and the exception."""
    began = time.perf_counter()
    try:
        pool.call(functions.crash)
    except Exception as error:  # noqa: BLE001 - each has its own
        return time.perf_counter() - began, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    raise SystemExit("it did not die")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pool", choices=list(pools()), help="measure this one once, and print JSON")
    wanted = parser.parse_args()
    np = importlib.import_module("numpy")
    array = np.ones(SIZE // 8)
    if wanted.pool is not None:
        print(json.dumps(measured(pools()[wanted.pool], array)))
        return 0
    load, other = os.getloadavg()[0], np.empty(SIZE // 8)
    best: dict[str, dict[str, float]] = {}
    said: dict[str, str] = {}
    copies, loops = [], []
    for _ in range(wanted.runs):
        copies += [timed(lambda: np.copyto(other, array)) for _ in range(5)]
        loops.append(timed(lambda: [functions.increment(number) for number in range(RECORDS, 2 * RECORDS)]))
        for name in pools():
            found, said[name] = alone(name)
            known = best.setdefault(name, {})
            known.update({key: min(value, known.get(key, value)) for key, value in found.items()})
            print(name, {key: round(value, 6) for key, value in found.items()}, said[name], flush=True)
    state = (
        f"Load average at the start and at the end: {load:.0f} and {os.getloadavg()[0]:.0f}. A copy of "
        f"{SIZE // 1_000_000} MB in memory took {min(copies) * 1e3:.0f} ms, a plain loop over {RECORDS:,} records "
        f"{min(loops):.2f} s.{' All of it ran with realtime priority: other work of the machine counts little.' * _is_realtime()}"
    )
    lines = table(wanted.runs, state, (min(copies), min(loops)), best, said)
    print("\n".join(lines))
    if wanted.out is not None:
        results.put(wanted.out, "\n".join(lines) + "\n")
    return 0


def alone(pool: str) -> tuple[dict[str, float], str]:
    """One run in a process of its own: some pools leave threads behind, with which the next one's fork hangs."""
    words = [sys.executable, __file__, "--pool", pool]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
    found, said = json.loads(done.stdout.splitlines()[-1])
    return found, said


def _is_realtime() -> bool:
    """Started by ``chrt -r 1``, say."""
    return sys.platform == "linux" and os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR}


def table(
    runs: int, state: str, floor: tuple[float, float], best: dict[str, dict[str, float]], said: dict[str, str]
) -> list[str]:
    """``floor``: the seconds of a copy in memory, and of a plain loop."""
    copy, loop = floor
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    how = (
        f"`python benchmarks/contain.py --runs {runs}`, {when}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}: {WORKERS} workers, the best of {runs} runs (small "
        f"calls, deaths and the calls after them: the median of each run). {state}"
    )
    heading = (
        "| Pool | First call ms | Small call us | 100 MB there and back ms | `map`, us a record more than the loop | "
        "A death until its exception ms | The next call ms | 1,000,000 records, of which 5 crash, s |"
    )
    notes = (
        "*The next call* is made in a new pool where the death has broken the old one. *No result*: the pool raised, or "
        "gave fewer than the 999,995 results. What a read through a null pointer was called:"
    )
    rows = []
    for name, found in best.items():
        per_record = (found["map"] - loop) / RECORDS * 1e6
        bad = f"{found['bad']:.2f}" if "bad" in found else "no result"
        cells = (
            f"{found['first'] * 1e3:.0f}",
            f"{found['call'] * 1e6:.0f}",
            f"{found['array'] * 1e3:.0f} ({found['array'] / copy:.1f} copies)",
            f"{per_record:.2f}",
            f"{found['death'] * 1e3:.0f}",
            f"{found['next'] * 1e3:.0f}",
            bad,
        )
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return [
        TITLE,
        "",
        how,
        "",
        heading,
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        notes,
        "",
        *(f"- {name}: {words}" for name, words in said.items()),
    ]


if __name__ == "__main__":
    sys.exit(main())
