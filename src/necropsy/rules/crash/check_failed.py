"""A check in native code failed and ended the program.

What happened
-------------
The authors of the library (TensorFlow, XLA, Abseil, PyTorch, glog) wrote down a condition that must always hold, as
``CHECK(...)`` or ``TF_CHECK_OK(...)``. It did not hold. Such a check does not raise an exception: it prints one line
of level F (fatal) and calls ``abort()``. Python's ``try/except`` cannot catch it.

How to be sure
--------------
The line that starts with F, or the text ``Check failed:`` or ``Non-OK-status:``, is the last of its kind in the log
(or in the memory of the dying thread), and the process died by SIGABRT. The line names the source file, the line, and
the condition. The compared values are in brackets: ``(3 vs. 2)`` means that the left side was 3. If a line of level F
holds no condition, its text is the reason (``LOG(FATAL)``).

How to fix it now
-----------------
Read the condition and the values as a sentence about your input: a dimension, an index, a size or a type that was not
expected. Check that value in Python before the call. Search the web for the condition with its file name, without the
numbers. ``pip install -U tensorflow`` may turn the abort into an exception: many checks have become errors over the
years.

How to prevent it
-----------------
Validate shapes and dtypes where data enters (``tf.debugging.assert_*``, ``tf.ensure_shape``). In your own op, use
``OP_REQUIRES``, which raises a Python exception, instead of CHECK, which kills the process.

What it is often mistaken for
-----------------------------
A crash inside the library, because of the signal and the stack. On Windows, a *stack buffer overrun*, because
``abort()`` ends with 0xC0000409 there. A message ``RET_CHECK failure`` is different: it becomes a status and an
exception.

Sources
-------
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/platform/logging.h
- https://abseil.io/docs/cpp/guides/logging#check
"""

from __future__ import annotations

import re

from necropsy.model import Confidence, Crash, Culprit, Fix, Location, Message, Possibility
from necropsy.predicates import calls
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.aborts import aborted, last, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.experiment_proposals import of_threads
from necropsy.rules.last_words import as_evidence, in_a_sentence
from necropsy.rules.reporters import CHECK, FATAL_LOG
from necropsy.rules.wording import short, who


def _match(crash: Crash) -> Finding | None:
    message, words = last(crash, "check-failed", "non-ok-status", "not-reached", "fatal-log")
    if message is None:
        return _unheard(crash)
    if not may_have_aborted(crash) or message.fields.get("level", "F") != "F":
        return None
    machinery = calls(crash, FATAL_LOG, first=16, claim="the code that ends the program after a failed check")
    died = aborted(crash)
    culprit = culprit_of(crash)
    return Finding(
        evidence=words + died + machinery + python_line(crash),
        summary=_summary(message, culprit),
        confidence=_confidence(message, bool(died), bool(machinery)),
        culprit=culprit,
        fixes=_fixes(message),
        locations=_locations(message),
        possible=_OF_STREAM if _STREAM.search(message.fields.get("expression", "")) else (),
    )


_STREAM = re.compile(r"stream\w*(?:->|\.)ok\(\)", re.IGNORECASE)
"""A stream of the GPU is *ok* until something fails on it; the check only finds out."""
_OF_STREAM = (
    Possibility(
        cause="The GPU had no memory left for what ran on the stream before",
        rule="gpu-out-of-memory",
        decide="Does it pass with a batch of 1?",
        command="nvidia-smi",
    ),
    Possibility(
        cause="A kernel failed on the stream before: an index out of range",
        rule="cuda-kernel-fault",
        decide="Does another error come when launches run in order?",
        command="CUDA_LAUNCH_BLOCKING=1 python ...",
    ),
)


def _unheard(crash: Crash) -> Finding | None:
    """A failed CHECK's reporter is above abort(), but its message was neither read nor found in memory."""
    died, machinery = aborted(crash), calls(crash, CHECK, first=16, claim="the code that reports a failed check")
    if crash.messages is not None or not died or not machinery or crash.fault is None:
        return None
    culprit = culprit_of(crash)
    words = crash.last_words
    said = f" {in_a_sentence(words)}" if words is not None else " Its message was not seen."
    return Finding(
        evidence=machinery + died + as_evidence(words) + python_line(crash),
        summary=f"A check in {who(culprit)} failed and ended the program.{said}",
        confidence="likely",
        culprit=culprit,
        last_words=words,
        fixes=(
            Fix(
                text="Keep what is written to stderr: the line of the check names its condition and the values.",
                command="necropsy run python ... 2>log.txt",
            ),
            Fix(text="Check in Python, before the call, the shape, index, size or type of what you pass to it."),
        ),
    )


