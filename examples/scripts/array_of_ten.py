"""The op of ops/array_of_ten.cc, asked for eleven elements of its ten."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def train() -> None:
    print(ops.array_of_ten(11))  # the line


train()
