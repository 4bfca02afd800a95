"""An instruction got an address that is not aligned as it requires.

What happened
-------------
Some vector instructions (``movaps``, ``movdqa`` and their AVX forms) demand an address that is a multiple of their
width: 16, 32 or 64 bytes. The program used one on data that is not aligned, and the processor refused. Linux reports
it as SIGSEGV without an address, other processors as SIGBUS. On AArch64 it is the atomic and ordered accesses
(``ldadd``, ``ldxr``, ``ldar``, ``cas``) that demand the alignment of their type; plain loads and vectors do not.

How to be sure
--------------
The kernel reports no address (SI_KERNEL), the address computed from the registers is an ordinary, mapped one, and it
is not a multiple of the width of the instruction's operand. AArch64 reports the address, with BUS_ADRALN.

How to fix it now
-----------------
Find the code that promised the alignment: ``alignas``, ``__attribute__((aligned))``, ``Eigen::Aligned`` maps, an
``Eigen`` member of fixed size in a class that was made by plain ``new`` (C++14), a ``reinterpret_cast`` to
``__m256*``. Use ``Eigen::Unaligned`` or ``_mm256_loadu_ps``. If the address is on the stack, assembly code called C
with a stack pointer that is not a multiple of 16.

How to prevent it
-----------------
``EIGEN_MAKE_ALIGNED_OPERATOR_NEW``, C++17's aligned ``new``; do not assume that a slice of a tensor is aligned: only
the tensor is.

What it is often mistaken for
-----------------------------
A garbage pointer: both come without an address. This address is a good one.

Sources
-------
- https://eigen.tuxfamily.org/dox/group__TopicUnalignedArrayAssert.html
- https://gitlab.com/x86-psABIs/x86-64-ABI (stack alignment)
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import (
    died_by,
    faulting_operand,
    instruction_at_fault,
    is_canonical,
    on_aarch64,
    real_fault,
    stack_exhausted,
)
from necropsy.rule import Finding, Occurs, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.wording import sentence, who

_ALIGNED = re.compile(r"v?mov(?:aps|apd|dqa(?:32|64)?|ntdqa?|ntps|ntpd)$")

_ATOMIC = re.compile(r"(?:ld|st)a?l?[ax]\w*|cas\w*|swp\w*|ld(?:add|clr|eor|set|[su]m(?:ax|in))\w*")
"""AArch64's atomic and ordered accesses: they want the alignment of what they access, where plain ones take any."""


def _match(crash: Crash) -> Finding | None:
    fault, operand, instruction = crash.fault, faulting_operand(crash), crash.instruction
    if fault is None or not real_fault(crash) or stack_exhausted(crash):
        return None
    is_bus = fault.signal == "SIGBUS" and fault.code == "BUS_ADRALN"
    if instruction is None:
        return _told(crash) if is_bus else None
    if not is_bus and not (fault.signal == "SIGSEGV" and (fault.code == "SI_KERNEL" or fault.address is None)):
        return None
    if operand is None or operand.address is None or not is_canonical(operand.address, crash):
        return None
    size = operand.size or _width(instruction.text)
    if (size < 16 and not (is_bus and on_aarch64(crash))) or not (rest := operand.address % size):
        return None
    atomic = size < 16 or _ATOMIC.match(instruction.mnemonic or "") is not None
    strict = bool(instruction.mnemonic and _ALIGNED.match(instruction.mnemonic))
    culprit = culprit_of(crash)
    name = who(culprit)
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            *instruction_at_fault(crash),
            Evidence(
                claim="the address is not aligned as the instruction requires",
                seen=f"{operand.text} = {operand.address}, {rest} bytes past a multiple of {size}",
                where="computed from the registers",
            ),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} used `{instruction.mnemonic}` on {operand.address}, which is not a multiple of {size} as that instruction requires.",
        confidence="certain" if strict or is_bus else "likely",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"In {name}, give the atomic variable the alignment of its type: do not pack its struct, nor cast a pointer to it."
                if atomic and on_aarch64(crash)
                else f"In {name}, use unaligned loads (Eigen::Unaligned, _mm_loadu_ps), or give the data the alignment."
            ),
        ),
    )


def _width(text: str | None) -> int:
    """Bytes moved by a vector instruction, from its register: debugger output lacks the operand's size."""
    match = re.search(r"\b([xyz])mm\d", text or "")
    return {"x": 16, "y": 32, "z": 64}[match[1]] if match else 0


def _told(crash: Crash) -> Finding:
    """The system reports misalignment, without the instruction."""
    culprit = culprit_of(crash)
    name = who(culprit)
    return Finding(
        evidence=died_by(crash, "SIGBUS") + python_line(crash),
        summary=f"{sentence(name)} used an address that is not aligned as the instruction or the processor requires.",
        confidence="likely",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"In {name}, copy with memcpy instead of casting a pointer to a larger type, and use unaligned loads."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="An aligned instruction got an unaligned address",
    needs=("fault",),
    beats=("invalid-read", "invalid-write", "bus-error"),
    occurs=Occurs(but="On x86-64 vector instructions demand it, on AArch64 atomic and ordered accesses (BUS_ADRALN)."),
    tried=Tried(
        advice="In the named function, use unaligned loads.",
        result="crash gone",
        how="``_mm_load_ps`` in the named function became ``_mm_loadu_ps``; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SI_KERNEL
        at 0x7f0000001000 movaps xmm0, xmmword ptr [rdi]
        operand read [rdi] = 0x7f1000000008 size 16 rdi=0x7f1000000008
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Sum(float const*) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SI_KERNEL
        at 0x7f0000001000 movaps xmm0, xmmword ptr [rdi]
        operand read [rdi] = 0x4141414141414141 size 16 rdi=0x4141414141414141
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Sum(float const*) @ op.so in op.cc:31 takes 32
    """,
)
