"""Row splits do not fit to the values.

What happened
-------------
The row splits of a ragged tensor (or the offsets of a packed array) must start at 0, never descend, and end at the
number of values. Here they do not. Kernels that trust them read outside the values. That gives wrong results, or a
crash without a traceback.

How to be sure
--------------
The finding names the first split that is wrong, its value, and what it has to be. The splits are read from ragged tensors, from CSR and CSC matrices, and from dicts with ``values`` and ``row_splits`` (or ``offsets``).

How to fix it now
-----------------
Rebuild the tensor with the check that is on by default: ``tf.RaggedTensor.from_row_splits(values, row_splits, validate=True)``. Where splits are computed from lengths: ``np.concatenate([[0], np.cumsum(lengths)])``.

How to prevent it
-----------------
Never pass ``validate=False`` for splits that were read from a file; store lengths, and compute the splits.

What it is often mistaken for
-----------------------------
A crash in an operation on ragged tensors (tf.ragged, segment_sum, EmbeddingBag), which only shows the wrong splits.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/RaggedTensor
- https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "ragged",
        "has row splits that do not fit to its values",
        Fix(
            text="Compute the row splits from the lengths of the rows, and let from_row_splits validate them.",
            command="row_splits = np.concatenate([[0], np.cumsum(lengths)])",
        ),
        values=True,
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield {"values": np.arange(6), "row_splits": np.array([0, 4, 2, 6] if i == 7 else [0, 2, 4, 6])}
    """,
    miss="""
        for i in range(40):
            yield {"values": np.arange(6), "row_splits": np.array([0, 4, 4, 6] if i == 7 else [0, 2, 4, 6])}
    """,
)
