"""Makes features of rows of text."""

import tensorflow as tf

VOCABULARY = 1000


def parse(line):
    fields = tf.strings.split(line, ",")
    number = tf.strings.to_number(fields[1])
    key = tf.strings.to_number(fields[2], tf.int64)
    return number, key


def is_usable(number, key):
    return tf.math.is_finite(number)


def scaled(number, key):
    return (number - 50.0) / 25.0, key


def pipeline(path, batch, shuffle):
    lines = tf.data.TextLineDataset(path).skip(1)
    data = lines.map(parse, num_parallel_calls=2)
    data = data.filter(is_usable)
    data = data.map(scaled)
    if shuffle:
        data = data.shuffle(shuffle, seed=7)
    return data.batch(batch).prefetch(2)
