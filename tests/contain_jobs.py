"""Functions that tests run in worker processes: a worker imports this module, which therefore loads little."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from necropsy.contain import contain, contained


class OddError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def add(a: int, b: int = 1) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


def parent() -> int:
    return os.getppid()


def crash() -> None:
    ctypes.string_at(0)


def crash_in_a_thread() -> None:
    thread = threading.Thread(target=crash)
    thread.start()
    thread.join()


def check_fails() -> None:
    os.write(2, b"F0000 00:00:00.000000 1 tensor.cc:1] Check failed: shape.dims() == 2 (3 vs. 2)\n")
    os.abort()


def leave(code: int) -> None:
    os._exit(code)


def sys_exit(code: int) -> None:
    sys.exit(code)


def fail(key: str) -> None:
    raise KeyError(key)


def fail_oddly() -> None:
    raise OddError(3, "odd")


def busy_in_python() -> None:
    while True:
        pass


def busy_in_c() -> int:
    return int(pow(3, 10**9))


def interrupt(pid: int) -> None:
    os.kill(pid, signal.SIGINT)
    time.sleep(600)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def lock() -> Any:
    return threading.Lock()


def allocate(size: int) -> int:
    return len(bytearray(size))


def say(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)
    ctypes.CDLL(None).puts(b"from C")


@contained
def three(fails: bool = False) -> Iterator[int]:
    yield from range(3)
    if fails:
        raise KeyError("end")


@contained
def forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@contained
async def later(value: int) -> int:
    await asyncio.sleep(0.01)
    return value


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def plus(self, amount: int) -> Account:
        return Account(self.balance + amount)

    @contained(timeout=60)
    def minus(self, amount: int) -> int:
        return self.balance - amount


def nested() -> None:
    contain(leave)(5)


def nested_crash() -> None:
    contain(crash)()


def kill_itself() -> None:
    os.kill(os.getpid(), 9)


def picky(number: int) -> Any:
    if number == 20:
        raise ValueError(number)
    if number == 200:
        os._exit(9)
    return threading.Lock() if number == 250 else number


def crash_once_at_33(mark: str) -> str:
    if mark.endswith("33") and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(1)
    return mark


_damaged: list[int] = []


def damaged_by_17(number: int) -> int:
    if number == 17:
        _damaged.append(number)
    if number == 29 and _damaged:
        crash()
    return number


def plus_one(array: Any) -> Any:
    array += 1
    return array


def arrays(count: int, size: int) -> Iterator[Any]:
    import numpy as np

    for number in range(count):
        yield np.full(size, number)
