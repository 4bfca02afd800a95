"""The processor does not know this instruction.

What happened
-------------
The program met an instruction that this processor cannot execute, and the kernel ended it by SIGILL. Nearly always
the library was built for a newer processor: AVX, AVX2, FMA or AVX-512 on an old or small one, in a virtual machine
that hides them, or under emulation. TensorFlow's wheels need AVX since 1.6. Otherwise the program ran into data as if
it were code.

How to be sure
--------------
The instruction is shown in the evidence with the feature that it needs, and whether this processor has that feature.
``grep flags /proc/cpuinfo`` lists what it has. Elsewhere it is 0xC000001D (-1073741795, Windows) or ``Illegal
instruction: 4`` (macOS). On a Mac with an ARM processor, an x86-64 Python runs under Rosetta 2, which does not know
AVX before macOS 15. The crash report's code type then says *translated*, and an arm64 Python solves it.

How to fix it now
-----------------
Install a build for this processor (``conda install tensorflow`` has builds without AVX; older wheels; your own build
with ``-march=x86-64``), or run on another machine. In a virtual machine, pass the processor through (``-cpu host``).
Compile your own op without ``-march=native``.

How to prevent it
-----------------
Never compile with ``-march=native`` what runs elsewhere. Check ``/proc/cpuinfo`` at the start of a job on a mixed
cluster.

What it is often mistaken for
-----------------------------
A deliberate trap (``ud2``), which the compiler puts where execution must never arrive. SIGILL on a processor with
AVX-512 can be one of AMD's abandoned instructions (XOP, FMA4, TBM).

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html (ILL_ILLOPN)
- https://www.tensorflow.org/install/pip#hardware_requirements
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, instruction_at_fault, messages, on_windows, quote, real_fault
from necropsy.rule import Finding, Found, Occurs, Rule, Tried
from necropsy.rules import musl
from necropsy.rules.aarch64 import no_landing_pad, refused_signature
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.experiment_proposals import of_instruction
from necropsy.rules.jit import generated_code, is_trap
from necropsy.rules.windows_loader import status_of
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    said = messages(crash, "cpu-feature-missing")
    died = died_by(crash, "SIGILL")
    if (forbidden := _privileged(crash)) is not None:
        return forbidden
    if (not died and not said) or (crash.fault is not None and (not real_fault(crash) or not died) and not said):
        return None
    if is_trap(crash) or no_landing_pad(crash) or refused_signature(crash, None):
        return None
    instruction = crash.instruction
    words = tuple(quote(message, "the library says what it needs") for message in said[-1:])
    feature = (instruction.cpu_feature if instruction else None) or (said[-1].fields.get("feature") if said else None)
    missing = bool(instruction and instruction.cpu_has_feature is False) or bool(said)
    culprit = culprit_of(crash)
    name = who(culprit)
    library = f" (in {culprit.module})" if culprit and culprit.module and culprit.module not in name else ""
    found: Found = ()
    if instruction is not None and instruction.cpu_feature:
        state = {True: "it has it", False: "it does not have it", None: "unknown whether it has it"}[
            instruction.cpu_has_feature
        ]
        found = (
            Evidence(
                claim=f"the instruction needs {instruction.cpu_feature}",
                seen=f"this processor: {state}",
                where="system information of the dump" if on_windows(crash) else "/proc/cpuinfo",
            ),
        )
    if feature and missing:
        summary = f"This processor has no {feature.upper()}, and {name}{library} was built to use it."
    elif feature:
        summary = f"The processor refused an instruction of {feature.upper()} in {name}{library}."
    else:
        summary = f"The processor met an instruction in {name}{library} that it does not know."
    if crash.environment is not None and "Rosetta" in (crash.environment.cpu or ""):
        summary = f"{summary[:-1]}; it was translated for an ARM processor by Rosetta 2, which does not know AVX before macOS 15."
    return Finding(
        evidence=died + words + instruction_at_fault(crash) + generated_code(crash) + found + python_line(crash),
        summary=summary,
        confidence="certain" if missing else "likely",
        culprit=culprit,
        fixes=(
            Fix(
                text="Install a build for this processor, or run on one that has the feature; in a virtual machine pass the host's processor through.",
                command='python -c "import numpy; numpy.show_runtime()"'
                if status_of(crash) is not None
                else "grep -m1 flags /proc/cpuinfo",
            ),
            Fix(text="Compile your own op without -march=native."),
        ),
        possible=() if feature or instruction_at_fault(crash) or culprit else causes_of(crash),
    )


_PRIVILEGED = frozenset(
    [
        "hlt",
        "cli",
        "sti",
        "in",
        "out",
        "insb",
        "insd",
        "outsb",
        "outsd",
        "lgdt",
        "lidt",
        "lldt",
        "ltr",
        "lmsw",
        "clts",
        "invd",
        "wbinvd",
        "rdmsr",
        "wrmsr",
        "rdpmc",
        "swapgs",
        "sysret",
        "sysexit",
        "invlpg",
    ]
)
"""x86 instructions that need the kernel's rights (Intel SDM, volume 3, 5.9); a user's program gets SIGSEGV for them."""


def _privileged(crash: Crash) -> Finding | None:
    fault, instruction = crash.fault, crash.instruction
    if fault is not None and fault.code == "ILL_PRVOPC":
        known = instruction is not None and instruction.mnemonic
        return _forbidden(
            crash, f"`{instruction.mnemonic}`, an instruction" if instruction and known else "an instruction"
        )
    if fault is None or fault.signal != "SIGSEGV" or fault.code != "SI_KERNEL" or instruction is None:
        return None
    if musl.trapped_in_malloc(crash):
        return None
    return (
        _forbidden(crash, f"`{instruction.mnemonic}`, an instruction") if instruction.mnemonic in _PRIVILEGED else None
    )


def _forbidden(crash: Crash, what: str) -> Finding:
    culprit = culprit_of(crash)
    return Finding(
        evidence=died_by(crash, "SIGSEGV", "SIGILL") + instruction_at_fault(crash) + python_line(crash),
        summary=f"{sentence(who(culprit))} reached {what} that only the kernel may execute: "
        "most probably the program ran into something that is not its code.",
        confidence="certain",
        culprit=culprit,
        fixes=(
            Fix(
                text="Look for a jump into data, a function that does not return a value, or padding behind the end of a function."
            ),
        ),
        title="An instruction that only the kernel may execute",
    )


RULE = Rule(
    _match,
    beats=("exit-status-only", "abort", "killed-by-signal"),
    experiments=of_instruction,
    occurs=Occurs(
        but="AVX, FMA and XOP are x86-64's. On AArch64 it is SVE, or an atomic instruction of a newer processor (LSE)."
    ),
    tried=Tried(
        advice="Install a build for this processor, or run on one that has the feature.",
        result="crash gone",
        how=("The program was built without the AMD instruction that this processor lacks, and ended normally."),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGILL ILL_ILLOPN 0x7f0000001000
        at 0x7f0000001000 vpaddd zmm0, zmm1, zmm2
        feature avx512f missing
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame AddKernel(int*, int const*) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGILL ILL_ILLOPN 0x7f0000001000
        at 0x7f0000001000 ud2
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Unreachable(int) @ op.so in op.cc:31 takes 32
    """,
)
