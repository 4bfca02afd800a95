"""Stack overflow because the thread's stack is small.

What happened
-------------
The thread that crashed had a stack smaller than the default 8 MiB on Linux, and ordinary code did not fit on it. The
code is not a deep recursion, and none of its frames would trouble a main thread. The same call survives on another
thread.

How to be sure
--------------
The fault address is below the stack of the thread that crashed, and that stack's size is in the evidence. Everything
on it, including the frame that did not fit, is less than 8 MiB. A recursion that repeats 200 times or more on such a
stack is reported as a recursion, because it cannot be known whether it would have ended. This rule is then listed as
another possibility. A single frame of 1 MiB or more is reported as a large frame.

How to fix it now
-----------------
Give the thread a larger stack. For a Python thread, call ``threading.stack_size(n)`` before ``Thread.start``. Use
``pthread_attr_setstacksize`` for one of C or C++, and ``OMP_STACKSIZE`` for OpenMP's. For the main thread and for
threads without a size of their own (TensorFlow's pools), use ``ulimit -s`` before the program starts. On Windows,
call ``CreateThread`` with a size and STACK_SIZE_PARAM_IS_A_RESERVATION. For all threads without a size, use ``editbin
/STACK:n`` on a copy of the executable.

How to prevent it
-----------------
Do not shrink stacks to save memory: they are address space, and only used pages cost memory. Note that ``ulimit -s
unlimited`` makes other threads smaller (2 MiB), not larger. Other systems have small stacks by default: musl (Alpine)
128 KiB, secondary threads on macOS 512 KiB, Windows 1 MiB to 2 MB.

What it is often mistaken for
-----------------------------
A bad pointer or a corrupted stack: tools that only know the mapping named ``[stack]`` take every other thread's stack
for an intrusion. An infinite recursion: compare the depth that was reached.

Sources
-------
- https://docs.python.org/3/library/threading.html#threading.stack_size
- https://man7.org/linux/man-pages/man3/pthread_attr_setstacksize.3.html
- https://wiki.musl-libc.org/functional-differences-from-glibc.html (thread stack size)
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import musl
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import BAD_ACCESSES
from necropsy.rules.stack_fixes import bigger_stack
from necropsy.rules.stacks import DEFAULT, Overflow, biggest_frame, depth_of, evidence, overflow_of
from necropsy.rules.wording import count, sentence, short, size


def _match(crash: Crash) -> Finding | None:
    overflow = overflow_of(crash)
    if overflow is None or "small-stack" not in overflow.rivals or (overflow.size or overflow.stack.used) is None:
        return None
    by_frame = overflow.mechanism != "recursion" and (overflow.largest is not None)
    culprit = culprit_of(crash, frame=overflow.largest) if by_frame and _dominates(overflow) else culprit_of(crash)
    own = overflow.need <= overflow.default
    fits = Evidence(
        claim="all of it fits into the default stack"
        if own
        else "all of it fits into the stack that threads have on Linux",
        seen=f"at least {count(overflow.need)} bytes were needed, {count(overflow.default if own else DEFAULT)} are the default",
        where="arithmetic",
    )
    return Finding(
        evidence=(
            *evidence(overflow),
            *musl.default_stack(crash, overflow.size, main=overflow.main),
            *((fits,) if overflow.need else ()),
            *(biggest_frame(overflow) if _dominates(overflow) else depth_of(overflow)),
            *python_line(crash),
        ),
        summary=_summary(overflow, culprit.function if culprit else None),
        confidence=overflow.rivals["small-stack"],
        culprit=culprit,
        fixes=bigger_stack(overflow, overflow.need),
    )


def _dominates(overflow: Overflow) -> bool:
    largest, whole = overflow.largest, overflow.size or DEFAULT
    return bool(largest and largest.stack_bytes and largest.stack_bytes >= whole / 4)


def _summary(overflow: Overflow, function: str | None) -> str:
    default = f"{size(overflow.default)} is the default"
    if overflow.default < DEFAULT and (
        overflow.need > overflow.default or (overflow.size or overflow.stack.used or 0) >= overflow.default
    ):
        default = f"Linux gives {size(DEFAULT)}"
    if musl.default_stack(overflow.crash, overflow.size, main=overflow.main):
        default = f"musl gives its threads 128 KiB, glibc {size(DEFAULT)}"
    small = f"{sentence(overflow.where)} is small ({default})"
    if overflow.mechanism == "recursion":
        return f"{small}: if the recursion of {short(function)} is finite, a larger stack may be enough."
    if _dominates(overflow) and overflow.largest and overflow.largest.stack_bytes:
        return f"{small}, and {short(function)} alone needs {size(overflow.largest.stack_bytes)} of it."
    return f"{small}, and the ordinary calls down to {short(function)} filled it."


RULE = Rule(
    _match,
    title="Stack overflow: the thread's stack is small",
    needs=("fault", "stack"),
    beats=BAD_ACCESSES,
    tried=Tried(
        advice="Set a larger thread stack size before this thread starts, by the printed ``threading.stack_size(...)``.",
        result="crash gone",
        how=("The printed line was put unchanged before the thread's start; the program then ended normally."),
        test="tests/rules/test_advice.py::test_small_stack",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7f10000a0000 write
        thread 4712 worker crashed
        stack 64KiB used 64KiB exhausted
        frame work(void*) @ op.so in op.cc:9 takes 524320
        frame start_thread @ libc.so.6 takes 160
        frames 3
        largest work(void*) takes 524320
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7ffbfd9d1000 write
        thread 4711 python3 crashed
        stack 8MiB used 40040000 exhausted main
        frame BigOp::Compute(tensorflow::OpKernelContext*) @ op.so in op.cc:9 takes 40000048
        frame main @ python3.11 takes 64
        frames 80
        largest BigOp::Compute(tensorflow::OpKernelContext*) takes 40000048
    """,
)
