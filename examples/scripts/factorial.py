"""The op of ops/factorial.cc with the number that is given: its value is the depth of the recursion."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def evaluate(n: int) -> None:
    print(ops.factorial(n))  # the line


evaluate(int(sys.argv[2]))
