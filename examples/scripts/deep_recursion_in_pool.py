"""The same op in a parallel tf.data map: it runs on a thread of TensorFlow's pool, and no Python frame leads to it."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def train() -> None:
    numbers = tf.data.Dataset.range(4).map(lambda n: ops.deep_recursion(tf.cast(n, tf.float32)), num_parallel_calls=2)
    for number in numbers:  # the line
        print(number)


train()
