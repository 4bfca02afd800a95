"""A virtual function was called on an object that was not constructed yet, or already destroyed.

What happened
-------------
A C++ object was used while only its base class existed: during construction, during destruction, or after it. The
base class has no body for the function (it is *pure virtual*). So the runtime prints ``pure virtual method called``
and aborts. In ML programs this mostly happens at the end, when a thread still works on an object that the main thread
is destroying.

How to be sure
--------------
The line is in the log (on Windows ``R6025 - pure virtual function call`` in a box), or ``__cxa_pure_virtual`` is on
the stack of the thread that died. The next frame made the call.

How to fix it now
-----------------
Stop and join every thread that uses the object before it is destroyed: ``del`` datasets and iterators, close sessions
and executors, before the interpreter exits. In C++: join in the *most derived* class's destructor, not in the base's.

How to prevent it
-----------------
Never call virtual functions from constructors or destructors; start threads after construction, join them before
destruction.

What it is often mistaken for
-----------------------------
An uncaught C++ exception: ``terminate called without an active exception`` follows it in the log, but there is no
exception.

Sources
-------
- https://isocpp.org/wiki/faq/strange-inheritance#calling-virtuals-from-ctors
- https://itanium-cxx-abi.github.io/cxx-abi/abi.html#pure-virtual
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import calls, says
from necropsy.rule import Finding, Rule, Tried, any_of
from necropsy.rules.aborts import aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    seen = any_of(
        says(crash, "pure-virtual", claim="its last words"),
        calls(crash, "__cxa_pure_virtual", first=16, claim="the C++ runtime refused the call"),
    )
    if not seen or not may_have_aborted(crash):
        return None
    died = aborted(crash)
    culprit = culprit_of(crash)
    return Finding(
        evidence=seen + died + python_line(crash),
        summary=f"{sentence(who(culprit))} called a virtual function of an object that was being constructed or destroyed.",
        confidence="certain" if died else "likely",
        culprit=culprit,
        fixes=(Fix(text="Stop and join the threads that use the object before it is destroyed."),),
    )


RULE = Rule(
    _match,
    title="A virtual function was called on a partly destroyed object",
    beats=("abort", "killed-by-signal", "exit-status-only", "uncaught-cpp-exception"),
    tried=Tried(
        advice="Stop and join the threads that use the object before it is destroyed.",
        result="crash gone",
        how=(
            "The destructor of the derived class joined the thread, instead of that of its base; the program "
            "then ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame __cxa_pure_virtual @ libstdc++.so.6 takes 32
        frame Base::~Base() @ op.so in op.cc:8 takes 32
        log pure virtual method called
        log terminate called without an active exception
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame abort @ libc.so.6 takes 160
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame std::thread::~thread() @ op.so takes 32
        log terminate called without an active exception
    """,
)
