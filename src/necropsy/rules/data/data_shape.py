"""Elements have other sizes.

What happened
-------------
An array has the right number of dimensions but another size along one of them. Elements of different sizes cannot be batched, and a layer with fixed weights refuses them.

How to be sure
--------------
The finding names both shapes and the first such element. Sizes that may vary are None in the spec. Without a given spec, a size that at least nine tenths of the first 32 elements have is taken for right; a smaller last batch is not reported.

How to fix it now
-----------------
Bring all to one size: ``tf.image.resize(x, (224, 224))``, cut or pad. If the size is meant to vary, say so: give a spec with None there, ``tf.TensorSpec((None, 28), tf.float32)``, and batch with ``padded_batch``.

How to prevent it
-----------------
Resize when a file is read, and put ``tf.ensure_shape`` behind it.

What it is often mistaken for
-----------------------------
A smaller last batch (``drop_remainder=True`` avoids it). A grey image among colour images of the same rank shows here: (28, 28, 1).

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#padded_batch
- https://www.tensorflow.org/api_docs/python/tf/TensorSpec
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "shape",
        "has other sizes",
        Fix(
            text="Bring all elements to one size, or give a spec with None where the size may vary.",
            command="x = tf.image.resize(x, (224, 224))",
        ),
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield np.zeros((27 if i == 7 else 28, 28), np.float32)
    """,
    miss="""
        for i in range(40):
            yield np.zeros((20 + i % 9, 28), np.float32)
    """,
)
