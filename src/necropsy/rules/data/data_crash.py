"""The pipeline kills the process.

What happened
-------------
While the dataset was loaded or one of its elements was fetched, native code killed the process: a decoder met a damaged file, a ``py_function`` called a library that crashed, or memory ran out. There is no exception and no traceback.

How to be sure
--------------
The walk runs in a process of its own, under the supervisor of ``necropsy run``. What it was at is noted before every element, and survives the crash. The report of that death, with its stack, is in the same document.

How to fix it now
-----------------
Look at the element that is named: ``dataset.skip(index).take(1)``. Then follow the advice of the rule that explains the death, which is the evidence of this finding: ``necropsy explain RULE``.

How to prevent it
-----------------
Convert files once, in a process of its own; keep the libraries that decode them up to date.

What it is often mistaken for
-----------------------------
data-error: an exception ends no process. In ``tf.data`` several elements are made at a time (parallel map, prefetch), so that a later element than the named one may be at fault.

Sources
-------
- https://www.tensorflow.org/api_docs/python/tf/py_function
"""

from __future__ import annotations

from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule


def _match(part: Part) -> Finding | None:
    died = part.dataset.died
    if part.column is not None or died is None:
        return None
    noun = "batch" if part.dataset.batches else "element"
    if died.index is None:
        at = "before the first element, while the dataset was made"
    elif died.last_index is not None and died.last_index > died.index:
        at = f"at one of the {noun}s {died.index:,} to {died.last_index:,}"
    else:
        at = f"while {noun} {died.index:,} was {'fetched' if died.phase == 'fetching' else 'checked'}"
    lost = "lost a worker process" if died.worker else "killed its process"
    evidence = [Evidence(claim=f"the process was killed {at}", seen=died.how)]
    runs_ahead = died.worker or part.dataset.type == "tf.data.Dataset"
    if runs_ahead and died.phase == "fetching" and died.index is not None:
        what = "worker processes" if died.worker else "prefetch() and parallel calls"
        ahead = f"{what} make later elements before they are asked for"
        evidence.append(Evidence(claim="it can be a later element as well", seen=ahead))
    verdict = died.diagnosis
    fixes: tuple[Fix, ...] = ()
    if verdict is not None:
        evidence += [Evidence(claim=f"{verdict.rule}, {verdict.confidence}", seen=verdict.summary), *verdict.evidence]
        fixes = verdict.fixes
    return Finding(
        evidence=tuple(evidence),
        summary=f"The pipeline {lost} {at}: {verdict.summary if verdict is not None else died.how + '.'}",
        confidence=verdict.confidence if verdict is not None else "certain",
        culprit=verdict.culprit if verdict is not None else None,
        fixes=(*fixes, Fix(text=f"Fetch that {noun} alone, and look at the file or the values that it is made from.")),
    )


RULE = Rule(
    _match,
    beats=("data-error", "data-count"),
    hit="""
        for i in range(40):
            if i == 37:
                os.kill(os.getpid(), signal.SIGSEGV)
            yield np.float32(i)
    """,
    miss="""
        for i in range(40):
            if i == 37:
                raise OSError("truncated file")
            yield np.float32(i)
    """,
)
