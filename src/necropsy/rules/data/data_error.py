"""The pipeline raises an exception.

What happened
-------------
The function that makes the dataset, or the code that makes one of its elements, raised an exception. The walk goes on behind such an element where the dataset allows it (``tf.data``, Keras sequences); a generator is over.

How to be sure
--------------
The exception, its text, the index of the element that was being fetched, and the line of your code that it came from. ``tf.data`` may work ahead (prefetch, parallel map), so that the element which was being made can be a later one.

How to fix it now
-----------------
Fetch that element alone: ``dataset.skip(index).take(1)``, or ``sequence[index]``. A file that cannot be read is the most frequent cause: delete it or download it again. To leave such elements out: ``dataset.ignore_errors()``.

How to prevent it
-----------------
Verify files when they are downloaded (size or checksum), and convert them once, before the training.

What it is often mistaken for
-----------------------------
data-crash: there the process is killed, and there is no exception. Shapes that cannot be batched are data-inconsistent.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/data/Dataset#ignore_errors
"""

from __future__ import annotations

from necropsy.model import Culprit, Evidence, Fix, Part
from necropsy.rule import Finding, Rule


def _match(part: Part) -> Finding | None:
    raised = part.dataset.raised
    if part.column is not None or raised is None:
        return None
    noun = "batch" if part.dataset.batches else "element"
    at = f"while {noun} {raised.index:,} was fetched" if raised.index is not None else "before the first element"
    text = " ".join(raised.message.split())[:300] or raised.type
    place = raised.place
    line = f"{place.file}:{place.line} in {place.function}" if place is not None else None
    more = f", and for {raised.times - 1:,} more" if raised.times > 1 else ""
    evidence = [Evidence(claim=f"{raised.type} {at}{more}", seen=text, where=line)]
    return Finding(
        evidence=tuple(evidence),
        summary=f"The pipeline raised {raised.type} {at}{more}.",
        confidence="certain",
        culprit=Culprit(python=place) if place is not None else None,
        fixes=(Fix(text="Fetch that element alone and correct it, or leave it out; look at the line that is named."),),
    )


RULE = Rule(
    _match,
    hit="""
        for i in range(40):
            yield np.float32(1 / (i - 37))
    """,
    miss="""
        for i in range(40):
            try:
                yield np.float32(1 / (i - 37))
            except ZeroDivisionError:
                yield np.float32(0)
    """,
)
