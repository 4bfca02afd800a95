"""Looks up embeddings of the samples, batch by batch, and sums them."""

import argparse
import ctypes
import logging
import os

import tables

SETTINGS = {"size": 500, "batch": 32, "stride": 1, "columns": ["user", "item"], "weight": 0.5}
LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
LIBRARY.install.argtypes = [ctypes.POINTER(ctypes.c_int)]
LIBRARY.gather.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int]
LIBRARY.gather.restype = ctypes.c_long

log = logging.getLogger("train")


class Embedding:
    """A table of weights in the library."""

    def __init__(self, name, size):
        self.name = name
        self.size = size
        self.values = (ctypes.c_int * size)(*(number * 7 % 101 for number in range(size)))
        self.calls = 0

    def install(self):
        LIBRARY.install(self.values)
        log.info("%s has %d rows", self.name, self.size)

    def lookup(self, indices, stride):
        self.calls += 1
        array = (ctypes.c_int * len(indices))(*indices)
        return LIBRARY.gather(array, len(indices), stride)


def batches(values, size):
    for start in range(0, len(values), size):
        yield values[start : start + size]


def score(total, count, weight):
    if count == 0:
        return 0.0
    mean = total / count
    return mean * weight + (1 - weight)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="samples.csv")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR)
    rows = tables.without_gaps(tables.read_rows(options.data), SETTINGS["columns"])
    items = tables.numbers(rows, "item")
    weights = tables.numbers(rows, "weight", float)
    log.info("weights: %s", tables.histogram(weights))
    embedding = Embedding("item", SETTINGS["size"])
    embedding.install()
    history = []
    for epoch in range(options.epochs):
        total = 0
        count = 0
        for batch in batches(items, SETTINGS["batch"]):
            total += embedding.lookup(batch, SETTINGS["stride"])
            count += len(batch)
        history.append(score(total, count, SETTINGS["weight"]))
        print("epoch", epoch, "score", round(history[-1], 3))
    print("best", max(history), "after", embedding.calls, "calls")


if __name__ == "__main__":
    main()
