"""TensorFlow 1 code runs under TensorFlow 2.

What happened
-------------
In TensorFlow 1, you built a graph and ran it in a ``Session``. TensorFlow 2 computes at once (*eager*):
``tf.constant(3)`` is a value, not a node of a graph. A ``Session`` made beside it has an empty graph, or another one,
and raises an exception. That is not a crash, but the exception is often caught and printed as one line, and then
looks like one.

How to be sure
--------------
One of TensorFlow's own messages is in the log: *The Session graph is empty*, or *Tensor.graph is undefined when eager
execution is enabled* (an eager tensor was fetched). Others are *is not an element of this graph*, *Cannot interpret
feed_dict key as Tensor*, *tf.placeholder() is not compatible with eager execution*, *module 'tensorflow' has no
attribute 'Session'*.

How to fix it now
-----------------
Drop the Session: in TensorFlow 2 the tensor *is* the result (``x.numpy()``), and ``@tf.function`` makes a graph where
speed needs it. For old code that should stay as it is, put ``import tensorflow.compat.v1 as tf;
tf.disable_v2_behavior()`` before everything else, or build and run within ``with tf.Graph().as_default():``.

How to prevent it
-----------------
``tf_upgrade_v2`` converts scripts. Let exceptions through: ``except Exception as e: print(e)`` is what makes a clear
error look like a crash.

What it is often mistaken for
-----------------------------
A native crash of TensorFlow, because the program just stops; a broken installation.

Sources
-------
- https://www.tensorflow.org/guide/migrate
- https://www.tensorflow.org/guide/migrate/tf1_vs_tf2
"""

from __future__ import annotations

from necropsy.model import Crash, Fix, Message, Proposal
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import spell
from necropsy.rules.experiment_proposals import without_v2_behaviour
from necropsy.rules.python import exit_evidence, last_traceback, place_in, python_culprit

_KINDS = (
    "tf1-session-graph-empty",
    "tf1-session-other-graph",
    "tf1-session-eager-fetch",
    "tf1-session-feed-key",
    "tf1-removed-name",
    "tf1-placeholder-eager",
)
_WHAT = {
    "tf1-session-graph-empty": "a Session ran an empty graph, because TensorFlow 2 computes eagerly and puts nothing into it",
    "tf1-session-other-graph": "a Session was handed a tensor of another graph",
    "tf1-session-eager-fetch": "a Session was handed an eager tensor, which is a value and not a node of a graph",
    "tf1-session-feed-key": "a Session was fed for something that is not in its graph",
    "tf1-removed-name": "the code uses a name of TensorFlow 1 that TensorFlow 2 lacks",
    "tf1-placeholder-eager": "the code uses a function that only works in TensorFlow 1's graphs",
}


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, *_KINDS)
    if not found or crash.fault is not None:
        return None
    message = found[-1]
    traceback = last_traceback(crash)
    raised = traceback is not None and (traceback.fields.get("text") or "?") in message.text
    place = place_in(traceback) if traceback is not None and raised else None
    at = f", at {spell(place)}" if place else ""
    hidden = "" if raised else "; the program caught the exception and printed only its text"
    return Finding(
        evidence=(quote(message, "TensorFlow's own message"), *exit_evidence(crash)),
        summary=f"TensorFlow 1 code runs under TensorFlow 2: {_WHAT[message.kind]}{at}{hidden}.",
        confidence="certain" if raised or crash.exit is not None else "likely",
        culprit=python_culprit(crash) if raised else None,
        fixes=_fixes(message),
    )


_OLD = Fix(
    text="To run the old code unchanged, switch TensorFlow 2's behaviour off before anything else.",
    command="import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()",
)


def _fixes(message: Message) -> tuple[Fix, ...]:
    if message.kind in {"tf1-removed-name", "tf1-placeholder-eager"}:
        return (_OLD, Fix(text="Or convert the script.", command="tf_upgrade_v2 --infile old.py --outfile new.py"))
    return (Fix(text="Drop the Session: in TensorFlow 2 the tensor is the result, x.numpy() is its value."), _OLD)


def _experiments(crash: Crash) -> tuple[Proposal, ...]:
    # A name that the module has not is no matter of behaviour.
    found = messages(crash, *(kind for kind in _KINDS if kind != "tf1-removed-name"))
    return (without_v2_behaviour(_OLD),) if found else ()


RULE = Rule(
    _match,
    title="TensorFlow 1 code under TensorFlow 2",
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
    experiments=_experiments,
    tried=Tried(
        advice="Drop the Session: in TensorFlow 2 the tensor is the result, x.numpy() is its value.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with TensorFlow 2.20.0 and "
            "examples/scripts/session.py: with ``x.numpy()`` it printed its result."
        ),
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log     s.run(x)
        log   File "/usr/lib/python3.11/site-packages/tensorflow/python/client/session.py", line 969, in run
        log RuntimeError: The Session graph is empty. Add operations to the graph before calling run().
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log RuntimeError: no data
    """,
)
