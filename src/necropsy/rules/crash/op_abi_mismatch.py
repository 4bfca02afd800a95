"""A TensorFlow op was built for another TensorFlow.

What happened
-------------
The library of a custom op uses functions of TensorFlow, or of Abseil which TensorFlow brings along, that the installed TensorFlow does not
have under this name. C++ names carry their types: another version, another C++ string ABI, or another version of Abseil gives another name.

How to be sure
--------------
``undefined symbol`` with a name that belongs to ``tensorflow``, ``tsl`` or ``absl`` is the text of the exception. What is in the name says
which: ``B5cxx11`` or ``__cxx11`` the string ABI, ``absl::lts_20230802`` that release of Abseil. ``necropsy doctor --op FILE`` compares all names
of the file with the installed TensorFlow without loading it.

How to fix it now
-----------------
Build the op against the TensorFlow that is installed, with the flags that it prints itself: ``tf.sysconfig.get_compile_flags()`` and
``get_link_flags()``. Do not add ``-D_GLIBCXX_USE_CXX11_ABI`` by hand.

How to prevent it
-----------------
Publish ops for one exact version of TensorFlow (its C++ interface has no stable ABI), or build them where they are used.

What it is often mistaken for
-----------------------------
A missing ``-ltensorflow_framework``: then every TensorFlow name is missing, the simplest first. A missing library.

Sources
-------
- https://www.tensorflow.org/guide/create_op#compile_the_op_using_your_system_compiler_tensorflow_binary_installation
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/using_dual_abi.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import ops, quoting
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence

_NAMESPACE = re.compile(r"_Z\w*?(?P<name>10tensorflow|3tsl|4absl|3xla|15stream_executor)")
_ABSEIL = re.compile(r"lts_(?P<release>\d{8})")
_OF = {
    "10tensorflow": "TensorFlow",
    "3tsl": "TensorFlow",
    "3xla": "TensorFlow",
    "4absl": "Abseil, which comes with TensorFlow,",
}


def _match(crash: Crash) -> Finding | None:
    found = [message for message in messages(crash, "undefined-symbol") if _NAMESPACE.match(message.fields["symbol"])]
    if not found:
        return None
    message = found[-1]
    confidence = told_of_the_end(crash, message, decisive=False)
    if confidence is None:
        return None
    symbol = message.fields["symbol"]
    return Finding(
        evidence=(quote(message, "the dynamic linker's message"), *exit_evidence(crash), *_loaded(crash)),
        summary=f"The op's library needs `{symbol}`, which the installed TensorFlow does not have: {_why(crash, symbol)}.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(
                text="Rebuild the op against the TensorFlow that is installed, with its own flags.",
                command="python -c 'import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags())'",
            ),
            Fix(text="Make the name readable.", command=f"c++filt {quoting.posix(symbol, 'SYMBOL')}"),
        ),
    )


def _why(crash: Crash, symbol: str) -> str:
    """From the file if readable, otherwise from the symbol alone."""
    known = (crash.environment.ops if crash.environment is not None else None) or ()
    one = next((one for one in known if symbol in (one.missing or ())), None)
    return ops.reason(one) if one is not None else _reason(symbol)


def _reason(symbol: str) -> str:
    if abseil := _ABSEIL.search(symbol):
        return f"it was built with Abseil's release {abseil['release']}, as another version of TensorFlow brings it"
    if "B5cxx11" in symbol or "__cxx11" in symbol:
        return "it was built with the new C++ string ABI (_GLIBCXX_USE_CXX11_ABI=1), or for another version"
    if "Ss" in symbol or "RKSs" in symbol:
        return "it was built with the old C++ string ABI (_GLIBCXX_USE_CXX11_ABI=0), or for another version"
    match = _NAMESPACE.match(symbol)
    return f"it was built for another version of {_OF.get(match['name'] if match else '', 'TensorFlow').rstrip(',')}"


def _loaded(crash: Crash) -> Found:
    version = (crash.libraries or {}).get("tensorflow")
    return (Evidence(claim="the TensorFlow that was loaded", seen=version, where="libraries"),) if version else ()


RULE = Rule(
    _match,
    needs=("messages",),
    beats=("python-exception", "exit-status-only", "undefined-symbol"),
    tried=Tried(
        advice="Rebuild the op against the TensorFlow that is installed, with the printed flags.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with TensorFlow 2.20.0 and g++ 12: an "
            "op that was built with ``-D_GLIBCXX_USE_CXX11_ABI=0`` could not be loaded; built with the flags "
            "of the printed command it was, and ran."
        ),
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log tensorflow.python.framework.errors_impl.NotFoundError: /tmp/op.so: undefined symbol: _ZN10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: /tmp/ext.so: undefined symbol: ncclCommInitRankConfig
    """,
)
