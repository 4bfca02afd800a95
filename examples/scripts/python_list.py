"""A function with a Python list of ten million items. The list lies on the heap: no stack notices it."""

import tensorflow as tf


def train() -> None:
    items = [0] * 10_000_000
    print(tf.constant(len(items)))


train()
