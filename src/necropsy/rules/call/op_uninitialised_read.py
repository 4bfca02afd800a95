"""The op reads memory that it has not set.

What happened
-------------
The same call gives another result when the memory that the op gets from ``malloc`` or ``allocate_output`` holds other bytes before. New memory is not empty: it holds what was there last. So a part of the result is old memory: an output
of which not every element is written, or a temporary that is added to before it is set to zero.

How to be sure
--------------
The call was made several times with new memory filled with one byte, and several times with another: the results were the same for the same byte, and differed between the two. The test of the finding does it again:
``NECROPSY_GUARD=fill=1 necropsy run --guard python script.py``, then with ``fill=127``.

How to fix it now
-----------------
Set every element before it is read or returned. For a tensor, ``output->flat<float>().setZero();`` right after ``allocate_output`` or ``allocate_temp``; for an array, ``std::vector<float> sums(n, 0.0f)`` or ``calloc`` instead of ``malloc``.
Look first at the branches and loops that leave elements out: empty inputs, the last block, ``continue``.

How to prevent it
-----------------
Run the op's tests under MemorySanitizer or valgrind, or keep the test that ``necropsy fuzz`` wrote. Prefer containers that set their elements.

What it is often mistaken for
-----------------------------
An op whose result is random on purpose: its results differ for the same byte as well. A data race (op-nondeterministic): then the results differ from run to run, whatever was in the memory.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://clang.llvm.org/docs/MemorySanitizer.html
"""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule

_MEANT = frozenset({"Empty", "EmptyTensorList", "ParallelConcatStart", "_ParallelConcatStart", "DebugIdentity"})
"""Ops of TensorFlow that promise no elements."""


def _match(comparison: CallComparison) -> Finding | None:
    if not comparison.by_fill or comparison.varies or comparison.target in _MEANT:
        return None
    shown = " and ".join(comparison.results)
    evidence = [
        Evidence(
            claim="the result changes with the bytes in new memory, and with nothing else",
            seen=f"{comparison.runs} calls with each of two bytes: {shown}"
            if shown
            else f"{comparison.runs} calls each",
            where="calls with the guard allocator's fill byte",
        )
    ]
    return Finding(
        evidence=tuple(evidence),
        summary=f"The result of {comparison.target} depends on what was in its memory before: it reads elements that it has not set.",
        confidence="certain",
        culprit=None if comparison.is_python else Culprit(op=comparison.target),
        fixes=(Fix(text="Set every element of the outputs and temporaries before it is read, also for empty inputs."),),
    )


RULE = Rule(
    _match,
    hit="""{"target": "ScaleRows", "call": "ops.ScaleRows(x=tf.constant(np.full([3], 1.0, np.float32)))", "runs": 3, "by_fill": true,
        "results": ["[2.0, 2.0, 3.39e+38]", "[2.0, 2.0, 2.37e-38]"]}""",
    miss="""{"target": "Shuffle", "call": "ops.Shuffle(x=tf.constant(np.full([3], 1.0, np.float32)))", "runs": 3, "varies": true}""",
)
