"""The call that a process died in, as evidence, and what is unusual about its arguments, as the first advice."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator

import msgspec

from necropsy.frame_filter import file_name
from necropsy.lazy_re import regex
from necropsy.model import Argument, Call, Crash, Culprit, Diagnosis, Evidence, Fix, Unusual

_FAULTS = frozenset(
    {
        "null-dereference",
        "invalid-read",
        "invalid-write",
        "write-to-readonly",
        "bad-jump",
        "misaligned-access",
        "bus-error",
        "integer-divide-by-zero",
        "floating-point-trap",
        "check-failed",
        "assertion-failed",
        "uncaught-cpp-exception",
        "abort",
        "allocation-failed",
        "heap-buffer-overflow",
        "stack-smash",
        "buffer-overflow-fortify",
        "deliberate-trap",
        "fast-fail",
    }
)
"""Verdicts on the call itself, which its arguments may explain."""
_AFTERWARDS = frozenset(
    {
        "damaged-object",
        "interpreter-bug",
        "invalid-array-view",
        "heap-corruption",
        "double-free",
        "use-after-free",
        "stack-overflow-large-frame",
    }
)
"""Verdicts on damage that an earlier call may have done: the call is only mentioned."""
_TENSORS = frozenset({"EagerTensor", "Tensor"})
_SHOWN = 12
_MOST_SUSPECTS = 3
_MOST_PASSED = 120
"""Characters of arguments that advice repeats."""
_NULL_IS_USED = frozenset({"null-dereference", "bad-jump"})
_ORDER: tuple[Unusual, ...] = ("null", "empty", "nan", "negative", "huge", "not-contiguous")
_UNDECLARED = regex(r"\b(?:argtypes|restype)\b")
_STRIDES_ARE_READ = frozenset({"numpy", "tensorflow", "torch", "scipy", "pandas", "sklearn", "jax", "keras"})
_COUNTS_FROM_THE_END = regex(r"ax[ei]s|dim|index|n_jobs|seed|timeout", re.IGNORECASE)
"""Parameters of which a negative or a very large number is nothing unusual."""
_ADDRESS = regex(r"\d{14,15}")
_ADDRESSES = range(0x5500_0000_0000, 0x8000_0000_0000)
"""Where Linux puts programs that can be moved, their heap and their mappings, on x86-64."""
_OPERANDS = regex(r"\(?(?P<wanted>-?\d+) vs\. (?P<had>-?\d+)\)?")
_WORDS: dict[Unusual, str] = {
    "null": "NULL",
    "empty": "empty",
    "nan": "NaN",
    "negative": "negative",
    "huge": "larger than 2^31",
    "not-contiguous": "not contiguous",
}


def with_call(diagnosis: Diagnosis, crash: Crash) -> Diagnosis:
    """The diagnosis, with the call that was made as evidence; where an argument is unusual, with advice on it first."""
    call = crash.call
    if call is None or diagnosis.rule not in _FAULTS | _AFTERWARDS:
        return diagnosis
    seen = spell(call)
    if not seen:
        return diagnosis
    made = _made_at(crash)
    evidence = [Evidence(claim=f"`{call.function}` was called with", seen=seen, where=call.where)]
    if made is not None:
        claim = f"the line of Python that put {call.function} into the graph"
        evidence.append(Evidence(claim=claim, seen=made, where="the node's stack trace in the graph"))
    fixes = diagnosis.fixes
    if diagnosis.rule in _FAULTS:
        place = made or _line_of(crash, diagnosis.culprit)
        advice = _advice(call, crash, diagnosis.rule) or _by_words(call, diagnosis)
        if advice is not None and place is not None:
            before = "before the call"
            advice = msgspec.structs.replace(advice, text=advice.text.replace(before, f"{before} in {place}", 1))
        fixes = _with_advice(fixes, *(one for one in (advice, _repeated(call)) if one is not None))
    return msgspec.structs.replace(diagnosis, evidence=(*diagnosis.evidence, *evidence), fixes=fixes)


def _made_at(crash: Crash) -> str | None:
    lines = (crash.operation.python if crash.operation is not None else None) or ()
    return _place(lines[0].source, lines[0].line) if lines else None


def _line_of(crash: Crash, culprit: Culprit | None) -> str | None:
    """The program's own line that made the call or waited for it."""
    thread = crash.crashed_thread
    own = (one for one in (thread.python if thread is not None else None) or () if one.owner == "script")
    frame = next(own, None)
    if frame is not None:
        return _place(frame.source, frame.line)
    python = culprit.python if culprit is not None else None
    return _place(python.file, python.line) if python is not None else None


def _place(source: str | None, line: int | None) -> str | None:
    return f"{file_name(source)}:{line}" if source and line is not None else None


