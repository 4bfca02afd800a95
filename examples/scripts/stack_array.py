"""The op of ops/stack_array.cc, called once."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def train() -> None:
    print(ops.stack_array(3))  # the line


train()
