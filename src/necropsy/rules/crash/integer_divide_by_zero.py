"""An integer was divided by zero.

What happened
-------------
Native code divided an integer by zero, or took a remainder by zero. The processor refuses that, and the kernel ends
the process by SIGFPE. Despite the signal's name (*floating point exception*), floating-point numbers are not
involved: they give inf or nan. Dividing the smallest integer by -1 ends the same way, because the result does not
fit.

How to be sure
--------------
The signal is SIGFPE with FPE_INTDIV. On Windows, the status is 0xC0000094, or 0xC0000095 if the result does not fit.
The instruction is ``div`` or ``idiv``, and its divisor is in the evidence.

How to fix it now
-----------------
Find the division or ``%`` in the named function. In ML code the divisor is nearly always a size: an empty batch, a
dimension of 0, a stride or a group count of 0 from an attribute, a worker count. Check it before: ``OP_REQUIRES(ctx,
n > 0, ...)``.

How to prevent it
-----------------
Test every op with an empty tensor. ``-fsanitize=integer-divide-by-zero`` names the line.

What it is often mistaken for
-----------------------------
A floating-point problem: nan and inf never end a process unless the exceptions were switched on (``feenableexcept``).
Then the code begins with FPE_FLT.

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html (FPE_INTDIV)
- https://clang.llvm.org/docs/UndefinedBehaviorSanitizer.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, instruction_at_fault, on_windows, real_fault
from necropsy.rule import X86_64, Finding, Found, Occurs, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.jit import generated_code
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    died = died_by(crash, "SIGFPE")
    if not died or (crash.fault is not None and not real_fault(crash)):
        return None
    code = crash.fault.code if crash.fault else None
    if code is not None and code.startswith("FPE_FLT"):
        return None
    instruction = crash.instruction
    divides = bool(instruction and instruction.mnemonic in {"div", "idiv"})
    zero = _zero_divisor(crash)
    culprit = culprit_of(crash)
    name = who(culprit)
    summary = f"{sentence(name)} divided an integer by zero."
    if _smallest_by_minus_one(crash) or code == "FPE_INTOVF":
        summary = f"{sentence(name)} divided integers so that the result does not fit: the smallest one by -1."
    elif not divides and code != "FPE_INTDIV":
        summary = f"{sentence(name)} was stopped by SIGFPE, which nearly always is a division of an integer by zero."
    return Finding(
        evidence=died + instruction_at_fault(crash) + generated_code(crash) + zero + python_line(crash),
        summary=summary,
        confidence="certain" if divides or code == "FPE_INTDIV" else "likely",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"In {name}, check the divisor before `/` and `%`: it is usually a size that is 0 for an empty tensor."
            ),
            Fix(
                text="The compiler finds the line: rebuild with the check and run once.",
                command=f"{'clang' if on_windows(crash) else 'g++'} -g -fsanitize=integer-divide-by-zero ...",
            ),
        ),
    )


def _divisor(crash: Crash) -> int | None:
    """None if it is not a register with a known value."""
    instruction = crash.instruction
    if instruction is None or not instruction.text or instruction.operands:
        return None
    register = instruction.text.split()[-1]
    value = instruction.registers.get(register)
    if value is None:
        # The registers are captured under their full names: ecx is the lower half of rcx.
        wide = {"e" + name[1:]: value for name, value in instruction.registers.items() if name.startswith("r")}
        value = wide.get(register)
        return value & 0xFFFFFFFF if value is not None else None
    return value


def _smallest_by_minus_one(crash: Crash) -> bool:
    """The dividend is its type's smallest integer, so that the quotient does not fit.

    Compilers extend rax's sign into rdx before ``idiv``; then only divisors 0 and, for this dividend, -1 fault. The
    operand distinguishes 32 and 64 bits.
    """
    instruction, registers = crash.instruction, crash.registers
    if instruction is None or registers is None or instruction.mnemonic != "idiv" or _divisor(crash) == 0:
        return False
    wide = "qword" in (instruction.text or "") or re.search(r" r\w+$", instruction.text or "") is not None
    low, high = registers.get("rax"), registers.get("rdx")
    if low is None or high is None:
        return False
    bits = 64 if wide else 32
    mask = (1 << bits) - 1
    return low & mask == 1 << (bits - 1) and high & mask == mask


def _zero_divisor(crash: Crash) -> Found:
    if _divisor(crash) != 0 or crash.instruction is None:
        return ()
    return (
        Evidence(
            claim="the divisor is zero",
            seen=f"{crash.instruction.text}: divisor 0",
            where="registers of the thread that crashed",
        ),
    )


RULE = Rule(
    _match,
    beats=("exit-status-only", "killed-by-signal"),
    occurs=Occurs(
        linux=X86_64,
        macos=X86_64,
        but="On AArch64 such a division gives 0, and a remainder the dividend: the program goes on with a wrong number. "
        "Only Windows' compilers check the divisor there themselves, and end the program with the same status.",
    ),
    tried=Tried(
        advice="In the named function, check the divisor before ``/`` and ``%``.",
        result="crash gone",
        how="The named function returned early for a divisor of 0; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGFPE FPE_INTDIV 0x7f0000001000
        at 0x7f0000001000 idiv ecx
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame StepsPerEpoch(int, int) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGFPE FPE_FLTDIV 0x7f0000001000
        at 0x7f0000001000 divsd xmm0, xmm1
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Mean(double, double) @ op.so in op.cc:31 takes 32
    """,
)
