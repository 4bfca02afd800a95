"""An index refers to nothing.

What happened
-------------
A class label, a token or an index is negative or too large: there is no such class, row of the embedding table, or
cell. On a CPU, TensorFlow raises InvalidArgumentError. On a GPU, ``tf.gather`` returns zeros, and the loss may become
NaN. In PyTorch the kernel fails with a device-side assert that ends the process.

How to be sure
--------------
The finding names the element, the position and the value. The bounds are those of ``ranges``, or of the shape of a
sparse tensor. For 10 classes the labels are 0 to 9. A label of 10 shows that they were counted from 1.

How to fix it now
-----------------
Map the labels to 0 to n-1: ``labels - 1`` where they start at 1, ``np.unique(labels, return_inverse=True)[1]`` where some are missing. Otherwise enlarge the last layer or the embedding: ``Embedding(vocabulary_size + 1, ...)``.

How to prevent it
-----------------
Pass ``ranges`` with the number of classes or tokens, and check the data before a training on a GPU.

What it is often mistaken for
-----------------------------
A crash of CUDA (device-side assert triggered): the assert is only where the wrong index shows. -1 or -100 may be a mark for *ignore*: then allow it in ``ranges``.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/gather
- https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import is_index, of_fault

_FIX = Fix(
    text="Number classes and tokens from 0, or enlarge the last layer or the embedding table to the largest index + 1.",
    command="labels = np.unique(labels, return_inverse=True)[1]",
)


def _match(part: Part) -> Finding | None:
    if part.fault("index") is not None:
        return of_fault(part, "index", "has an index outside its shape", _FIX, values=True)
    if part.column is None or not is_index(part.column):
        return None
    return of_fault(part, "range", "has an index outside its range", _FIX, values=True)


RULE = Rule(
    _match,
    hit="""
        ranges = {"[1]": (0, 9)}
        for i in range(40):
            yield np.zeros(3, np.float32), np.int64(10 if i == 7 else i % 10)
    """,
    miss="""
        ranges = {"[1]": (0, 9)}
        for i in range(40):
            yield np.zeros(3, np.float32), np.int64(i % 10)
    """,
)
