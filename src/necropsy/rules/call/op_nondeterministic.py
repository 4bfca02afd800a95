"""The op gives different results for the same call.

What happened
-------------
The same call with the same inputs gave different results in one process, though the op is not registered as stateful. TensorFlow may compute such an op once and use the result again, or compute it at another time: a model that uses it
gives other results than its author expects. The usual causes are threads that write to the same element, memory that is not set, and state that a kernel keeps from one call to the next.

How to be sure
--------------
Make the call in a loop and compare the results; the test of the finding does. Sums of floats may differ in the last digits by the order of the additions: differences below 0.1 % are not counted.

How to fix it now
-----------------
Look for elements that several shards of ``Shard`` write to, for members of the kernel that ``Compute`` changes, and for elements that are not set. If the result is random on purpose, register the op with ``.SetIsStateful()``.

How to prevent it
-----------------
Give each shard outputs of its own, keep no state in members of a kernel, and run the op's tests under ThreadSanitizer. ``tf.config.experimental.enable_op_determinism()`` makes TensorFlow's own ops deterministic.

What it is often mistaken for
-----------------------------
op-uninitialised-read: then the results follow the old contents of the memory, and stay the same if these do. A data race: there, one thread gives the same result each time. Rounding: the order in which threads add floats changes the last digits.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule


def _match(comparison: CallComparison) -> Finding | None:
    if not comparison.varies or comparison.cured_by_one_thread or comparison.is_stateful or comparison.is_python:
        return None
    return Finding(
        evidence=(different_results(comparison),),
        summary=f"{comparison.target} gives different results for the same call, and is not registered as stateful.",
        confidence="certain",
        culprit=Culprit(op=comparison.target),
        fixes=(
            Fix(
                text="Look for elements that several threads write to, for memory that is not set, and for state in members of the kernel."
            ),
        ),
    )


def different_results(comparison: CallComparison) -> Evidence:
    """What calls gave whose results differ though nothing else did."""
    shown = " and ".join(comparison.results)
    calls = f"{2 * comparison.runs} calls"
    return Evidence(
        claim="the same call gave different results",
        seen=f"{calls}: {shown}" if shown else calls,
        where="calls in one process",
    )


RULE = Rule(
    _match,
    severity="warning",
    hit="""{"target": "CountTokens", "call": "ops.CountTokens(x=tf.constant(np.full([4096], 1, np.int32)))", "runs": 3, "varies": true,
        "results": ["[4096]", "[4093]"]}""",
    miss="""{"target": "DrawToken", "call": "ops.DrawToken(n=tf.constant(np.full([], 8, np.int32)))", "runs": 3, "varies": true, "is_stateful": true}""",
)
