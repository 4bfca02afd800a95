"""Deep calls from Python, each in a thread: `deep_python.py LIBRARY [painted]`. LIBRARY is painted_stack.c."""

from __future__ import annotations

import ctypes
import json
import pickle
import sys
import threading
import time
from collections.abc import Callable

library = ctypes.CDLL(sys.argv[1])
painted = int("painted" in sys.argv)
sys.setrecursionlimit(10**6)


def nested(depth: int) -> list[object]:
    one: list[object] = []
    for _ in range(depth):
        one = [one]
    return one


def sorting(depth: int) -> int:
    return 0 if not depth else len(sorted([depth], key=lambda _: sorting(depth - 1)))


class Chained:
    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __len__(self) -> int:
        return len(Chained(self.depth - 1)) if self.depth else 0


LISTS = {"repr": nested(9000), "pickle": nested(4000)}
WORK: dict[str, Callable[[], object]] = {
    "json-loads": lambda: json.loads("[" * 9000 + "]" * 9000),
    "repr": lambda: repr(LISTS["repr"]),
    "pickle": lambda: pickle.dumps(LISTS["pickle"]),
    "sorted-key": lambda: sorting(1500),
    "len": lambda: len(Chained(2500)),
}


def run(name: str) -> None:
    library.begin(painted)
    WORK[name]()
    library.finish(name.encode())
    time.sleep(1.0)  # long enough to be seen while it has its name


threading.stack_size(32 << 20)
threads = [threading.Thread(target=run, args=(name,), name=name) for name in WORK]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
