"""Sizes that belong together differ.

What happened
-------------
The arrays of one element or batch have different lengths (32 images, 31 labels), arrays that are cut along their first axis have different lengths, or elements were to be batched that have different shapes. The pipeline raises, or, worse,
images are paired with the labels of others.

How to be sure
--------------
The finding names the path, its length and the one that it is compared with. For batches the first sizes must agree; elsewhere they are compared only where the first elements show that they vary together.

How to fix it now
-----------------
Find the file or the row that has no partner. Compare the lengths where the arrays are made: ``assert len(images) == len(labels)``. For sequences of different lengths use ``padded_batch`` instead of ``batch``, in PyTorch a ``collate_fn`` that pads.

How to prevent it
-----------------
Keep what belongs together in one record (one TFRecord example, one row), and shuffle records, never two arrays.

What it is often mistaken for
-----------------------------
data-shape: there one array differs from the specification. A smaller last batch is consistent where all its arrays are smaller.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#padded_batch
- https://docs.pytorch.org/docs/stable/data.html#dataloader-collate-fn
"""

from __future__ import annotations

import re

from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault

_UNEQUAL = re.compile(
    r"Cannot batch tensors with different shapes|Cannot add tensor to the batch|stack expects each tensor to be equal size"
    r"|inhomogeneous shape|all input arrays must have the same shape|Attempted to pad to a smaller size"
)
_FIX = Fix(
    text="Find the element whose parts have different lengths, and pad sequences: padded_batch, or a collate_fn that pads."
)


def _match(part: Part) -> Finding | None:
    if part.column is not None:
        return of_fault(part, "inconsistent", "has a length that does not fit to the others", _FIX, values=True)
    raised = part.dataset.raised
    if raised is None or not _UNEQUAL.search(raised.message):
        return None
    noun = "batch" if part.dataset.batches else "element"
    at = f"{noun} {raised.index:,}" if raised.index is not None else f"the first {noun}"
    text = " ".join(raised.message.split())[:300]
    return Finding(
        evidence=(Evidence(claim=f"the pipeline raised {raised.type} at {at}", seen=text),),
        summary=f"Elements of different shapes were to be batched: {raised.type} at {at}.",
        confidence="certain",
        fixes=(_FIX,),
    )


RULE = Rule(
    _match,
    beats=("data-error",),
    hit="""
        for i in range(40):
            n = 10 + i
            yield np.zeros((n, 4), np.float32), np.zeros(n - 1 if i == 37 else n, np.int64)
    """,
    miss="""
        for i in range(40):
            n = 10 + i
            yield np.zeros((n, 4), np.float32), np.zeros(n, np.int64)
    """,
)
