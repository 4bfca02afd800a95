"""tf.nest.flatten of a list that is nested a million times: the data fails before TensorFlow computes anything.

With `deeper` it does what the web advises against the RecursionError that follows: it raises Python's limit, and with
it takes away the only guard that this recursion, which runs in C++, has.
"""

import sys

import tensorflow as tf

if sys.argv[1:] == ["deeper"]:
    sys.setrecursionlimit(2_000_000)
data: list = []
for _ in range(1_000_000):
    data = [data]


def prepare() -> None:
    print(len(tf.nest.flatten(data)))  # the line


prepare()
