"""The program wrote to an invalid address.

What happened
-------------
The program wrote to an address at which nothing is mapped. An index ran far out of its array, the pointer was never
set or was overwritten, or its object is gone. Writes that miss by little do not fault: they overwrite other data, and
show up later.

How to be sure
--------------
The instruction that faulted writes memory, its address is in the evidence, and the memory map shows nothing there.
Only the place is certain: the code that made the pointer bad may be elsewhere.

How to fix it now
-----------------
Look at the named function: compare the index that it writes at with the size of the array, and the output's shape
with what was allocated. In a TensorFlow kernel: ``flat<T>()(i)`` checks nothing in a release build; the shape that
was given to ``allocate_output`` decides. Run once with AddressSanitizer: it stops at the first element too many, not
only at the end of the mapping.

How to prevent it
-----------------
``OP_REQUIRES`` on shapes before the loop, loops over ``flat.size()`` instead of a number from an attribute, tests
under AddressSanitizer.

What it is often mistaken for
-----------------------------
A stack overflow or a large frame: there the address is below a stack. A tool that considers only ``mov`` calls it an
exploitable write. A write to read-only memory, where something *is* mapped.

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html (SEGV_MAPERR)
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
    if access is None or is_null(crash, access) or access.kind != "write":
        return None
    small = small_number(crash, access)
    what = small_number_in_words(crash, small) if small is not None else f"to {where_it_led(crash, access, 'write')}"
    return invalid_access(
        crash,
        access,
        f"wrote {what}",
        look="compare the index that is written with the size of what was allocated.",
        sanitizer="stops at the first element too many",
    )


RULE = Rule(
    _match,
    title="Write to an invalid address",
    needs=("fault",),
    experiments=of_pointer,
    occurs=OCCURS,
    tried=Tried(
        advice="In the named function, compare the index that is written with the size of what was allocated.",
        result="crash gone",
        how="The index was compared with the size in the named function; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7f2000000000 write
        at 0x7f0000001000 mov dword ptr [rax + rcx*4], edx
        operand write [rax + rcx*4] = 0x7f2000000000 size 4 rax=0x7f1000000000 rcx=0x400000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame FillOp::Compute(tensorflow::OpKernelContext*) @ op.so in op.cc:31 takes 32
        op Fill2 kernel FillOp
    """,
    miss="""
        signal SIGSEGV SEGV_ACCERR 0x7f0000005000 write
        at 0x7f0000001000 mov byte ptr [rax], dl
        operand write [rax] = 0x7f0000005000 size 1 rax=0x7f0000005000
        mapping 0x7f0000005000-0x7f0000006000 r--p /tmp/op.so
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Upper(char*) @ op.so in op.cc:31 takes 32
    """,
)
