"""The program read from an invalid address.

What happened
-------------
The program read from an address at which nothing is mapped, or that may not be read. The pointer was never set, its
object was freed, it was overwritten, or an index was far outside its array.

How to be sure
--------------
The instruction that faulted reads memory, its address is in the evidence, and the memory map shows nothing readable
there. If the kernel reports no address (SI_KERNEL), the address was computed from the registers. Such an address
cannot exist on this processor, so the pointer itself is garbage, often text or freed memory. An address such as
0xffffffffe2200000 or 0xe2200000, while 0x7f12e2200000 is mapped, is half a pointer. It went through a 32-bit int,
mostly in a ctypes call without ``argtypes`` or ``restype``. Only the place of the crash is certain; the code that
made the pointer bad may be elsewhere.

How to fix it now
-----------------
Look at the named function and at the registers in the evidence. Check indices against sizes first (``DCHECK_LT``,
``.at()``), then lifetimes. Usual cases are a reference into a vector that grew, a tensor's ``flat<T>()`` kept after
the tensor died, and a Python buffer used after its array was freed. Run once with AddressSanitizer, which names the
allocation too.

How to prevent it
-----------------
Tests of the op at its limits (empty, one element, last index) under AddressSanitizer; no raw pointers that outlive
their owner.

What it is often mistaken for
-----------------------------
A stack overflow: there the address is just below a stack. A null pointer: there the pointer register is 0. Here it
may hold a small number, such as the 0x31 that malloc keeps beside a block of 48 bytes, if a slot past the end of an
array was read as a pointer. Heap corruption: there ``malloc`` or the garbage collector crashes, and is innocent.

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html (SEGV_MAPERR, SEGV_ACCERR, SI_KERNEL)
- https://clang.llvm.org/docs/AddressSanitizer.html
"""

from __future__ import annotations

from necropsy.model import Crash
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.experiment_proposals import of_pointer
from necropsy.rules.invalid_access import OCCURS, invalid_access
from necropsy.rules.pointers import bad_access, is_null, small_number, small_number_in_words, where_it_led


def _match(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    if access is None or is_null(crash, access) or access.kind == "write":
        return None
    small = small_number(crash, access)
    if small is None:
        did = f"{'read' if access.kind == 'read' else 'used'} {where_it_led(crash, access, 'read')}"
    else:
        did = f"{'read' if access.kind == 'read' else 'used memory'} {small_number_in_words(crash, small)}"
    return invalid_access(
        crash,
        access,
        did,
        look="check for an out-of-range index or a pointer to freed memory.",
        sanitizer="reports which allocation the access missed",
    )


RULE = Rule(
    _match,
    title="Read from an invalid address",
    needs=("fault",),
    experiments=of_pointer,
    occurs=OCCURS,
    tried=Tried(
        advice="In the named function, check for an out-of-range index or a pointer to freed memory.",
        result="crash gone",
        how=(
            "The index was compared with the number of elements in the named function; the program then ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SI_KERNEL
        at 0x7f0000001000 mov rax, qword ptr [rdi + 8]
        operand read [rdi + 8] = 0x4141414141414149 size 8 rdi=0x4141414141414141
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Walk(Node*) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x10 read
        at 0x7f0000001000 mov eax, dword ptr [rdi + 0x10]
        operand read [rdi + 0x10] = 0x10 size 4 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Node::weight(Node const*) @ op.so in op.cc:31 takes 32
    """,
)
