"""worker_processes.py N: N tasks in a multiprocessing pool whose workers are replaced after every tenth task."""

from __future__ import annotations

import multiprocessing
import sys


def square(number: int) -> int:
    return number * number


def main(count: int) -> None:
    with multiprocessing.get_context("fork").Pool(4, maxtasksperchild=10) as pool:
        found = pool.map(square, range(count), chunksize=1)
    assert found == [number * number for number in range(count)]


if __name__ == "__main__":
    main(int(sys.argv[1]))
