"""Reads the reviews, and makes batches of numbers of them."""

import csv
import logging

import numpy as np
import tensorflow as tf

log = logging.getLogger("reviews")


class Vocabulary:
    """Numbers for words; 0 is for padding, 1 for words that are not known."""

    def __init__(self, size):
        self.size = size
        self.numbers = {}

    def learn(self, texts):
        counts = {}
        for text in texts:
            for word in text.lower().split():
                counts[word] = counts.get(word, 0) + 1
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        self.numbers = {word: number for number, word in enumerate(ranked[: self.size - 2], 2)}
        log.info("%d of %d words", len(self.numbers), len(ranked))

    def encode(self, text, length):
        found = [self.numbers.get(word, 1) for word in text.lower().split()][:length]
        return found + [0] * (length - len(found))


def read(path):
    texts, labels = [], []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            texts.append(row["text"])
            labels.append(int(row["stars"]))
    return texts, np.array(labels, dtype=np.int64)


def split(texts, labels, share):
    border = int(len(texts) * (1 - share))
    return (texts[:border], labels[:border]), (texts[border:], labels[border:])


def batches(texts, labels, vocabulary, config, shuffle=False):
    encoded = np.array([vocabulary.encode(text, config["length"]) for text in texts], dtype=np.int64)
    data = tf.data.Dataset.from_tensor_slices((encoded, labels))
    if shuffle:
        data = data.shuffle(256, seed=5)
    data = data.map(lambda words, label: (words, tf.cast(label, tf.int64)), num_parallel_calls=2)
    return data.batch(config["batch"]).prefetch(1)
