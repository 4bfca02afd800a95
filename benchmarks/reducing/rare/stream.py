"""Streams samples through the ring of the library."""

import argparse
import ctypes
import logging
import math
import os
import sys

RATES = {"low": 8, "mid": 16, "high": 48}

log = logging.getLogger("stream")


class Ring:
    def __init__(self, folder):
        self.library = ctypes.CDLL(os.path.join(folder, "native.so"))
        self.library.ring_start.argtypes = [ctypes.c_int]
        self.library.ring_push.argtypes = [ctypes.c_int]
        self.pushed = 0

    def start(self, rate):
        if self.library.ring_start(rate) != rate:
            raise RuntimeError("no start")

    def push(self, value):
        self.library.ring_push(value)
        self.pushed += 1


def samples(rate, seconds):
    for number in range(int(rate * seconds)):
        yield int(1000 * math.sin(number / rate))


def level(values):
    top = max(values, key=abs)
    if top == 0:
        return 0.0
    return 20 * math.log10(abs(top))


def smoothed(values, width):
    found = []
    for at in range(len(values)):
        part = values[max(0, at - width) : at + 1]
        found.append(sum(part) // len(part))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", choices=sorted(RATES), default="mid")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    ring = Ring(os.path.dirname(os.path.abspath(__file__)))
    values = list(samples(RATES[options.rate], options.seconds))
    values = smoothed(values, 2)
    log.info("%d samples", len(values))
    try:
        ring.start(RATES[options.rate])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    for value in values:
        ring.push(value)
    print("pushed", ring.pushed, "level", round(level(values), 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