def _repeated(call: Call) -> Fix | None:
    """The smallest equivalent call: it shows whether the types and shapes alone cause the crash."""
    from necropsy import reproducer  # few crashes have such a call

    lines = reproducer.code(call)
    if lines is None:
        return None
    return Fix(
        text=f"Try the smallest call like it: {call.function} with inputs of the same types and shapes. If that crashes too, the rest of the program does not matter, and it is what the package's maintainers want to see. The contents of arrays and strings differ from yours, so it may also survive.",
        command=f"python -c {shlex.quote('; '.join(lines))}",
    )


def _with_advice(fixes: tuple[Fix, ...], *advice: Fix) -> tuple[Fix, ...]:
    """First, unless ctypes lacks argument types: then a number is not what the caller meant."""
    place = 1 if fixes and _UNDECLARED.search(fixes[0].text) else 0
    if len(advice) == 1 and advice[0].command is not None:
        return (*fixes, *advice)
    return (*fixes[:place], *advice, *fixes[place:])


def spell(call: Call) -> str:
    """``x: float32 [2, 3]; y: quint8 [0], empty; axis = -1``; empty where nothing is known of any argument."""
    told = [one for one in map(_spelled, call.arguments) if one is not None]
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return "; ".join(told[:_SHOWN]) + more


def _spelled(one: Argument) -> str | None:
    kind = f"{one.type} of {one.dtype}" if one.type in {"list", "tuple"} and one.dtype else one.dtype or one.type
    shape = "" if one.shape is None else " [" + ", ".join(map(str, one.shape)) + "]"
    # NULL and what a number shows need no second word.
    said = [_WORDS[each] for each in one.unusual if one.value is None or each == "not-contiguous"]
    if one.value is not None and one.shape is None:
        return f"{one.name} = {one.value}"
    if one.type in {"list", "tuple"} and one.value is not None:
        return f"{one.name} = {one.value}"
    if one.type == "str":
        return None
    value = f" = {one.value}" if one.value is not None else ""
    return f"{one.name}: {kind}{shape}{value}" + "".join(f", {word}" for word in _worded(one, said))


def _worded(one: Argument, said: list[str]) -> list[str]:
    if one.shape is None or math.prod(one.shape) >= 1 << 31:
        return said
    return [f"with elements {word}" if word in {"negative", "larger than 2^31"} else word for word in said]


# ---------------------------------------------------------------- advice


def _advice(call: Call, crash: Crash, rule: str) -> Fix | None:
    return _by_check(call, crash) or _by_argument(call, rule)


def _by_words(call: Call, diagnosis: Diagnosis) -> Fix | None:
    """The library stopped and said why: the caller can change what it passed."""
    passed = spell(call)
    if diagnosis.last_words is None or len(passed) > _MOST_PASSED:
        return None
    return Fix(
        text=f"Check the arguments of {call.function} ({passed}) before the call: its last words say what it does not accept."
    )


def _by_argument(call: Call, rule: str) -> Fix | None:
    # Many functions take NULL for "none": it explains what uses a null pointer, and nothing else.
    kinds = _ORDER if rule in _NULL_IS_USED else _ORDER[1:]
    odd = [(one, kind) for kind in kinds for one in call.arguments if kind in one.unusual and _matters(call, one, kind)]
    if not odd:
        return None
    one, kind = odd[0]
    others = list(dict.fromkeys(f"`{each.name}`" for each, _ in odd[1:] if each is not one))[:_MOST_SUSPECTS]
    also = f" Then check {', '.join(others)}." if others else ""
    return Fix(
        text=f"Check `{one.name}` of {call.function} first: {_told(one, kind)}. {_refused(call, one, kind)}{also}"
    )


def _matters(call: Call, one: Argument, kind: Unusual) -> bool:
    """Callers of such functions do not pass it all the time."""
    if kind == "not-contiguous":
        return call.library not in _STRIDES_ARE_READ
    if kind == "empty":
        return one.type not in {"list", "tuple"}  # an attribute's default, mostly
    if kind == "huge" and call.library == "ctypes" and one.shape is None and _ADDRESS.fullmatch(one.value or ""):
        return int(one.value or "0") not in _ADDRESSES  # it is a pointer that was passed as a number
    if kind in {"negative", "huge"} and (one.shape is None or one.type in {"list", "tuple"}):
        numbers = re.findall(r"-\d+", one.value or "")
        only_default = kind == "negative" and numbers and all(each == "-1" for each in numbers)
        return not only_default and not _COUNTS_FROM_THE_END.search(one.name)
    return True


