"""The program jumped to an address that holds no code.

What happened
-------------
A call, a jump or a return went to an address that holds no code: null (a function pointer that was never set), memory
that is not mapped, or data. Possible reasons are a garbage function pointer or virtual table, a freed object, or an
unloaded library. The return address on the stack may also have been overwritten.

On AArch64 the processor may find it before the jump. A signed pointer that was overwritten fails its check (pointer
authentication), and an indirect branch into a guarded page has to lead to a landing pad (branch target identification).

How to be sure
--------------
The program counter itself is the fault address: the processor could not even fetch an instruction there. The caller
is the next frame. On AArch64 a failed check leaves 0x0020 or 0x0040 in the upper 16 bits of the address, or ends in
SIGILL, as a missing landing pad does. If the address belonged to a library that was unloaded by ``dlclose``, the evidence names it: the
dynamic loader's record of it is often still in freed memory.

How to fix it now
-----------------
For null, check the function pointer before the call. If it comes from ``dlsym`` or ctypes, check that the symbol was
found. Otherwise find the object that held the pointer, and check whether it was still alive. The usual case is a
ctypes ``CFUNCTYPE`` object that Python freed: keep a reference to it as long as C may call it.

How to prevent it
-----------------
Initialise function pointers where they are declared. Keep callbacks alive next to the object that calls them. Do not
``dlclose`` a library whose functions are still registered.

What it is often mistaken for
-----------------------------
A null *read*: the address is 0 in both, but here the program counter is 0 too. A stack overflow: the stack is whole
here.

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html
- https://docs.python.org/3/library/ctypes.html#callback-functions
"""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Evidence, Fix, Proposal
from necropsy.predicates import (
    NEAR_NULL,
    died_by,
    frames_of,
    instruction_at_fault,
    jumped_to,
    left_for_nowhere,
    messages,
    on_windows,
    place_of,
    quote,
    real_fault,
    stack_exhausted,
)
from necropsy.rule import Finding, Occurs, Rule, Tried
from necropsy.rules import cpp_runtimes
from necropsy.rules.aarch64 import no_landing_pad, refused_signature
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.experiment_proposals import of_pointer
from necropsy.rules.former import evidence_of_former, fixes_of, former_of, trials_of_former
from necropsy.rules.former import in_words as former_in_words
from necropsy.rules.halves import evidence_of, fix, half_pointer, in_words
from necropsy.rules.jit import generated_code, is_generated
from necropsy.rules.pointers import nothing_known
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    if (remains := _no_instruction(crash) or _refused(crash)) is not None:
        return remains
    if not real_fault(crash) or stack_exhausted(crash) or cpp_runtimes.mixed(crash) is not None:
        return None
    if (nowhere := left_for_nowhere(crash)) is not None:
        return _nowhere(crash, nowhere)
    target = jumped_to(crash)
    if target is None:
        return None
    mapping = crash.fault.mapping if crash.fault else None
    culprit = culprit_of(crash)
    name = who(culprit)
    gone = messages(crash, "unloaded-library")
    former = former_of(crash)
    half = half_pointer(crash) if target >= NEAR_NULL else None
    if target < NEAR_NULL:
        what = (
            "called a function through a null pointer"
            if target == 0
            else f"called a function at {target}, next to null"
        )
        title = "A null function pointer was called"
    elif half is not None:
        what = f"called a function at {in_words(half)}"
        title = "A function pointer lost its upper half"
    elif gone:
        what = f"jumped to {target}, into `{gone[-1].fields.get('library', 'a library')}`, which had been unloaded"
        title = "The program called into a library that had been unloaded"
    elif former is not None and former.kind == "library":
        what = f"jumped to {target}, into {former_in_words(former)}"
        title = "The program called into a library that had been unloaded"
    elif mapping is not None:
        where = f" ({file_name(mapping.path)})" if mapping.path else ""
        what = f"jumped to {target}, which is data{where} and not code"
        title = "The program jumped into data"
    elif crash.fault is not None and crash.fault.code == "SEGV_ACCERR":
        what = f"jumped to {target}, which is data and not code"
        title = "The program jumped into data"
    else:
        # A small dump of Windows does not say whether something lies there: data, or nothing at all.
        what = f"jumped to {target}, where there is no {'code' if nothing_known(crash) else 'memory'}"
        title = "The program jumped to an address without code"
    signature = refused_signature(crash, target)
    if signature:
        what = f"returned or jumped to {target}: the signature of the pointer was wrong, so it had been overwritten"
        title = "A signed return address or function pointer was overwritten"
    seen = f"program counter {target}"
    if mapping is not None:
        seen += f", in a mapping with permissions {mapping.permissions}"
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            Evidence(claim="the program counter points to no code", seen=seen, where=place_of(crash)),
            *evidence_of(crash, half),
            *signature,
            *evidence_of_former(crash),
            *(quote(one, "what had been loaded there") for one in gone[-1:]),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} {what}.",
        confidence="likely" if half is not None else "certain",
        culprit=culprit,
        fixes=(
            fix(crash)
            if half is not None
            else Fix(
                text=f"In {name}, check the function pointer before it is called."
                if target < NEAR_NULL
                else f"Take every callback, timer and thread back from {gone[-1].fields.get('library', 'the library')} before it is freed (FreeLibrary), or do not free it."
                if gone
                else f"Check whether the object that {name} called into was still alive, and keep callbacks referenced."
            )
            if former is None or former.kind != "library"
            else fixes_of(former)[0],
        ),
        title=title,
    )


