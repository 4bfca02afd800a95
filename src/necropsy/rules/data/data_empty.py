"""Some arrays are empty.

What happened
-------------
An array of an element has no value: one of its sizes is 0. The mean of it is NaN, a convolution or a reshape fails, and several kernels of TensorFlow have crashed on empty input.

How to be sure
--------------
The finding names the shape and the first such element. A size of 0 that the spec asks for is not reported.

How to fix it now
-----------------
Find out why nothing was read: an empty file, a filter that dropped everything, a slice whose end is before its start. Drop such elements: ``dataset.filter(lambda x: tf.size(x) > 0)``.

How to prevent it
-----------------
Check the length where a file is read, before it becomes a tensor.

What it is often mistaken for
-----------------------------
A text that is empty is not reported: it is a value. A dataset without any element ends the check with one line.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#filter
- https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "empty",
        "is empty",
        Fix(
            text="Find out why nothing was read for these elements, and drop them.",
            command="dataset = dataset.filter(lambda x: tf.size(x) > 0)",
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    hit="""
        for i in range(40):
            yield {"boxes": np.zeros((0 if i == 7 else 1 + i % 5, 4), np.float32)}
    """,
    miss="""
        for i in range(40):
            yield {"boxes": np.zeros((1 + i % 5, 4), np.float32)}
    """,
)