def _confidence(message: Message, died: bool, machinery: bool) -> Confidence:
    # A line that only memory has, and no function that reports it on the stack, may be one that was read or quoted.
    left_over = message.where.startswith("memory of") and not machinery
    if died and not left_over and (machinery or message.fields.get("level") == "F"):
        return "certain"
    return "likely" if died or message.fields.get("level") == "F" else "possible"


def _summary(message: Message, culprit: Culprit | None) -> str:
    fields = message.fields
    function = short(culprit.function) if culprit is not None and culprit.function else None
    place = f" at {fields['file']}:{fields['source_line']}" if "file" in fields else ""
    by = f" in {function}" if function else ""
    condition = _cut(fields.get("expression", fields.get("what", "")), 120)
    if message.kind == "not-reached":
        return f"Native code{by}{place} reached a point that its authors considered impossible, and ended the program."
    if message.kind == "fatal-log":
        return f"Native code{by}{place} reported a fatal error and ended the program: {condition.rstrip('.')}."
    says = (
        f" Its message: \u201c{_cut(fields['detail'].strip().rstrip('.'), 160)}\u201d." if fields.get("detail") else ""
    )
    if "status" in fields:
        return f"A call that had to succeed failed{by}{place}: `{condition}` gave {_cut(fields['status'], 100).rstrip('.')}.{says}"
    values = f", with the values {_cut(fields['operands'], 60)}" if "operands" in fields else ""
    op = f" of the op {culprit.op}" if culprit is not None and culprit.op else ""
    return f"A check{op} failed: `{condition}`{values}{by}{place}.{says}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _fixes(message: Message) -> tuple[Fix, ...]:
    fields = message.fields
    what = fields.get("status") or fields.get("expression") or fields.get("what", "")
    first = "Check in Python, before the call, the shape, index, size or type that this condition is about."
    if "operands" in fields:
        first = f"Find which of your inputs gives these values ({_cut(fields['operands'], 60)}), and check it in Python before the call."
    return (
        Fix(text=first),
        Fix(text=f"Search for: {_cut(what, 80)} {fields.get('file', '').rsplit('/', 1)[-1]}".rstrip()),
    )


def _locations(message: Message) -> tuple[Location, ...]:
    fields = message.fields
    if "file" not in fields:
        return ()
    return (Location(path=fields["file"], line=int(fields.get("source_line", "0")) or None, role="check"),)


RULE = Rule(
    _match,
    title="A check in native code failed",
    experiments=of_threads,
    beats=("abort", "killed-by-signal", "exit-status-only", "python-exception"),
    tried=Tried(
        advice="Find which of your inputs gives these values, and check it in Python before the call.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with ``tf.raw_ops.LSTMBlockCell`` of "
            "TensorFlow 2.20.0 and scalars for matrices: the values 1 and 0 are an axis and a rank, and "
            "``tf.debugging.assert_rank(x, 2)`` before the call raised a ValueError with the line, where the "
            "program had died."
        ),
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame tsl::internal::LogMessageFatal::~LogMessageFatal() @ libtensorflow_framework.so.2 takes 32
        frame tensorflow::TensorShapeBase<tensorflow::TensorShape>::dim_size(int) const @ libtensorflow_framework.so.2 takes 64
        log 2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:356] Check failed: d < dims() (3 vs. 2)
        python reshape model.py:9
    """,
    miss="""
        exit 1
        log 2026-11-20 21:17:51.617250: W tensorflow/core/framework/op_kernel.cc:1816] INTERNAL: RET_CHECK failure (a.cc:3) ok Check failed: ok
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 3, in <module>
        log tensorflow.python.framework.errors_impl.InternalError: RET_CHECK failure
    """,
)
