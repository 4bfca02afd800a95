"""data_loader.py N: N batches of 32 images from worker processes, by PyTorch's DataLoader where it is installed.

Without it, a multiprocessing pool moves the same arrays.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

BATCH = 32
SHAPE = (3, 64, 64)
WORKERS = 2


class Images:
    """A data set: the arrays are made where they are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray[Any, Any]:
        return np.full(SHAPE, number % 256, np.float32)


def batch(number: int) -> np.ndarray[Any, Any]:
    images = Images(BATCH * (number + 1))
    return np.stack([images[BATCH * number + each] for each in range(BATCH)])


def batches(count: int) -> Iterator[Any]:
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
            yield from pool.imap(batch, range(count))
    else:
        yield from DataLoader(Images(BATCH * count), batch_size=BATCH, num_workers=WORKERS)  # type: ignore[arg-type]  # any sequence will do


def main(count: int) -> None:
    shapes = [tuple(each.shape) for each in batches(count)]
    assert shapes == [(BATCH, *SHAPE)] * count


if __name__ == "__main__":
    main(int(sys.argv[1]))