def _experiments(crash: Crash) -> tuple[Proposal, ...]:
    return (*trials_of_former(crash), *of_pointer(crash))


def _no_instruction(crash: Crash) -> Finding | None:
    """SIGILL outside any library at bytes that are not an instruction: the called code is gone or never was.

    Code generated for another processor can be decoded, and stays with ``illegal-instruction``.
    """
    fault, instruction = crash.fault, crash.instruction
    frame = next(iter(frames_of(crash)), None)
    if fault is None or fault.code != "ILL_ILLOPN" or instruction is None or instruction.text is not None:
        return None
    if frame is None or not is_generated(frame):
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    return Finding(
        evidence=(
            *died_by(crash, "SIGILL"),
            *generated_code(crash),
            Evidence(
                claim="the bytes there are not an instruction", seen=str(instruction.address), where=place_of(crash)
            ),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} led to {instruction.address}, which is memory for code that is generated at run time, and holds no instruction: the code there had been freed or overwritten.",
        confidence="likely",
        culprit=culprit,
        fixes=(
            Fix(
                text="Keep every callback that native code may still call referenced as long as it may (ctypes: the CFUNCTYPE object; cffi: what ffi.callback returned)."
            ),
        ),
        title="The program jumped to code that was freed",
    )


def _refused(crash: Crash) -> Finding | None:
    """SIGILL of AArch64 at an instruction that is known: the branch to it, or the pointer, was refused."""
    if crash.fault is None or crash.fault.signal != "SIGILL" or not real_fault(crash):
        return None
    pad, signature = no_landing_pad(crash), refused_signature(crash, None)
    if not pad and not signature:
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    told = (
        f"{sentence(name)} was led to {crash.fault.address}, where no function or label for indirect branches begins."
        if pad
        else f"{sentence(name)} used a return address or a function pointer whose signature was wrong: it had been overwritten."
    )
    return Finding(
        evidence=(*died_by(crash, "SIGILL"), *instruction_at_fault(crash), *pad, *signature, *python_line(crash)),
        summary=told,
        confidence="certain",
        culprit=culprit,
        fixes=(
            Fix(text="Check the function pointer that was called, and what may have overwritten it.")
            if pad
            else Fix(
                text=f"Check every index and length used with the local arrays of {name}: one of them ran over the return address."
            ),
        ),
        title="A branch led to a place that is not a branch target"
        if pad
        else "A signed return address or function pointer was overwritten",
    )


def _nowhere(crash: Crash, instruction: str) -> Finding:
    """Rejected before the jump: x86-64 only jumps to canonical addresses."""
    culprit = culprit_of(crash)
    name = who(culprit)
    returns = instruction.rsplit(maxsplit=1)[-1].startswith("ret")
    what = (
        "returned to an address that cannot exist: its return address on the stack was overwritten"
        if returns
        else "called through a pointer that is garbage: the address in it cannot exist"
    )
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            *instruction_at_fault(crash),
            Evidence(
                claim="the processor refused the target itself",
                seen=f"the address is not reported, at `{instruction}`"
                if on_windows(crash)
                else f"SI_KERNEL at `{instruction}`",
                where=place_of(crash),
            ),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} {what}.",
        confidence="certain",
        culprit=culprit,
        fixes=(
            Fix(
                text=f"Check every index and length used with the local arrays of {name}: one of them ran over the return address."
            )
            if returns
            else Fix(
                text=f"Check whether the object that {name} called into was still alive, and keep callbacks referenced."
            ),
            Fix(
                text="With the stack protector on, the same error names itself.",
                command="cl /GS /Zi ..." if on_windows(crash) else "g++ -g -fstack-protector-strong ...",
            ),
        ),
        title="The return address was overwritten" if returns else None,
    )


RULE = Rule(
    _match,
    title="The program jumped to an address without code",
    needs=("fault",),
    beats=("illegal-instruction", "null-dereference", "invalid-read", "invalid-write", "misaligned-access"),
    experiments=_experiments,
    occurs=Occurs(
        but="Signed pointers (pointer authentication) and landing pads (branch target identification) are AArch64's alone."
    ),
    tried=Tried(
        advice="In the named function, check the function pointer before it is called.",
        result="crash gone",
        how=(
            "The callback was compared with null in the named function before the call; the program then "
            "ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x0 exec
        at 0x0 nothing
        register rip=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame ? takes 8
        frame Call(void (*)()) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x0 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x0 size 4 rdi=0x0
        register rip=0x7f0000001000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
)
