"""Elements have another number of dimensions.

What happened
-------------
An array has more or fewer dimensions than the specification: a grey image (28, 28) among colour images (28, 28, 3), or a batch where a single example is expected.

How to be sure
--------------
The finding names both shapes and the first such element. Without a given spec, the rank that most of the first 32 elements have is taken for right.

How to fix it now
-----------------
Add or remove the dimension where the element is made: ``x[..., np.newaxis]``, ``np.squeeze(x, axis)``. Read images with a fixed number of channels: ``tf.io.decode_image(data, channels=3, expand_animations=False)``.

How to prevent it
-----------------
Fix the number of channels when a file is read. ``tf.ensure_shape(x, (None, None, 3))`` raises where it is wrong.

What it is often mistaken for
-----------------------------
Sizes that differ while the rank is the same are data-shape. If every element has one dimension too many, the dataset may be batched already, or twice.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/io/decode_image
- https://www.tensorflow.org/api_docs/python/tf/ensure_shape
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "rank",
        "has another number of dimensions",
        Fix(
            text="Add or remove the dimension where the element is made; read images with a fixed number of channels.",
            command="x = tf.io.decode_image(data, channels=3, expand_animations=False)",
        ),
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield np.zeros((4, 4) if i == 7 else (4, 4, 3), np.float32)
    """,
    miss="""
        for i in range(40):
            yield np.zeros((4, 4, 1) if i == 7 else (4, 4, 3), np.float32)
    """,
)
