"""A floating-point calculation ended the program, because traps for it were switched on.

What happened
-------------
A division by zero, an overflow or an operand without a result (0/0, the square root of -1) raised SIGFPE. By default
floating-point numbers never do this: the result is inf or nan, and the program continues. Some code has unmasked the
processor's exceptions: the program itself, or a library that did not restore the state.

How to be sure
--------------
The signal is SIGFPE with a code that begins with FPE_FLT, and the processor raised it. Integer division has other
codes.

How to fix it now
-----------------
Decide which of the two is the bug. If the traps are wanted, look in the named function for the divisor, overflow or
operand. If they are not, find who switched them on: ``feenableexcept``, ``fesetenv``, ``_MM_SET_EXCEPTION_MASK``;
compilers do it for Fortran with ``-ffpe-trap=...``.

How to prevent it
-----------------
Switch traps on in debug builds only, and restore the state (``feholdexcept``, ``fesetenv``) before calling other
libraries: code that was written for masked exceptions divides by zero on purpose.

What it is often mistaken for
-----------------------------
An integer division by zero, which raises the same signal and needs no traps.

Sources
-------
- https://man7.org/linux/man-pages/man3/fenv.3.html (feenableexcept)
- https://man7.org/linux/man-pages/man2/sigaction.2.html (FPE_FLTDIV, FPE_FLTINV, ...)
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import died_by, instruction_at_fault, on_windows, real_fault
from necropsy.rule import NEVER, Finding, Occurs, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.jit import generated_code
from necropsy.rules.wording import sentence, who

_DID = {
    "FPE_FLTDIV": "divided a floating-point number by zero",
    "FPE_FLTOVF": "calculated a floating-point number that is too large",
    "FPE_FLTUND": "calculated a floating-point number that is too small",
    "FPE_FLTRES": "calculated a floating-point number that had to be rounded",
    "FPE_FLTINV": "did a floating-point operation that has no result, such as 0/0 or the root of -1",
}


def _match(crash: Crash) -> Finding | None:
    fault = crash.fault
    if fault is None or fault.signal != "SIGFPE" or not (fault.code or "").startswith("FPE_FLT"):
        return None
    if not real_fault(crash) or on_windows(crash):
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    did = _DID.get(fault.code or "", "did a floating-point operation that was trapped")
    return Finding(
        evidence=died_by(crash, "SIGFPE") + instruction_at_fault(crash) + generated_code(crash) + python_line(crash),
        summary=f"{sentence(name)} {did}. By default that gives inf or nan; here traps were switched on, so it raised SIGFPE.",
        confidence="certain",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"If the traps are wanted, look in {name} for a divisor of 0, an overflow or an operand such as log(-1)."
            ),
            Fix(
                text="If not, find the code that switched them on (feenableexcept, fesetenv, _MM_SET_EXCEPTION_MASK; gfortran -ffpe-trap) and restore the state after it."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="A floating-point trap ended the program",
    needs=("fault",),
    beats=("exit-status-only", "killed-by-signal"),
    occurs=Occurs(
        windows=NEVER,
        but="Most processors for AArch64 cannot trap floating-point exceptions: ``feenableexcept`` fails there.",
    ),
    tried=Tried(
        advice="Look in the named function for a divisor of 0, an overflow or an invalid operand.",
        result="crash gone",
        how=(
            "The named function divided by a count that was 0; with a check of it the program ended normally, "
            "the traps still on."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGFPE FPE_FLTDIV 0x7f0000001000
        at 0x7f0000001000 divsd xmm0, xmm1
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Mean(double, double) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGFPE FPE_INTDIV 0x7f0000001000
        at 0x7f0000001000 idiv ecx
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame StepsPerEpoch(int, int) @ op.so in op.cc:31 takes 32
    """,
)
