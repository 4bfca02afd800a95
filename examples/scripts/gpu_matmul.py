"""A product placed on a GPU, on a machine that has none."""

import tensorflow as tf


def train() -> None:
    with tf.device("/GPU:0"):
        a = tf.ones([1000, 1000])
        print(tf.reduce_sum(tf.matmul(a, a)))  # the line


train()
