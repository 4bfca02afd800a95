"""Filters on signals: views into one array."""

import numpy as np


def smooth(signal, width):
    kernel = np.ones(width) / width
    return np.convolve(signal, kernel, mode="same")


def windows(signal, size, step):
    count = (len(signal) - size) // step + 1
    strides = (signal.strides[0] * step, signal.strides[0])
    return np.lib.stride_tricks.as_strided(signal, (count, size), strides)


def normalized(signal):
    low, high = signal.min(), signal.max()
    if high == low:
        return np.zeros_like(signal)
    return (signal - low) / (high - low)


def grid(count, factor):
    """Where the samples of a slower signal lie."""
    places = np.linspace(0, count - 1, int(count * factor))
    return places.round() if factor < 1 else np.floor(places)
