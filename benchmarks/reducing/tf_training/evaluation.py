"""Counts what a network takes for what, in the library."""

import ctypes
import logging
import os

import numpy as np
import tensorflow as tf

LONGS = ctypes.POINTER(ctypes.c_long)
LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
LIBRARY.confusion_start.argtypes = [LONGS, ctypes.c_long]
LIBRARY.confusion_add.argtypes = [LONGS, LONGS, ctypes.c_int]

log = logging.getLogger("evaluation")


class Confusion:
    def __init__(self, classes):
        self.classes = classes
        self.counts = np.zeros((classes, classes), dtype=np.int64)
        LIBRARY.confusion_start(self.counts.ctypes.data_as(LONGS), classes)

    def add(self, labels, found):
        labels = np.ascontiguousarray(labels)
        found = np.ascontiguousarray(found)
        LIBRARY.confusion_add(labels.ctypes.data_as(LONGS), found.ctypes.data_as(LONGS), len(labels))

    def accuracy(self):
        total = self.counts.sum()
        return float(np.trace(self.counts)) / total if total else 0.0

    def show(self):
        for row in self.counts:
            print(" ".join(f"{count:5}" for count in row))


def evaluate(network, data, classes):
    confusion = Confusion(classes)
    for number, (words, labels) in enumerate(data):
        found = tf.argmax(network(words), axis=1)
        confusion.add(labels.numpy(), found.numpy())
        log.debug("batch %d", number)
    return confusion
