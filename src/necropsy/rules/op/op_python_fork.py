"""Processes are forked after TensorFlow has started its threads.

What happened
-------------
``fork`` copies the memory of a process, but only the thread that called it. Locks that TensorFlow's other threads held stay locked in the child for ever, and CUDA does not
work in it at all. The child hangs at its first operation, or crashes.

How to be sure
--------------
``necropsy run --timeout 1m python train.py`` shows where each thread of the child stands; see ``fork-after-threads``.

How to fix it now
-----------------
Start workers by ``multiprocessing.get_context("spawn")``, or start them before TensorFlow is used for the first time.

How to prevent it
-----------------
Write ``multiprocessing.set_start_method("spawn")`` in the part that begins with ``if __name__ == "__main__":``.

What it is often mistaken for
-----------------------------
Slow data loading, because nothing fails: the child waits.

Sources
-------
- https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
- https://man7.org/linux/man-pages/man2/fork.2.html
"""

from __future__ import annotations

from necropsy.model import Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses


def _match(environment: Environment) -> Finding | None:
    return several(
        found_use(
            one,
            summary=f"{place_of_use(one)} starts processes with `{one.name}` after TensorFlow was used: its threads and locks do "
            "not survive a fork.",
            confidence="likely",
            fixes=(Fix(text='Use `multiprocessing.get_context("spawn")`, or start the processes before TensorFlow.'),),
        )
        for one in uses(environment, "fork")
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("uses",),
    checks="forks",
    hit="""
        use fork os.fork "detail=after tensorflow"
    """,
    miss="""
        use recursion-limit sys.setrecursionlimit value=1000 stack=8388608
    """,
)
