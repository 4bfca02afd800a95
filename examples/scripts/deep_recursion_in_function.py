"""The same op in a graph: inside tf.function the call site only records it, and running the function executes it."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    return ops.deep_recursion(x) + 1.0


def train() -> None:
    print(step(tf.constant(1.0)))  # the line


train()
