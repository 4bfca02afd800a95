"""An eager tensor handed to a session of TensorFlow 1: a Python exception, and no crash."""

import tensorflow as tf

x = tf.constant(2.0) * 3.0


def train() -> None:
    with tf.compat.v1.Session() as session:
        print(session.run(x))  # the line


train()
