"""Stack overflow by one large frame.

What happened
-------------
The local variables of one function do not fit on the thread's stack. That is a large array (``int a[10000000]``), a
``std::array``, a matrix of fixed size, or a variable-length array or ``alloca`` whose length came from the input. The
first access is beyond the end of the stack, and the kernel ends the process by SIGSEGV. It crashes at the first call;
no recursion is needed.

How to be sure
--------------
The fault address is below the stack of the thread that crashed. The frame of one function, named in the evidence with
its size, takes half of that stack or more, and at least 1 MiB. The compiler says the same: ``g++
-Wframe-larger-than=100000`` prints the size of every such frame.

How to fix it now
-----------------
Put the array on the heap: ``std::vector<int> a(10000000);`` or ``std::unique_ptr<int[]>``; in a TensorFlow kernel
``OpKernelContext::allocate_temp``. As a workaround, use a larger stack, for every thread that may run the function.
Set it with ``ulimit -s`` for the main thread and for threads without a size of their own, and with
``threading.stack_size`` for those that Python starts. On Windows, use ``editbin /STACK:n`` on a copy of the
executable.

How to prevent it
-----------------
Compile with ``-Wframe-larger-than=65536 -Wvla``, and treat these warnings as errors. Remember that the function may
run on another thread elsewhere: 8 MiB on Linux, 1 to 2 MB on Windows, 512 KiB on macOS's secondary threads, 128 KiB
with musl.

What it is often mistaken for
-----------------------------
A bad pointer: the fault happens on an ordinary ``mov`` and far from the stack pointer's old place. Tools that only
know ``call`` and ``push`` as signs of an overflow call it an invalid, even an exploitable, write. A Python list of
ten million items is not this: it is on the heap.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Warning-Options.html (-Wframe-larger-than, -Wvla)
- https://man7.org/linux/man-pages/man3/alloca.3.html
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import BAD_ACCESSES
from necropsy.rules.stack_fixes import bigger_stack
from necropsy.rules.stacks import biggest_frame, evidence, overflow_of
from necropsy.rules.wording import sentence, short, size, who


def _match(crash: Crash) -> Finding | None:
    overflow = overflow_of(crash)
    if overflow is None or "large-frame" not in overflow.rivals:
        return None
    frame, asked = overflow.largest, overflow.asked
    wanted = asked or (frame.stack_bytes if frame is not None else None)
    if wanted is None:
        return None
    # What was asked for is not in a frame yet: the innermost function of the program is the one that asked.
    culprit = culprit_of(crash, frame=None if asked is not None else frame)
    name = who(culprit) if asked is not None or frame is None else short(frame.function)
    return Finding(
        evidence=evidence(overflow) + biggest_frame(overflow) + python_line(crash),
        summary=f"{sentence(name)} needs {size(wanted)} of stack for its local variables alone, which does not fit on {overflow.where}.",
        confidence=overflow.rivals["large-frame"],
        culprit=culprit,
        fixes=(
            Fix(
                text=f"In {name}, put the large array on the heap: std::vector, or OpKernelContext::allocate_temp in a kernel."
            ),
            *bigger_stack(overflow, wanted),
        ),
    )


RULE = Rule(
    _match,
    title="Stack overflow: one function's local variables do not fit",
    needs=("fault", "stack", "frames"),
    beats=BAD_ACCESSES,
    tried=Tried(
        advice="In the named function, put the large array on the heap.",
        result="crash gone",
        how=("The array of 32 MiB in the named function became a ``std::vector``, and the program ended normally."),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7ffbfd9d1000 write
        thread 4711 python3 crashed
        stack 8MiB used 40040000 exhausted main
        frame BigOp::Compute(tensorflow::OpKernelContext*) @ op.so in op.cc:9 takes 40000048
        frame tensorflow::ThreadPoolDevice::Compute(tensorflow::OpKernel*) @ libtensorflow_cc.so.2 takes 64
        frames 80
        largest BigOp::Compute(tensorflow::OpKernelContext*) @ op.so in op.cc:9 takes 40000048
        op Big kernel BigOp
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f10000a0000 write
        thread 4712 worker crashed
        stack 64KiB used 64KiB exhausted
        frame work(void*) @ op.so in op.cc:9 takes 524320
        frame start_thread @ libc.so.6 takes 160
        frames 3
        largest work(void*) takes 524320
    """,
)
