"""Trains a small network on reviews, and says what it takes for what."""

import argparse
import logging
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

import evaluation
import network
import reviews

CONFIG = {
    "seed": 5,
    "words": 200,
    "length": 12,
    "width": 8,
    "hidden": 16,
    "classes": 5,
    "batch": 32,
    "rate": 0.1,
    "epochs": 1,
    "share": 0.25,
}

log = logging.getLogger("train")


def train(config, data, net):
    optimizer = network.Momentum(list(net.trainable_variables), config["rate"])
    for epoch in range(config["epochs"]):
        losses = []
        for words, labels in data:
            losses.append(network.step(net, optimizer, words, labels))
        log.info("epoch %d: %f", epoch, sum(losses) / len(losses))
    return optimizer


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="reviews.csv")
    parser.add_argument("--epochs", type=int, default=CONFIG["epochs"])
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parsed(arguments)
    config = {**CONFIG, "epochs": options.epochs}
    tf.random.set_seed(config["seed"])
    texts, labels = reviews.read(options.data)
    known, held = reviews.split(texts, labels, config["share"])
    vocabulary = reviews.Vocabulary(config["words"])
    vocabulary.learn(known[0])
    net = network.Network(config)
    optimizer = train(config, reviews.batches(*known, vocabulary, config, shuffle=True), net)
    confusion = evaluation.evaluate(net, reviews.batches(*held, vocabulary, config), config["classes"])
    confusion.show()
    print(f"accuracy {confusion.accuracy():.3f} after {optimizer.steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
