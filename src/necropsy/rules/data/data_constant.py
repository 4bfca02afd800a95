"""Every value at a path is the same.

What happened
-------------
All values at this path are the same in every element that was seen. A feature that is constant teaches nothing; a label that is constant means that there is only one class, often because data are sorted by class and only the first part was read.

How to be sure
--------------
The finding names the value and how many elements were seen. At least 32 elements must have been checked.

How to fix it now
-----------------
Look at the elements: ``next(iter(dataset))``. Common causes are a column that was never filled, images that could not be read and are all zero, a scaling to 0 by an integer division (``x // 255``), and sorted files with ``take(n)``.

How to prevent it
-----------------
Shuffle the list of files before a part of it is taken.

What it is often mistaken for
-----------------------------
A mask or a sample weight may well be 1 everywhere: this is a note, not a fault.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle
"""

from __future__ import annotations

from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import name_of, starting

_LEAST = 32
"""Elements; of fewer, equal values say nothing."""


def _match(part: Part) -> Finding | None:
    column = part.column
    if column is None or column.minimum is None or column.minimum != column.maximum or column.elements < _LEAST:
        return None
    if part.fault("nan") is not None or part.fault("inf") is not None:
        return None
    seen = f"{column.minimum:g} in all {column.elements:,} elements"
    return Finding(
        evidence=(Evidence(claim="the smallest and the largest value", seen=seen, where=column.path or None),),
        summary=f"{starting(name_of(column))} is {column.minimum:g} everywhere, in {column.elements:,} elements.",
        confidence="certain",
        fixes=(
            Fix(
                text="Look whether the column was ever filled, and whether sorted files were cut before they were shuffled."
            ),
        ),
    )


RULE = Rule(
    _match,
    severity="note",
    hit="""
        for i in range(40):
            yield {"image": np.full((2, 2), i, np.float32), "label": np.int64(3)}
    """,
    miss="""
        for i in range(40):
            yield {"image": np.full((2, 2), i, np.float32), "label": np.int64(i == 39)}
    """,
)
