"""A Python exception ended the program. Nothing crashed.

What happened
-------------
An exception was not caught, so Python printed the traceback and exited with code 1. There is no native crash: no
signal, no memory fault. The traceback says everything, and its last line is the reason.

How to be sure
--------------
The process exited by itself with a code that is not 0, and a traceback is the last thing in the log.

How to fix it now
-----------------
Read the last line first, then the innermost line that is your own code: it is named here. Where several tracebacks
are chained (*During handling of the above exception ...*), the first one is the cause, the last one is its
consequence. ``python -m pdb -c continue train.py`` stops where it is raised.

How to prevent it
-----------------
Do not put ``except Exception: pass`` or ``print(e)`` around it: you need the traceback.

What it is often mistaken for
-----------------------------
A crash. A worker's exception that is printed in the parent. A traceback that was handled and printed on the way: the
program would not have ended.

Sources
-------
- https://docs.python.org/3/tutorial/errors.html
- https://docs.python.org/3/library/traceback.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Proposal
from necropsy.predicates import quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.culprit import spell
from necropsy.rules.experiment_proposals import of_recursion_limit
from necropsy.rules.python import (
    at_the_parsers_limit,
    ended_by_exception,
    exit_evidence,
    own_traceback,
    place_in,
    python_culprit,
)


def _match(crash: Crash) -> Finding | None:
    message = own_traceback(crash)
    if message is None or not ended_by_exception(crash):
        return None
    fields = message.fields
    kind = fields.get("exception", "an exception")
    if kind == "SystemExit":
        return None
    text = f": {fields['text'].rstrip('.')}" if fields.get("text") else ""
    place = place_in(message)
    at = f" at {spell(place)}" if place else ""
    said = f"{kind}{text}"
    origin: Found = ()
    if "first_exception" in fields:
        first = fields["first_exception"] + (f": {fields['first_text']}" if "first_text" in fields else "")
        origin = (Evidence(claim="the first exception of the chain", seen=first, where=message.where),)
    known = crash.exit is not None and crash.exit.kind == "exited"
    return Finding(
        evidence=(
            quote(message, "a traceback was printed"),
            Evidence(claim="its last line", seen=said, where=message.where),
            *origin,
            *exit_evidence(crash),
        ),
        summary=f"Python ended with {said if len(said) <= 200 else said[:200] + ' ...'}{at}; this is an exception, not a native crash.",
        confidence="certain"
        if known
        and crash.exit is not None
        and crash.exit.code == 1
        and "exception" in fields
        and "handled" not in fields
        else "likely",
        culprit=python_culprit(crash),
        fixes=(
            *((_NESTED,) if at_the_parsers_limit(crash) else ()),
            Fix(
                text=f"Look at {spell(place)}, and read the traceback from its last line upwards."
                if place
                else "Read the traceback from its last line upwards."
            ),
        ),
    )


_NESTED = Fix(
    text="Check how deeply the source is nested that is parsed there (brackets, operators, blocks): until CPython 3.11 the "
    "parser raises MemoryError for more than 6,000 levels, however much memory is free. Break it up, or build the value "
    "without eval."
)


def _experiments(crash: Crash) -> tuple[Proposal, ...]:
    message = own_traceback(crash)
    return of_recursion_limit() if message is not None and message.fields.get("exception") == "RecursionError" else ()


RULE = Rule(
    _match,
    title="A Python exception, no native crash",
    needs=("messages",),
    beats=("exit-status-only",),
    experiments=_experiments,
    tried=Tried(
        advice="Look at the named line, and read the traceback from its last line upwards.",
        result="crash gone",
        how="The named line read a key that was not there; with ``get`` the program ended normally.",
        test="tests/rules/test_advice.py::test_python_exception",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log     main()
        log   File "/home/u/train.py", line 7, in main
        log     return int("x")
        log ValueError: invalid literal for int() with base 10: 'x'
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log     with tf.compat.v1.Session() as s: s.run(x)
        log RuntimeError: The Session graph is empty. Add operations to the graph before calling run().
    """,
)
