"""Scores the rows of a file by the library, batch by batch."""

import argparse
import ctypes
import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

import features

SETTINGS = {"batch": 25, "shuffle": 0, "seed": 11, "metrics": ["mean", "max"]}
LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
FLOATS = ctypes.POINTER(ctypes.c_float)
LIBRARY.model_load.argtypes = [FLOATS]
LIBRARY.model_score.argtypes = [FLOATS, ctypes.POINTER(ctypes.c_long), ctypes.c_int]
LIBRARY.model_score.restype = ctypes.c_float

log = logging.getLogger("score")


class Model:
    def __init__(self, size, seed):
        chance = np.random.default_rng(seed)
        self.weights = chance.standard_normal(size).astype(np.float32)
        self.scores = []
        LIBRARY.model_load(self.weights.ctypes.data_as(FLOATS))

    def score(self, numbers, keys):
        values = np.ascontiguousarray(numbers.numpy())
        index = np.ascontiguousarray(keys.numpy())
        found = LIBRARY.model_score(
            values.ctypes.data_as(FLOATS), index.ctypes.data_as(ctypes.POINTER(ctypes.c_long)), len(values)
        )
        self.scores.append(found)
        return found


class Metrics:
    def __init__(self, names):
        self.names = names
        self.found = {}

    def compute(self, scores):
        tensor = tf.constant(scores, tf.float32)
        for name in self.names:
            if name == "mean":
                self.found[name] = float(tf.reduce_mean(tensor))
            elif name == "max":
                self.found[name] = float(tf.reduce_max(tensor))
            else:
                log.warning("no metric %s", name)

    def show(self):
        for name, value in sorted(self.found.items()):
            print(f"{name:8} {value:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="rows.csv")
    parser.add_argument("--batch", type=int, default=SETTINGS["batch"])
    options = parser.parse_args()
    tf.random.set_seed(SETTINGS["seed"])
    model = Model(features.VOCABULARY, SETTINGS["seed"])
    data = features.pipeline(options.data, options.batch, SETTINGS["shuffle"])
    for step, (numbers, keys) in enumerate(data):
        score = model.score(numbers, keys)
        if step % 20 == 0:
            log.info("step %d: %f", step, score)
    metrics = Metrics(SETTINGS["metrics"])
    metrics.compute(model.scores)
    metrics.show()


if __name__ == "__main__":
    main()
