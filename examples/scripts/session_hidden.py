"""The same inside a try that hides it: the program ends as if all were well, without its result."""

import tensorflow as tf

x = tf.constant(2.0) * 3.0


def train() -> None:
    try:
        with tf.compat.v1.Session() as session:
            print(session.run(x))
    except Exception:
        pass


train()
