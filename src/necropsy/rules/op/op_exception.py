"""A C++ exception can leave the kernel of a custom op.

What happened
-------------
TensorFlow is compiled without exception handling around kernels: an exception that leaves ``Compute`` or the constructor finds no handler, and ``std::terminate`` ends the process with SIGABRT.
``std::stoi`` and its relatives throw for a text that is not a number, ``.at()`` throws for an index or key that is not there, and ``throw`` in a helper reaches as far as
no ``try`` stops it.

How to be sure
--------------
Call the op with the input that the finding describes: the process ends with ``terminate called after throwing an instance of``.

How to fix it now
-----------------
Check before the call: ``absl::SimpleAtoi`` or ``strings::safe_strto64`` instead of ``std::stoi``, a comparison with ``size()`` before ``.at()``, ``find()`` for a map. Or catch the exception in ``Compute``, and
set a Status: ``catch (const std::exception& e) { context->SetStatus(errors::Internal(e.what())); return; }``.

How to prevent it
-----------------
Let helpers return a Status. Put ``try`` and ``catch`` around calls to libraries that throw.

What it is often mistaken for
-----------------------------
A failed CHECK, which also ends with SIGABRT, but logs ``Check failed:``.

Sources
-------
- https://en.cppreference.com/w/cpp/error/terminate
- https://en.cppreference.com/w/cpp/string/basic_string/stol
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_WHY = {
    "throw": "throws `{what}`",
    "parse": "calls `{what}`, which throws for a text that is not a number or too large",
    "index": "calls `{what}`, which throws where there is no such element",
    "key": "calls `{what}`, which throws where there is no such key",
    "start": "calls `{what}`, which throws where the text is shorter than that",
}
_FIX = {
    "throw": "Return a Status instead, or catch the exception in the kernel and call SetStatus.",
    "parse": "Use absl::SimpleAtoi or strings::safe_strto64, and return errors::InvalidArgument where it answers false.",
    "index": "Compare the index with size() before, and return errors::OutOfRange where it is too large.",
    "key": "Use find(), and return errors::NotFound where it gives end().",
    "start": "Compare the position with size() before, and return errors::OutOfRange where it is too large.",
}


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-exception")))


def _finding(one: CodeDefect) -> Finding:
    why = _WHY[one.case].format(what=one.names["what"])
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} {why}. Nothing between it and the kernel catches the exception, "
        "so that the process ends with std::terminate.",
        fixes=(Fix(text=_FIX[one.case]),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("code",),
    checks="exceptions",
    hit="""
        defect op-exception parse FooOp::Compute what=std::stoi in=FooOp::Compute
    """,
    miss="""
        defect op-check-on-input check FooOp::Compute macro=CHECK condition=n>0
    """,
)
