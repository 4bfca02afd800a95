"""A null pointer was used.

What happened
-------------
The program read or wrote memory through a pointer that was null. Nothing is ever mapped in the first 64 KiB of an
address space, so the kernel ended the process by SIGSEGV. The address need not be 0: reading the member at offset
0x10 through a null pointer faults at 0x10.

How to be sure
--------------
The register that held the pointer was 0; the evidence names it and the offset from it. The fault address is then
below 64 KiB, or far from null where an index was added (a negative one gives 0xffff...). If the instruction could not
be read, an address below 64 KiB is the only sign. A small pointer that is not 0, such as 0x31 or 8, is not null: see
invalid-read. A debugger's backtrace without an address shows at least whether the function was given a null pointer
(``this=0x0``), which is likely, not certain.

How to fix it now
-----------------
In the named function, find the pointer that can be null at that offset. Usual sources in TensorFlow ops are the
result of ``ctx->allocate_output`` used although its status was not OK, and ``dynamic_cast`` or ``find`` without a
check. Others are a resource or attribute that was never set, and an empty tensor's ``data()``. From ctypes: a
function called with no ``restype``/``argtypes`` set.

How to prevent it
-----------------
``OP_REQUIRES_OK`` around everything that returns a status, ``OP_REQUIRES(ctx, p != nullptr, ...)`` before use,
references instead of pointers where null has no meaning.

What it is often mistaken for
-----------------------------
A number that was read as a pointer: a slot past the end of an array holds what malloc keeps there, or another
object's data. A call through a null function pointer, where the program *jumps* to null (rule bad-jump). CPython
entered without a thread state, which reads a small offset from null inside ``PyErr_Occurred`` (rule
python-without-gil). An unset address: reports that leave out the address when it is 0 hide exactly this case.

Sources
-------
- https://www.kernel.org/doc/html/latest/admin-guide/sysctl/vm.html (mmap_min_addr)
- https://man7.org/linux/man-pages/man2/sigaction.2.html (SEGV_MAPERR, si_addr)
"""

from __future__ import annotations

from necropsy.frame_filter import is_interpreter
from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import NEAR_NULL, died_by, faulted_at, frames_of
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import cpp_runtimes, musl, ulimit
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.experiment_proposals import of_pointer
from necropsy.rules.given_numbers import given_number
from necropsy.rules.jit import is_of_nobody
from necropsy.rules.pointers import bad_access, doer, evidence, is_null, near_null, null_arguments, pointer_of
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    if access is None or cpp_runtimes.mixed(crash) is not None or musl.trapped_in_malloc(crash):
        return None
    if not is_null(crash, access) or access.address is None:
        return _by_argument(crash)
    culprit = culprit_of(crash)
    by = doer(crash, culprit)
    name = by.name if by.besides else who(culprit)
    pointer = pointer_of(access)
    null = pointer if pointer is not None and pointer.value == 0 else None
    did = {"read": "read", "write": "wrote"}.get(access.kind or "", "used memory")
    offset = null.offset if null is not None else int(access.address)
    what = "through a null pointer"
    if abs(offset) >= NEAR_NULL or offset < 0:
        what += f" with an index: {offset:,} bytes from null ({access.address})"
    elif offset:
        what += f", at an offset of {offset} byte{'s' if offset != 1 else ''} ({access.address})"
    which = f"; the null pointer was in register {null.register}" if null is not None else ""
    number = given_number(crash, pointer.value if pointer is not None else int(access.address))
    if number is not None:
        what, which = number.in_words, ""
    # Of two registers that are added, another one may be the pointer; far from null that makes a difference.
    proved = (null is not None and (null.sure or near_null(access))) or access.address == 0
    return Finding(
        evidence=died_by(crash, "SIGSEGV", "SIGBUS")
        + faulted_at(crash, 0, NEAR_NULL, "the address is null or a small offset from it")
        + evidence(crash, access)
        + ulimit.limits_of(crash)
        + python_line(crash),
        summary=f"{sentence(name)} {did} {what}{which}{by.besides}." + ulimit.told(crash),
        confidence="certain"
        if proved and not is_of_nobody(crash) and not _of_python_without_a_name(crash)
        else "likely",
        culprit=culprit,
        fixes=(number.cure,) if number is not None else _fixes(crash, name, offset, by.advice if by.besides else None),
    )


def _of_python_without_a_name(crash: Crash) -> bool:
    """A stripped Python's function, whose name cannot show a damaged object."""
    frame = next(iter(frames_of(crash)), None)
    return frame is not None and frame.function is None and is_interpreter(frame)


def _by_argument(crash: Crash) -> Finding | None:
    """The address is unknown, but a debugger shows a null argument."""
    found = null_arguments(crash)
    if found is None:
        return None
    frame, names = found
    culprit = culprit_of(crash, frame=frame)
    name = who(culprit)
    given = ", ".join(f"{one}={(frame.locals or {})[one]}" for one in names)
    own = "this" in names or len(names) == 1
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            Evidence(claim="the function was given a null pointer", seen=given, where=f"frame {frame.index}"),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} was called with a null pointer ({given}) and died by a bad access; its address is not known.",
        confidence="likely" if own else "possible",
        culprit=culprit,
        fixes=_fixes(crash, name, 0),
    )


def _fixes(crash: Crash, name: str, offset: int, advice: str | None = None) -> tuple[Fix, ...]:
    member = f" (the member at offset {offset} is used)" if 0 < offset < NEAR_NULL else ""
    member = " (it is used as an array)" if abs(offset) >= NEAR_NULL or offset < 0 else member
    first = Fix(text=advice or f"Find the pointer that can be null in {name}{member}, and check it before it is used.")
    if crash.operation is None or crash.operation.framework not in {None, "tensorflow"}:
        return (first,)
    return (first, Fix(text="If it comes from a call that returns a Status, wrap that call in OP_REQUIRES_OK."))


RULE = Rule(
    _match,
    needs=("fault",),
    beats=("invalid-read", "invalid-write"),
    experiments=of_pointer,
    tried=Tried(
        advice="Find the pointer that can be null in the named function, and check it before it is used.",
        result="crash gone",
        how=(
            "The named function was given a check of the pointer whose member at the named offset was read; "
            "the program then ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x10 read
        at 0x7f0000001000 mov eax, dword ptr [rdi + 0x10]
        operand read [rdi + 0x10] = 0x10 size 4 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Node::weight(Node const*) @ op.so in op.cc:31 takes 32
        python step train.py:40
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x0 exec
        at 0x0 nothing
        register rip=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame ? takes 8
        frame Call(void (*)()) @ op.so in op.cc:31 takes 32
    """,
)
