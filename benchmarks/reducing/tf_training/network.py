"""A bag of words with two dense layers, and what trains it."""

import tensorflow as tf


class Dense(tf.Module):
    def __init__(self, inputs, outputs, seed, name=None):
        super().__init__(name=name)
        self.weights = tf.Variable(0.3 * tf.random.stateless_normal([inputs, outputs], [seed, 2]))
        self.bias = tf.Variable(tf.zeros([outputs]))

    def __call__(self, x):
        return tf.matmul(x, self.weights) + self.bias


class Network(tf.Module):
    def __init__(self, config):
        super().__init__(name="network")
        self.embedding = tf.Variable(tf.random.stateless_normal([config["words"], config["width"]], [config["seed"], 1]))
        self.hidden = Dense(config["width"], config["hidden"], config["seed"])
        self.output = Dense(config["hidden"], config["classes"], config["seed"] + 1)

    def __call__(self, words):
        vectors = tf.gather(self.embedding, words)
        mask = tf.cast(words > 0, tf.float32)[:, :, tf.newaxis]
        mean = tf.reduce_sum(vectors * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)
        return self.output(tf.nn.relu(self.hidden(mean)))


class Momentum:
    """Gradient descent with momentum."""

    def __init__(self, variables, rate, factor=0.9):
        self.variables = variables
        self.rate = rate
        self.factor = factor
        self.speeds = [tf.Variable(tf.zeros_like(one)) for one in variables]
        self.steps = 0

    def apply(self, gradients):
        self.steps += 1
        for variable, speed, gradient in zip(self.variables, self.speeds, gradients):
            speed.assign(self.factor * speed - self.rate * tf.convert_to_tensor(gradient))
            variable.assign_add(speed)


def step(network, optimizer, words, labels):
    with tf.GradientTape() as tape:
        logits = network(words)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    gradients = tape.gradient(loss, optimizer.variables)
    optimizer.apply(gradients)
    return float(loss)
