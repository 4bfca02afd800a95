"""Replays requests against the cache of the library."""

import argparse
import collections
import ctypes
import logging
import os
import random

OPTIONS = {"limit": 16, "warm": 64, "seed": 5, "requests": 400, "shown": 4}

log = logging.getLogger("simulate")


class Cache:
    def __init__(self, path, limit):
        self.library = ctypes.CDLL(path)
        self.library.cache_limit.argtypes = [ctypes.c_int]
        self.library.cache_put.argtypes = [ctypes.c_int, ctypes.c_int]
        self.library.cache_get.argtypes = [ctypes.c_int]
        self.limit = limit
        self.hits = 0
        self.misses = 0

    def configure(self):
        self.library.cache_limit(self.limit)

    def warm(self, count):
        for key in range(count):
            self.library.cache_put(key, key * key)

    def evict(self):
        log.info("evicting down to %d", self.limit)
        self.library.cache_evict()

    def get(self, key):
        value = self.library.cache_get(key)
        if value < 0:
            self.misses += 1
            return None
        self.hits += 1
        return value

    @property
    def ratio(self):
        total = self.hits + self.misses
        return self.hits / total if total else 0.0


def requests(count, seed):
    chance = random.Random(seed)
    for _ in range(count):
        if chance.random() < 0.8:
            yield chance.randrange(40, 64)
        else:
            yield chance.randrange(200)


def replay(cache, keys):
    seen = collections.Counter()
    for number, key in enumerate(keys):
        if number == 50:
            cache.evict()
        value = cache.get(key)
        if value is not None:
            seen[value] += 1
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=OPTIONS["limit"])
    parser.add_argument("--requests", type=int, default=OPTIONS["requests"])
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    cache = Cache(os.path.join(here, "native.so"), options.limit)
    cache.configure()
    cache.warm(OPTIONS["warm"])
    seen = replay(cache, requests(options.requests, OPTIONS["seed"]))
    for value, count in seen.most_common(OPTIONS["shown"]):
        print(value, count)
    print(f"hits: {cache.ratio:.0%}")


if __name__ == "__main__":
    main()
