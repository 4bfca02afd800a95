"""One element takes a large share of memory.

What happened
-------------
One element (or one batch) takes more than a tenth of the memory that the process may use. A pipeline holds several at
a time (shuffle, prefetch, parallel map). The OOM killer may then kill the process, without a traceback.

How to be sure
--------------
The finding names the element, its bytes and the limit: that of the control group (container) where it is below the machine's memory.

How to fix it now
-----------------
Make batches smaller, cut long sequences (``x[:max_length]``), and resize images before they are batched. Lower ``shuffle(buffer_size)`` and ``prefetch``: each of them holds as many elements.

How to prevent it
-----------------
Look at the size of the largest element in the JSON document (``dataset.largest``), and multiply it by what the pipeline holds.

What it is often mistaken for
-----------------------------
A leak: there the memory grows from step to step while elements are small.

Sources
-------
- https://www.tensorflow.org/guide/data_performance_analysis
"""

from __future__ import annotations

from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.wording import size

_SHARE = 10
"""The part of the memory that one element may take, as a divisor."""


def _match(part: Part) -> Finding | None:
    dataset = part.dataset
    if part.column is not None or dataset.memory is None or dataset.largest * _SHARE < dataset.memory:
        return None
    noun = "Batch" if dataset.batches else "Element"
    share = f"{dataset.largest / dataset.memory:.0%}"
    return Finding(
        evidence=(
            Evidence(
                claim=f"the size of the largest one, {noun.lower()} {dataset.largest_index}", seen=size(dataset.largest)
            ),
            Evidence(claim="the memory that the process may use", seen=size(dataset.memory)),
        ),
        summary=f"{noun} {dataset.largest_index} takes {size(dataset.largest)}, {share} of the memory that there is.",
        confidence="certain",
        fixes=(Fix(text="Make batches smaller or elements shorter, and let shuffle and prefetch hold fewer of them."),),
    )


RULE = Rule(
    _match,
    severity="warning",
    hit="""
        memory = 100_000
        for i in range(40):
            yield np.zeros(5000 if i == 7 else 10 + i, np.float32)
    """,
    miss="""
        memory = 100_000
        for i in range(40):
            yield np.zeros(10 + i, np.float32)
    """,
)
