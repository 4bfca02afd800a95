"""The op of ops/tree.cc: a wide tree, a deep one that is only destroyed, or a deep one that is walked first."""

import sys

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])
LEVELS, CHILDREN, WALK = {
    "wide": (1, 10_000, True),
    "deep": (100_000, 0, False),
    "walked": (100_000, 0, True),
}[sys.argv[2]]


def train() -> None:
    print(ops.tree(LEVELS, CHILDREN, walk=WALK))  # the line


train()
