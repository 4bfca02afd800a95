"""There are fewer or more elements than the dataset declares.

What happened
-------------
The dataset ended before it had yielded as many elements as its length says, or it went on after them. Keras counts steps by the declared length: with too few elements training stops with *ran out of data*, with too many the rest is never used.

How to be sure
--------------
The length (``len(dataset)``, the cardinality of ``tf.data``) beside the number of elements that were yielded. Compared only where the walk reached the end without an exception.

How to fix it now
-----------------
Correct ``__len__``: for batches it is ``math.ceil(n / batch_size)``. For ``tf.data`` correct ``assert_cardinality``. If the data are right, look for files that are missing or were only partly written.

How to prevent it
-----------------
Compute the length from the same list that the elements are made from.

What it is often mistaken for
-----------------------------
An iterator that was used before: a generator yields its elements only once, and what was taken from it is missing here.

Sources
-------
- https://keras.io/api/utils/python_utils/#pydataset-class
- https://www.tensorflow.org/api_docs/python/tf/data/experimental/assert_cardinality
"""

from __future__ import annotations

from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule


def _match(part: Part) -> Finding | None:
    dataset = part.dataset
    if part.column is not None or dataset.ended != "end" or dataset.raised is not None:
        return None
    if dataset.declared is None or dataset.declared == dataset.elements:
        return None
    which = "fewer" if dataset.elements < dataset.declared else "more"
    return Finding(
        evidence=(
            Evidence(claim="the length that the dataset declares", seen=f"{dataset.declared:,}"),
            Evidence(claim="the elements that it yielded", seen=f"{dataset.elements:,}"),
        ),
        summary=f"The dataset yielded {dataset.elements:,} elements, {which} than the {dataset.declared:,} that it declares.",
        confidence="certain",
        fixes=(Fix(text="Correct the length (`__len__`, `assert_cardinality`), or look for data that are missing."),),
    )


RULE = Rule(
    _match,
    severity="warning",
    hit="""
        length = 41
        for i in range(40):
            yield np.float32(i)
    """,
    miss="""
        length = 40
        for i in range(40):
            yield np.float32(i)
    """,
)
