"""Values are outside the given range.

What happened
-------------
A value is smaller or larger than ``ranges`` allows at this path. A model that was trained on values from 0 to 1 gives nonsense for 0 to 255, and an operation may fail or crash on a value that it does not expect.

How to be sure
--------------
The finding names the first such element, the position and the value, and how many elements are affected. The columns of the JSON document show the smallest and the largest value of each path.

How to fix it now
-----------------
If the data are not scaled: ``x = x / 255``, and only once. If a few values are wrong: drop or clip them, ``np.clip(x, low, high)``. If the range is wrong: pass the right one, ``check_dataset(dataset, ranges={"[0]['image']": (0, 255)})``.

How to prevent it
-----------------
Scale in one place, and check the range there.

What it is often mistaken for
-----------------------------
An integer of 32 or 64 bits that is out of range is reported as data-index-out-of-range, because it mostly is a class or a token.

Sources
-------
- https://www.tensorflow.org/tutorials/load_data/images
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import is_index, of_fault


def _match(part: Part) -> Finding | None:
    if part.column is not None and is_index(part.column):
        return None
    return of_fault(
        part,
        "range",
        "is outside its range",
        Fix(text="Scale the values once, or clip them; where the range is too narrow, pass the right one."),
        values=True,
    )


RULE = Rule(
    _match,
    hit="""
        ranges = {"['image']": (0, 1)}
        for i in range(40):
            yield {"image": np.full((2, 2), 255.0 if i == 7 else 0.5, np.float32)}
    """,
    miss="""
        ranges = {"['image']": (0, 1)}
        for i in range(40):
            yield {"image": np.full((2, 2), i % 2, np.float32)}
    """,
)