def _told(one: Argument, kind: Unusual) -> str:
    dtype, shape = one.dtype or one.type, "" if one.shape is None else "[" + ", ".join(map(str, one.shape)) + "]"
    if kind == "empty":
        return f"it is empty ({dtype}, shape {shape})"
    if kind == "null":
        return "it is a null pointer"
    if kind == "not-contiguous":
        return f"its elements are not contiguous in memory ({dtype}, shape {shape})"
    if kind == "huge" and one.shape is not None and math.prod(one.shape) >= 1 << 31:
        return f"it has more elements than a signed 32-bit number can count ({dtype}, shape {shape})"
    if one.value is not None:
        return f"it is {one.value}"
    return f"it has elements that are {_WORDS[kind]} ({dtype}, shape {shape})"


def _refused(call: Call, one: Argument, kind: Unusual) -> str:
    """The line of Python that rejects it."""
    # Of a C function only the positions are known.
    name, what = ("x", ", with x for what you pass") if one.name.startswith("argument ") else (one.name, "")
    if kind == "not-contiguous":
        copy = f"{name}.contiguous()" if one.type == "torch.Tensor" else f"np.ascontiguousarray({name})"
        return f"Pass a copy whose elements do: `{copy}`."
    line = _line(name, one, kind, is_tensor=call.library == "tensorflow" and one.type in _TENSORS)
    return f"Reject it before the call{what}: `{line}`."


def _line(name: str, one: Argument, kind: Unusual, *, is_tensor: bool) -> str:
    many = kind == "huge" and one.shape is not None and math.prod(one.shape) >= 1 << 31
    if is_tensor:
        lines = {
            "empty": f"tf.debugging.assert_positive(tf.size({name}))",
            "nan": f'tf.debugging.assert_all_finite({name}, "{name}")',
            "negative": f"tf.debugging.assert_non_negative({name})",
            "huge": f"tf.debugging.assert_less({name}, tf.constant(2**31, {name}.dtype))",
        }
        size = f"tf.debugging.assert_less(tf.size({name}, tf.int64), tf.constant(2**31, tf.int64))"
        return size if many else lines.get(kind, f"assert {name} is not None")
    if one.type in {"list", "tuple"}:
        return f"assert max({name}) < 2**31" if kind == "huge" else f"assert min({name}) >= 0"
    is_array, is_torch = one.shape is not None, one.type == "torch.Tensor"
    lines = {
        "null": f"assert {name}",
        "empty": f"assert {name}.{'numel()' if is_torch else 'size'} > 0",
        "nan": f"assert not np.isnan({name}).any()" if is_array else f"assert {name} == {name}",
        "negative": f"assert ({name} >= 0).all()" if is_array else f"assert {name} >= 0",
        "huge": f"assert {name}.{'numel()' if is_torch else 'size'} < 2**31" if many else f"assert {name} < 2**31",
    }
    return lines[kind]


# ---------------------------------------------------------------- what a failed check compared


def _by_check(call: Call, crash: Crash) -> Fix | None:
    """A CHECK on TensorFlow shapes gives the rank or size of the rejected tensor, which identifies the input."""
    for message in reversed(crash.messages or ()):
        operands = _OPERANDS.search(message.fields.get("operands", ""))
        if message.kind != "check-failed" or operands is None or call.library != "tensorflow":
            continue
        expression, wanted, had = message.fields.get("expression", ""), int(operands["wanted"]), int(operands["had"])
        if re.search(r"\bd < dims\(\)", expression):
            return _suspects(call, f"rank {had}", _of_rank(call, had), f"assert_rank_at_least({{}}, {wanted + 1})")
        if re.search(r"\bNDIMS == dims\(\)", expression):
            return _suspects(call, f"rank {had}", _of_rank(call, had), f"assert_rank({{}}, {wanted})")
        if re.search(r"\b1 == NumElements\(\)", expression):
            found = (one for one in _tensors(call) if math.prod(one.shape or ()) == had)
            return _suspects(call, f"{had} elements", list(found), "assert_equal(tf.size({}), 1)")
        return None
    return None


def _tensors(call: Call) -> Iterator[Argument]:
    return (one for one in call.arguments if one.shape is not None and one.type in {*_TENSORS, "numpy.ndarray"})


def _of_rank(call: Call, rank: int) -> list[Argument]:
    return [one for one in _tensors(call) if len(one.shape or ()) == rank]


def _suspects(call: Call, what: str, found: list[Argument], line: str) -> Fix | None:
    if not found:
        return None
    names = [f"`{one.name}`" for one in found[:_MOST_SUSPECTS]]
    if len(found) > _MOST_SUSPECTS:
        return None
    check = f"`tf.debugging.{line.format(found[0].name)}`"
    if len(found) == 1:
        return Fix(
            text=f"Check {names[0]} of {call.function} first: the check refused a tensor with {what}, and it is the only input that has it. Reject it before the call: {check}."
        )
    return Fix(
        text=f"The check refused a tensor with {what}; of the inputs of {call.function}, {', '.join(names[:-1])} and "
        f"{names[-1]} have it. Begin with the first, and check it before the call: {check}."
    )
