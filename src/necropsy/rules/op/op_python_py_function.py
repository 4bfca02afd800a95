"""A Python function that TensorFlow calls on its own threads recurses, or changes shared state.

What happened
-------------
``tf.py_function`` and ``tf.numpy_function`` call Python from threads of TensorFlow. These have a stack of their own, which ``sys.setrecursionlimit`` does not know. With
``map(..., num_parallel_calls=...)`` several calls overlap between two lines of Python: a counter or a buffer that they share gets wrong values, and an array that one resizes while native code reads it
crashes.

How to be sure
--------------
Run the pipeline with ``num_parallel_calls=1`` and ``tf.config.threading.set_inter_op_parallelism_threads(1)``: the error goes away.

How to fix it now
-----------------
Keep a ``threading.Lock`` around what is shared, or return the value instead. Write the recursion as a loop with a ``list`` as its stack.

How to prevent it
-----------------
Give ``tf.py_function`` functions that read only their arguments.

What it is often mistaken for
-----------------------------
Damaged input data, because another element fails each time.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/py_function
- https://docs.python.org/3/library/threading.html#lock-objects
"""

from __future__ import annotations

from necropsy.model import Environment, Fix, SourceUse
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses


def _match(environment: Environment) -> Finding | None:
    return several(_finding(one) for one in uses(environment, "py-function"))


def _finding(one: SourceUse) -> Finding:
    if one.detail == "calls itself":
        return found_use(
            one,
            summary=f"{place_of_use(one)}: TensorFlow calls `{one.name}` on a thread of its own, and it calls itself.",
            confidence="possible",
            fixes=(Fix(text=f"Write `{one.name}` as a loop with a list as its stack."),),
        )
    return found_use(
        one,
        summary=f"{place_of_use(one)}: TensorFlow calls `{one.name}` on several threads, and it changes a shared variable without "
        "a lock.",
        confidence="likely",
        fixes=(Fix(text="Hold a threading.Lock while the variable is changed, or return the value instead."),),
    )


RULE = Rule(
    _match,
    title="A function that TensorFlow calls on its own threads recurses, or changes shared state",
    severity="warning",
    needs=("uses",),
    checks="functions that TensorFlow calls back",
    hit="""
        use py-function parse "detail=changes state"
    """,
    miss="""
        use recursion-limit sys.setrecursionlimit value=1000 stack=8388608
    """,
)
