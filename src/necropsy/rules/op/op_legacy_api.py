"""A custom op uses a part of TensorFlow's API that is gone or going.

What happened
-------------
Reference inputs (``Ref(float)``) belong to the variables of TensorFlow 1: variables of TensorFlow 2 are resources, and cannot be passed to such an op. ``PersistentTensor`` and ``allocate_persistent`` were removed, ``Status::OK()`` became
``absl::OkStatus()``, and string tensors hold ``tstring``, not ``std::string``. The op no longer compiles with a recent release, or cannot be used in it.

How to be sure
--------------
Compile the op with the newest release of TensorFlow.

How to fix it now
-----------------
Use what the finding names: resource variables with ``ResourceHandle`` inputs, a ``Tensor`` with ``allocate_temp``, ``absl::OkStatus()`` (``OkStatus()`` from TensorFlow 2.10 on), ``flat<tstring>()``.

How to prevent it
-----------------
Build the op in continuous integration with the newest release too.

What it is often mistaken for
-----------------------------
A broken installation of TensorFlow: the errors come from its headers.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://github.com/tensorflow/tensorflow/blob/master/RELEASE.md
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-legacy-api")))


def _finding(one: CodeDefect) -> Finding:
    names, places = one.names, one.numbers["places"]
    op = f" (op {names['op']})" if names.get("op") else ""
    also = f", in {places:,} places" if places > 1 else ""
    return found(
        one,
        summary=f"{place(one)}: `{names['what']}`{op} belongs to an old API of TensorFlow{also}.",
        fixes=(Fix(text=f"Use {names['instead']} instead."),),
    )


RULE = Rule(
    _match,
    title="A custom op uses an old API of TensorFlow",
    severity="note",
    needs=("code",),
    checks="old APIs",
    hit="""
        defect op-legacy-api ref Foo op=Foo what=Ref(float) "instead=resource variables" places=1
    """,
    miss="""
        defect op-no-shape-function none Foo op=Foo outputs=y
    """,
)
