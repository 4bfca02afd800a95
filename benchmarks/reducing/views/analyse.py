"""Resamples recordings and says how much energy their windows have."""

import argparse
import ctypes
import logging
import os
from dataclasses import dataclass, field

import numpy as np

import filters

LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
DOUBLES = ctypes.POINTER(ctypes.c_double)
LIBRARY.resample.argtypes = [DOUBLES, ctypes.POINTER(ctypes.c_long), ctypes.c_long, DOUBLES]
LIBRARY.energy.argtypes = [DOUBLES, ctypes.c_long]
LIBRARY.energy.restype = ctypes.c_double
SETTINGS = {"length": 4096, "factor": 0.5, "window": 256, "step": 128, "width": 9, "seed": 3}

log = logging.getLogger("analyse")


@dataclass
class Recording:
    name: str
    signal: np.ndarray
    energies: list = field(default_factory=list)

    @property
    def loudest(self):
        return int(np.argmax(self.energies)) if self.energies else -1


def synthetic(name, length, seed):
    chance = np.random.default_rng(seed)
    time = np.arange(length) / length
    signal = np.sin(2 * np.pi * 40 * time) + 0.1 * chance.standard_normal(length)
    return Recording(name, signal)


def resampled(signal, factor):
    places = filters.grid(len(signal), factor)
    out = np.zeros(len(places))
    # The places are of type float64; the library wants integers.
    index = places.ctypes.data_as(ctypes.POINTER(ctypes.c_long))
    LIBRARY.resample(signal.ctypes.data_as(DOUBLES), index, len(places), out.ctypes.data_as(DOUBLES))
    return out


def energies(signal, size, step):
    found = []
    for window in filters.windows(signal, size, step):
        part = np.ascontiguousarray(window)
        found.append(LIBRARY.energy(part.ctypes.data_as(DOUBLES), len(part)))
    return found


def describe(recording):
    log.info("%s: %d samples", recording.name, len(recording.signal))
    print(recording.name, "loudest at window", recording.loudest)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="voice,noise")
    parser.add_argument("--factor", type=float, default=SETTINGS["factor"])
    options = parser.parse_args()
    recordings = []
    for number, name in enumerate(options.names.split(",")):
        recording = synthetic(name, SETTINGS["length"], SETTINGS["seed"] + number)
        recording.signal = filters.normalized(filters.smooth(recording.signal, SETTINGS["width"]))
        recording.energies = energies(recording.signal, SETTINGS["window"], SETTINGS["step"])
        describe(recording)
        recordings.append(recording)
    for recording in recordings:
        slow = resampled(recording.signal, options.factor)
        recording.energies = energies(slow, SETTINGS["window"], SETTINGS["step"])
        describe(recording)


if __name__ == "__main__":
    main()
