"""The op of ops/deep_recursion.cc, called once. An eager op runs on the thread that calls it: here the main thread."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def train() -> None:
    print(ops.deep_recursion(1.0))  # the line


train()
