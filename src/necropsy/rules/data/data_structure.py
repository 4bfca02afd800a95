"""Elements have different keys or nesting.

What happened
-------------
Some elements have other keys, another number of parts or another nesting than the specification, or None where there should be an array. Such elements cannot be batched: ``from_generator`` and the collate function of a DataLoader raise,
and code that asks for the missing key fails.

How to be sure
--------------
The finding names the keys that are missing and those that are not expected, and the first such element. Without a given spec, the keys that most of the first 32 elements have are taken as correct.

How to fix it now
-----------------
Make every element alike in the function that yields it: ``{"image": image, "label": label}``. For an optional part, yield a placeholder (zeros, -1, an empty string), not None.

How to prevent it
-----------------
Build elements in one place, from a fixed list of keys.

What it is often mistaken for
-----------------------------
A shape that differs (data-shape): there the keys are right. A spec that is out of date: then every element is affected.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/nest
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#element_spec
"""

from __future__ import annotations

from necropsy.model import Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import of_fault


def _match(part: Part) -> Finding | None:
    return of_fault(
        part,
        "structure",
        "is not as in the other elements",
        Fix(
            text="Yield the same keys and the same nesting in every element; for a missing part, put a placeholder in its place."
        ),
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield {"image": np.zeros(3), "label": i} if i != 7 else {"image": np.zeros(3), "lable": i}
    """,
    miss="""
        for i in range(40):
            yield {"image": np.zeros(3), "label": i} if i != 7 else {"label": i, "image": np.zeros(3)}
    """,
)
