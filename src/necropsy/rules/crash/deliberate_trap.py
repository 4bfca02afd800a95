"""The program stopped itself by a trap instruction.

What happened
-------------
The processor met an instruction whose only purpose is to stop the program: ``ud2`` (SIGILL) or ``int3`` (SIGTRAP);
on AArch64 ``brk`` (SIGTRAP) or ``udf`` (SIGILL).
The compiler puts one where execution must never arrive: after ``__builtin_trap()`` and ``__builtin_unreachable()``,
or at the end of a function that should return a value and does not. Checks of ``-fsanitize=undefined
-fsanitize-trap`` and of hardened containers (libc++) use it too. Chromium-derived code and some assertions use it
instead of ``abort()``.

How to be sure
--------------
The instruction at the program counter is ``ud2``, ``ud1`` or ``int3``. Every processor knows these; so the processor
is not too old. On AArch64 the number in ``brk`` says which trap it is: 0x3e8 is gcc's ``__builtin_trap()``, 0x1 clang's,
and 0x55NN is a check of ``-fsanitize=undefined``, whose kind the summary names.

How to fix it now
-----------------
Look at the named function for a path that has no ``return``, a ``switch`` without a ``default``, ``unreachable()``,
or an index check of a hardened library. Compile with ``-Wreturn-type -O0`` and step through it, or with
``-fsanitize=undefined`` without the trap option, which prints the reason.

How to prevent it
-----------------
``-Werror=return-type``; error returns in place of ``unreachable()`` on paths that data can choose.

What it is often mistaken for
-----------------------------
A processor that is too old, since SIGILL is the same signal: there the instruction is one such as AVX.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Other-Builtins.html (__builtin_trap)
- https://clang.llvm.org/docs/UndefinedBehaviorSanitizer.html (-fsanitize-trap)
- https://developer.arm.com/documentation/ddi0602/latest/Base-Instructions/BRK--Breakpoint-instruction-
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import calls, died_by, instruction_at_fault, on_windows, sent_by_another
from necropsy.rule import Finding, Occurs, Rule, Tried
from necropsy.rules.aarch64 import trap_means
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.jit import MNEMONICS, generated_code, is_trap
from necropsy.rules.last_words import as_evidence, in_a_sentence, of_process
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    died = died_by(crash, "SIGILL", "SIGTRAP")
    if not died or not is_trap(crash) or sent_by_another(crash) or _gave_up_on_an_exception(crash):
        return None
    instruction = crash.instruction
    seen = bool(instruction and instruction.mnemonic in MNEMONICS)
    breakpoint_hit = (
        crash.fault is not None and crash.fault.signal == "SIGTRAP" and crash.fault.code in {"SI_KERNEL", "TRAP_BRKPT"}
    )
    raised = crash.fault is not None and crash.fault.sent_by_itself is True
    culprit = culprit_of(crash)
    name = who(culprit)
    of_x86 = crash.fault is not None and (crash.fault.code == "SI_KERNEL" or on_windows(crash))
    stop = "`int3`" if of_x86 else "a breakpoint"
    what = f"`{instruction.mnemonic}`" if seen and instruction else (stop if breakpoint_hit else "a trap")
    summary = f"{sentence(name)} reached {what}, an instruction that marks a place where execution must never arrive."
    meaning = trap_means(crash)
    if meaning is not None and instruction is not None:
        summary = f"{sentence(name)} stopped the program at `{instruction.text}`: {meaning}."
    if raised:
        summary = f"{sentence(name)} stopped the program itself by raising SIGTRAP."
    words = of_process(crash) if seen or breakpoint_hit else None
    if words is not None:
        summary += f" {in_a_sentence(words)}"
    return Finding(
        evidence=died + instruction_at_fault(crash) + generated_code(crash) + as_evidence(words) + python_line(crash),
        summary=summary,
        last_words=words,
        confidence="certain" if seen or raised or breakpoint_hit else "likely",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"Look in {name} for a path without a return, an unreachable(), or a failed check of a hardened library."
            ),
            Fix(
                text="Let the compiler say which check it is.",
                command=f"{'clang' if on_windows(crash) else 'g++'} -g -O0 -Wreturn-type -fsanitize=undefined ...",
            ),
        ),
        possible=() if seen or raised or culprit else causes_of(crash),
    )


def _gave_up_on_an_exception(crash: Crash) -> bool:
    """``std::terminate`` trapped after a throw: the exception ended the program."""
    terminating = calls(crash, r"std::terminate|__std_terminate", first=12, claim="C++ called std::terminate")
    thrown = calls(crash, r"__cxa_throw|__cxa_rethrow|std::rethrow_exception", claim="a C++ exception was thrown")
    return bool(terminating and thrown and crash.cpp_exception is not None and crash.cpp_exception.type)


RULE = Rule(
    _match,
    beats=("illegal-instruction", "exit-status-only", "killed-by-signal"),
    occurs=Occurs(
        but="The signal is SIGILL on x86-64 (``ud2``), and SIGTRAP on AArch64 (``brk``), whose number says which check it was."
    ),
    tried=Tried(
        advice="Look in the named function for a path without a return, an unreachable(), or a failed check.",
        result="crash gone",
        how=(
            "The switch in the named function had a ``__builtin_trap()`` for values that were not expected; "
            "returning there, the program ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGILL ILL_ILLOPN 0x7f0000001000
        at 0x7f0000001000 ud2
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Unreachable(int) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGILL ILL_ILLOPN 0x7f0000001000
        at 0x7f0000001000 vpaddd zmm0, zmm1, zmm2
        feature avx512f missing
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame AddKernel(int*, int const*) @ op.so in op.cc:31 takes 32
    """,
)
