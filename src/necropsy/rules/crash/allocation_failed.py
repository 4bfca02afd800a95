"""An allocation of main memory failed.

What happened
-------------
The program requested more memory than it could get: ``std::bad_alloc`` in C++, ``MemoryError`` in Python, *OOM when
allocating tensor* from TensorFlow's allocator. Either the size was absurd (a wrong shape, a negative number turned
unsigned), or a limit was reached: the machine's memory, ``ulimit -v``, or a pool's.

How to be sure
--------------
The exception or the allocator's message is in the log, with the size or shape where the program says it. Compare it
with what you expect: a wrong shape shows at once.

How to fix it now
-----------------
If the size is absurd, find the wrong dimension in the named line. If it is plausible, use a smaller batch, a smaller
dtype, or read the data in pieces. Check what else uses the memory. ``ulimit -v`` shows whether a limit is set.

How to prevent it
-----------------
Check sizes that come with the data before you allocate. Log the peak of the memory.

What it is often mistaken for
-----------------------------
The kernel's OOM killer, which gives no message and ends the process by SIGKILL (137). ``MemoryError: Parser stack
overflowed``, which is about nesting of source code and has nothing to do with memory. GPU memory: there the allocator
is named GPU_0_bfc.

Sources
-------
- https://docs.python.org/3/library/exceptions.html#MemoryError
- https://en.cppreference.com/w/cpp/memory/new/bad_alloc
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import limits
from necropsy.rules.aborts import aborted, may_have_aborted, uncaught
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.loading import NO_PAGE_FILE, windows_error
from necropsy.rules.log_rules import on_gpu, told_of_the_end
from necropsy.rules.python import at_the_parsers_limit, ended_by_exception, python_culprit
from necropsy.rules.windows_loader import ended_with
from necropsy.rules.wording import size


def _match(crash: Crash) -> Finding | None:
    said = _said(crash)
    thrown = crash.cpp_exception is not None and crash.cpp_exception.type == "std::bad_alloc"
    if said is None and (refused := _refused(crash)) is not None:
        return refused
    if said is None or (crash.fault is not None and crash.fault.signal != "SIGABRT"):
        return None
    if said.kind == "python-memory" and at_the_parsers_limit(crash) and not limits.reached(crash, *limits.MEMORY):
        return None
    raised = said.kind == "allocation-refused" and told_of_the_end(crash, said, decisive=False) is not None
    native = said.kind in {"cpp-terminate", "allocation-refused"} and not (raised and ended_by_exception(crash))
    if native and not may_have_aborted(crash):
        return None
    shown = said.kind in _OF_WINDOWS and told_of_the_end(crash, said) is not None
    if not native and not ended_by_exception(crash) and not shown:
        return None
    if said.kind == "tensor-oom" and on_gpu(crash, said):
        return None
    died = aborted(crash)
    culprit = culprit_of(crash) or python_culprit(crash)
    asked = said.fields.get("bytes", "")
    hit = limits.reached(crash, *limits.MEMORY, more=int(asked) if asked.isdigit() else 0)
    return Finding(
        evidence=(
            quote(said, "the allocation that failed"),
            *died,
            *limits.evidence(*limits.all_of(crash, *limits.MEMORY)),
            *python_line(crash),
        ),
        summary=_summary(said) + limits.summary(*hit),
        confidence="certain" if died or not native or thrown else "likely",
        culprit=culprit,
        fixes=_PAGE_FILE_FIXES
        if said.kind in _OF_WINDOWS
        else (
            Fix(
                text="Check whether the requested size or shape is what you expected; an absurdly large one is the bug."
            ),
            Fix(
                text="Otherwise use less memory: a smaller batch, float16 or float32, data read in pieces.",
                command="ulimit -v; free -h",
            ),
            *limits.raising(*hit),
        ),
    )


_NO_MEMORY, _COMMITMENT, _EXHAUSTED, _PAGE_FILE, _CHROMIUM = 0xC0000017, 0xC000012D, 0xC00001AD, 0x800705AF, 0xE0000008


def _refused(crash: Crash) -> Finding | None:
    """A status of Windows or Chromium's allocator for an allocation that failed."""
    codes = (_NO_MEMORY, _COMMITMENT, _EXHAUSTED, _PAGE_FILE, _CHROMIUM)
    refused = ended_with(crash, *codes, claim="the process ended because an allocation failed")
    if not refused or crash.fault is not None:
        return None
    culprit = culprit_of(crash)
    asked: Found = ()
    if culprit is not None and culprit.function is not None:
        asked = (
            Evidence(
                claim="the allocation was requested by",
                seen=culprit.function,
                where=f"the stack, {culprit.module or '?'}",
            ),
        )
    return Finding(
        evidence=(*refused, *asked),
        summary=_FULL,
        confidence="likely",
        culprit=culprit,
        fixes=_PAGE_FILE_FIXES,
        possible=causes_of(crash),
    )


_OF_WINDOWS = ("commit-limit", "missing-library")
_FULL = "Windows could not provide the requested memory: main memory and page file together are used up."
_PAGE_FILE_FIXES = (
    Fix(text="Enlarge the page file, or let Windows manage it: System, Advanced system settings, Performance."),
    Fix(
        text="Or use less: fewer data loader workers (each loads all CUDA libraries), a smaller batch.",
        command="DataLoader(..., num_workers=0)",
    ),
)


def _said(crash: Crash) -> Message | None:
    kinds = ("python-memory", "tensor-oom", "allocation-refused", "cpp-terminate", *_OF_WINDOWS)
    written = messages(crash, *kinds)
    found = [message for message in written or uncaught(crash) if _is_meant(message)]
    return found[-1] if found else None


def _is_meant(message: Message) -> bool:
    if message.kind == "cpp-terminate":
        return message.fields.get("type") in {"std::bad_alloc", "std::bad_array_new_length"}
    return message.kind != "missing-library" or windows_error(message) == NO_PAGE_FILE


def _summary(said: Message) -> str:
    if said.kind in _OF_WINDOWS:
        return _FULL
    if said.kind == "tensor-oom":
        kind = f" of type {said.fields['type']}" if "type" in said.fields else ""
        return f"There was not enough memory for a tensor of shape [{said.fields['shape']}]{kind}."
    if said.kind == "python-memory":
        text = said.fields.get("text")
        return f"Python ran out of memory: {text.rstrip('.')}." if text else "Python ran out of memory."
    if said.kind == "allocation-refused":
        how_much = f" ({size(int(said.fields['bytes']))})" if "bytes" in said.fields else ""
        return f"Native code requested memory{how_much} that was not available, and aborted."
    return "C++ code requested memory that was not available (std::bad_alloc), and did not handle that."


RULE = Rule(
    _match,
    title="An allocation of memory failed",
    beats=("abort", "uncaught-cpp-exception", "python-exception", "exit-status-only", "killed-by-signal"),
    tried=Tried(
        advice="Check whether the requested size or shape is what you expected.",
        result="crash gone",
        how=("The size, which the report quotes, was 2^50 bytes; with the intended one the program ended normally."),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 3, in <module>
        log     a = np.zeros((1000000, 1000000))
        log numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000) and data type float64
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 3, in <module>
        log MemoryError: Parser stack overflowed - Python source too complex to parse
    """,
)
