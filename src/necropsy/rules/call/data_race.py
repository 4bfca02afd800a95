"""An op whose results differ as long as several threads work: the page is that of the rule on crashes of this name."""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule
from necropsy.rules.call.op_nondeterministic import different_results
from necropsy.rules.crash import data_race as of_crashes


def _match(comparison: CallComparison) -> Finding | None:
    if not comparison.varies or not comparison.cured_by_one_thread or comparison.is_stateful or comparison.is_python:
        return None
    return Finding(
        evidence=(
            different_results(comparison),
            Evidence(
                claim="with one thread, the results are the same",
                seen=f"{2 * comparison.runs} calls, repeated in new processes",
                where="calls with intra_op_parallelism_threads = 1",
            ),
        ),
        summary=f"{comparison.target} gives different results for the same call if several threads do its work.",
        confidence="likely",
        culprit=Culprit(op=comparison.target),
        fixes=(
            Fix(
                text="Let each shard write to elements of its own, or protect what they share by a mutex or an atomic."
            ),
        ),
    )


RULE = Rule(
    _match,
    page=of_crashes.RULE.page,
    tried=of_crashes.RULE.tried,
    hit="""{"target": "CountTokens", "call": "ops.CountTokens(x=tf.constant(np.full([4096], 1, np.int32)))", "runs": 3, "varies": true,
        "cured_by_one_thread": true, "results": ["[4096]", "[4093]"]}""",
    miss="""{"target": "CountTokens", "call": "ops.CountTokens(x=tf.constant(np.full([4096], 1, np.int32)))", "runs": 3, "varies": true}""",
)
