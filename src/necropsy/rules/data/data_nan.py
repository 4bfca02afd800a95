"""The data contain NaN.

What happened
-------------
An array of the dataset holds NaN (not a number). The loss and every weight that it reaches become NaN in the same step, and training goes on without an error but learns nothing.

How to be sure
--------------
The value itself: the finding names the element, the position in it, and how many elements are affected. Print it: ``next(itertools.islice(iter(dataset), index, None))``.

How to fix it now
-----------------
Find where it comes from: missing cells of a table (pandas reads an empty cell as NaN), 0/0 in a normalisation (an image of one colour has a standard deviation of 0), the logarithm of a negative number. Then drop such elements
(``dataset.filter``), or replace the value: ``np.nan_to_num(x)``.

How to prevent it
-----------------
Add a small number to every divisor (``x / (std + 1e-6)``). Run ``necropsy doctor --data module:function`` after every change of the data.

What it is often mistaken for
-----------------------------
A learning rate that is too high: then the data are finite, and the loss becomes NaN only after some steps. ``tf.debugging.enable_check_numerics()`` finds that one.

Sources
-------
- https://numpy.org/doc/stable/reference/generated/numpy.isfinite.html
- https://www.tensorflow.org/api_docs/python/tf/debugging/enable_check_numerics
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "nan",
        "has NaN",
        Fix(
            text="Look for missing cells and for divisions by zero where these values are made; drop the elements or replace the value.",
            command="x = np.nan_to_num(x)",
        ),
        values=True,
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield {"image": np.full((2, 3), np.nan if i == 7 else i, np.float32)}
    """,
    miss="""
        for i in range(40):
            yield {"image": np.full((2, 3), np.inf if i == 7 else i, np.float32)}
    """,
)
