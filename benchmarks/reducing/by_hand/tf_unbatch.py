import numpy as np
import tensorflow as tf

tf.raw_ops.Unbatch(
    batched_tensor=tf.zeros([70000, 0], tf.float16),
    batch_index=np.int64(5),
    id=tf.constant([[5, -5]], tf.int64),
    timeout_micros=7,
)
