"""The data contain infinity.

What happened
-------------
An array of the dataset holds an infinity. In the first subtraction or multiplication by zero it becomes NaN, and so do the loss and the weights.

How to be sure
--------------
The value itself: the finding names the element, the position in it, and how many elements are affected.

How to fix it now
-----------------
Look for divisions by zero, for ``log(0)``, and for numbers that are too large for their type: float16 ends at 65,504, so that 70,000 becomes infinity in ``x.astype('float16')``. Clip before the conversion:
``np.clip(x, -65504, 65504)``.

How to prevent it
-----------------
Scale the data before they are converted to a smaller type, and add a small number inside logarithms and divisors.

What it is often mistaken for
-----------------------------
NaN in the data: it is reported by itself (data-nan). A loss that becomes infinite while the data are finite: then the learning rate is too high.

Sources
-------
- https://numpy.org/doc/stable/reference/generated/numpy.isfinite.html
- https://numpy.org/doc/stable/reference/generated/numpy.finfo.html
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "inf",
        "has infinite values",
        Fix(
            text="Look for a division by zero, log(0), or a conversion to float16 of values above 65,504.",
            command="x = np.clip(x, -65504, 65504)",
        ),
        values=True,
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield np.full((2, 3), np.inf if i == 7 else i, np.float16)
    """,
    miss="""
        for i in range(40):
            yield np.full((2, 3), 65504 if i == 7 else i, np.float16)
    """,
)
