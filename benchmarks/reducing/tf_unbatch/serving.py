"""Batches requests, runs a small model on them and hands the rows back."""

import argparse
import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

CONFIG = {"features": 4, "hidden": 8, "batch": 6, "timeout": 7, "seed": 3, "requests": 12, "capacity": 70000}

log = logging.getLogger("serving")


class Layer:
    def __init__(self, inputs, outputs, seed):
        self.weights = tf.Variable(tf.random.stateless_normal([inputs, outputs], [seed, 1]))
        self.bias = tf.Variable(tf.zeros([outputs]))

    def __call__(self, x):
        return tf.nn.relu(tf.matmul(x, self.weights) + self.bias)


class Model:
    def __init__(self, config):
        self.config = config
        self.layers = [
            Layer(config["features"], config["hidden"], config["seed"]),
            Layer(config["hidden"], 2, config["seed"] + 1),
        ]
        self.calls = 0

    def predict(self, rows):
        self.calls += 1
        x = tf.constant(rows, tf.float32)
        for layer in self.layers:
            x = layer(x)
        return x


class Request:
    def __init__(self, number, rows):
        self.number = number
        self.rows = rows

    @property
    def size(self):
        return len(self.rows)


class Batcher:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.waiting = []
        self.answers = {}

    def add(self, request):
        self.waiting.append(request)
        if sum(one.size for one in self.waiting) >= self.config["batch"]:
            self.flush()

    def flush(self):
        if not self.waiting:
            return
        rows = np.concatenate([request.rows for request in self.waiting])
        found = self.model.predict(rows)
        # Where each request's rows begin and end, with the number of the request.
        places = []
        begin = 0
        for request in self.waiting:
            places.append([request.number, begin, begin + request.size])
            begin += request.size
        log.info("%d rows of %d requests", begin, len(places))
        self.unbatch(found, places)
        self.waiting.clear()

    def unbatch(self, found, places):
        ids = tf.constant([[places[0][0], -places[0][2]]], tf.int64)
        # Room for as many rows as there can be; the shape of the index is wrong.
        room = tf.zeros([self.config["capacity"], 0], tf.float16)
        log.debug("%s into %s", found.shape, room.shape)
        part = tf.raw_ops.Unbatch(
            batched_tensor=room,
            batch_index=np.int64(places[-1][0]),
            id=ids,
            timeout_micros=self.config["timeout"],
        )
        self.answers[places[0][0]] = part


def requests(config):
    chance = np.random.default_rng(config["seed"])
    for number in range(config["requests"]):
        rows = chance.standard_normal((1 + number % 3, config["features"]))
        yield Request(number, rows.astype(np.float32))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=CONFIG["requests"])
    parser.add_argument("--batch", type=int, default=CONFIG["batch"])
    options = parser.parse_args()
    config = {**CONFIG, "requests": options.requests, "batch": options.batch}
    batcher = Batcher(Model(config), config)
    for request in requests(config):
        batcher.add(request)
    batcher.flush()
    for number, answer in sorted(batcher.answers.items()):
        print(number, answer.shape)


if __name__ == "__main__":
    main()
