"""Code for TensorFlow 1 that TensorFlow 2 does not have.

What happened
-------------
Sessions, placeholders and variable scopes were removed from the module ``tensorflow`` in version 2. The line raises an AttributeError. Mixing the old interface with the new one in
one program makes graphs that the other one does not see.

How to be sure
--------------
``python -c "import tensorflow as tf; tf.Session"`` raises ``AttributeError: module 'tensorflow' has no attribute 'Session'``.

How to fix it now
-----------------
Replace ``import tensorflow as tf`` by ``import tensorflow.compat.v1 as tf`` and call ``tf.disable_v2_behavior()`` before anything else. Or rewrite the part: functions with ``@tf.function`` in place of sessions.

How to prevent it
-----------------
State the version that a program is written for in its requirements: ``tensorflow>=2``.

What it is often mistaken for
-----------------------------
A broken or an outdated installation: newer releases do not bring it back.

Sources
-------
- https://www.tensorflow.org/guide/migrate
- https://www.tensorflow.org/api_docs/python/tf/compat/v1/Session
"""

from __future__ import annotations

from necropsy.model import Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses


def _match(environment: Environment) -> Finding | None:
    return several(
        found_use(
            one,
            summary=f"{place_of_use(one)} uses `{one.name}`, which TensorFlow 2 does not have.",
            confidence="likely",
            fixes=(
                Fix(text="Write `import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()`, or rewrite it."),
            ),
        )
        for one in uses(environment, "tf1-session")
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("uses",),
    checks="names of TensorFlow 1",
    hit="""
        use tf1-session tf.Session
    """,
    miss="""
        use recursion-limit sys.setrecursionlimit value=1000 stack=8388608
    """,
)
