"""Elements have another type.

What happened
-------------
An array has another type (dtype) than the specification. ``from_generator`` raises an exception. A batch of mixed
types fails or is converted silently. A native operation that was built for float32 refuses float64.

How to be sure
--------------
The finding names the type that was seen and the one that is expected, and the first such element. Without a given spec, the type that most of the first 32 elements have is taken for right.

How to fix it now
-----------------
Convert where the element is made: ``np.asarray(x, np.float32)``. An array of objects (dtype ``object``) comes from rows of different lengths or from None in a column: find those first.

How to prevent it
-----------------
Name the type in every ``np.array(..., dtype=...)``, and read tables with fixed types: ``pd.read_csv(file, dtype=...)``.

What it is often mistaken for
-----------------------------
A Python number (``3``, ``0.5``) has no size, and fits every integer or float type.

Sources
-------
- https://numpy.org/doc/stable/user/basics.types.html
- https://www.tensorflow.org/api_docs/python/tf/TensorSpec
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "dtype",
        "has another type",
        Fix(text="Convert every array to one type where the element is made.", command="x = np.asarray(x, np.float32)"),
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield np.zeros(3, np.float64 if i == 7 else np.float32)
    """,
    miss="""
        for i in range(40):
            yield np.zeros(3, np.float32) if i else np.zeros(3, np.float32)[::-1]
    """,
)
