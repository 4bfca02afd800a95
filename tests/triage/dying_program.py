"""Dies in the way that is asked for, as a program with faulthandler on; `words` as one that has none."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Mapping


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _read_null() -> None:
    ctypes.string_at(0)


def _write_low() -> None:
    ctypes.memset(8, 1, 4)


def _check(size: str) -> None:
    _say(f"F0000 00:00:1795208908.409686 {os.getpid()} shape.cc:204] Check failed: {size} >= 0 (-1 vs. 0)")
    os.abort()


def _check_rank() -> None:
    _check("rank")


def _check_size() -> None:
    _check("size")


def _bus() -> None:
    os.kill(os.getpid(), signal.SIGBUS)


def _divide() -> None:
    os.kill(os.getpid(), signal.SIGFPE)


def _words() -> None:
    faulthandler.disable()
    _say("terminate called after throwing an instance of 'std::runtime_error'\n  what():  the catalog is empty")
    os.abort()


def _deep(left: int = 30) -> None:
    if left:
        _deep(left - 1)
    else:
        ctypes.string_at(0)


WAYS: Mapping[str, Callable[[], None]] = {
    "read": _read_null,
    "write": _write_low,
    "rank": _check_rank,
    "size": _check_size,
    "bus": _bus,
    "divide": _divide,
    "words": _words,
    "deep": _deep,
}

if __name__ == "__main__":
    faulthandler.enable()
    print("epoch 1 done", flush=True)
    WAYS[sys.argv[1]]()
