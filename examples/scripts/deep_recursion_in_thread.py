"""The same op on a Python thread with a stack of 2,000,000 bytes, which no `ulimit -s` changes."""

import sys
import threading

import tensorflow as tf

ops = tf.load_op_library(sys.argv[1])


def work() -> None:
    print(ops.deep_recursion(1.0))  # the line


threading.stack_size(2_000_000)
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
