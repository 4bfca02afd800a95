"""The call that was made, in the report: what is said of its arguments, and which of them is advised on."""

from __future__ import annotations

import msgspec
import pytest

import sketch
from necropsy.diagnose import diagnose
from necropsy.model import Argument, Call, Diagnosis
from necropsy.rules import crash_rules
from necropsy.rules.called import spell

FAULT = """
    signal SIGSEGV SEGV_MAPERR 0x10 read
    at 0x7f0000001000 mov eax, dword ptr [rdi + 0x10]
    operand read [rdi + 0x10] = 0x10 size 4 rdi=0x0
    thread 4711 python3 crashed
    stack 8MiB used 20KiB whole main
    frame Node::weight(Node const*) @ op.so in op.cc:31 takes 32
    python step train.py:40
"""
CHECK = """
    signal SIGABRT SI_TKILL
    sent-by itself
    thread 4711 python3 crashed
    frame raise @ libc.so.6 takes 16
    frame abort @ libc.so.6 takes 160
    frame tsl::internal::LogMessageFatal::~LogMessageFatal() @ libtensorflow_framework.so.2 takes 32
    frame tensorflow::TensorShape::dim_size(int) const @ libtensorflow_framework.so.2 takes 64
    log 2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:356] Check failed: {}
    python reshape model.py:9
"""
KILLED = """
    signal SIGKILL SI_USER
    sent-by 99
    thread 4711 python3 crashed
    stack 8MiB used 20KiB whole main
    frame read @ libc.so.6 takes 32
    python step train.py:40
"""
FULL = Argument(name="x", type="EagerTensor", dtype="float32", shape=(2, 3))
EMPTY = Argument(name="y", type="EagerTensor", dtype="quint8", shape=(0,), unusual=("empty",))


def verdict(text: str, *arguments: Argument, library: str = "tensorflow") -> Diagnosis:
    call = Call(function="QuantizedMul", library=library, arguments=arguments, where="the local variables of f, line 7")
    report = diagnose(msgspec.structs.replace(sketch.crash(text), call=call), crash_rules())
    assert report.verdict is not None
    return report.verdict


def told(found: Diagnosis) -> str | None:
    return next((one.seen for one in found.evidence if one.claim == "`QuantizedMul` was called with"), None)


def test_an_empty_input_is_advised_on_first() -> None:
    plain = diagnose(sketch.crash(FAULT), crash_rules()).verdict
    found = verdict(FAULT, FULL, EMPTY)
    assert plain is not None
    assert told(found) == "x: float32 [2, 3]; y: quint8 [0], empty"
    assert found.fixes[0].text == (
        "Check `y` of QuantizedMul first: it is empty (quint8, shape [0]). "
        "Reject it before the call in train.py:40: `tf.debugging.assert_positive(tf.size(y))`."
    )
    assert found.fixes[1:] == plain.fixes  # no smallest call: the module of the function is not known
    assert (found.rule, found.confidence, found.culprit) == (plain.rule, plain.confidence, plain.culprit)


@pytest.mark.parametrize(
    ("argument", "library", "line"),
    [
        (Argument(name="p", type="LP_c_int", value="NULL", unusual=("null",)), "ctypes", "`assert p`"),
        (
            Argument(name="argument 2", type="None", value="NULL", unusual=("null",)),
            "ctypes",
            "with x for what you pass: `assert x`",
        ),
        (Argument(name="size", type="int", value="-5", unusual=("negative",)), "numpy", "`assert size >= 0`"),
        (Argument(name="n", type="int", value="4294967296", unusual=("huge",)), "numpy", "`assert n < 2**31`"),
        (
            Argument(name="a", type="numpy.ndarray", dtype="int8", shape=(1 << 20, 1 << 20), unusual=("huge",)),
            "numpy",
            "`assert a.size < 2**31`",
        ),
        (
            Argument(name="a", type="numpy.ndarray", dtype="int8", shape=(4, 3), unusual=("not-contiguous",)),
            "somepackage",
            "`np.ascontiguousarray(a)`",
        ),
        (
            Argument(name="t", type="torch.Tensor", dtype="int8", shape=(0,), unusual=("empty",)),
            "torch",
            "`assert t.numel() > 0`",
        ),
        (
            Argument(name="t", type="torch.Tensor", dtype="int8", shape=(4, 3), unusual=("not-contiguous",)),
            "somepackage",
            "`t.contiguous()`",
        ),
        (
            Argument(name="ksize", type="list", dtype="int", shape=(2,), value="[1, -4]", unusual=("negative",)),
            "tensorflow",
            "`assert min(ksize) >= 0`",
        ),
        (
            Argument(name="i", type="EagerTensor", dtype="int64", shape=(2,), unusual=("negative",)),
            "tensorflow",
            "`tf.debugging.assert_non_negative(i)`",
        ),
    ],
)
def test_the_line_that_refuses_it(argument: Argument, library: str, line: str) -> None:
    assert line in verdict(FAULT, FULL, argument, library=library).fixes[0].text


def test_an_address_that_was_passed_as_a_number_is_not_too_large() -> None:
    address = Argument(name="argument 1", type="int", value=str(0x7F12E2200000), unusual=("huge",))
    count = Argument(name="argument 2", type="int", value=str(1 << 40), unusual=("huge",))
    plain = diagnose(sketch.crash(FAULT), crash_rules()).verdict
    assert plain is not None
    assert verdict(FAULT, address, library="ctypes").fixes == plain.fixes
    assert verdict(FAULT, address, count, library="ctypes").fixes[0].text.startswith("Check `argument 2`")


@pytest.mark.parametrize(
    "argument",
    [
        Argument(name="axis", type="int", value="-2", unusual=("negative",)),
        Argument(name="n_jobs", type="int", value="-1", unusual=("negative",)),
        Argument(name="size", type="int", value="-1", unusual=("negative",)),
        Argument(name="seed", type="int", value="4294967296", unusual=("huge",)),
        Argument(name="explicit_paddings", type="list", shape=(0,), unusual=("empty",)),
        Argument(name="a", type="numpy.ndarray", dtype="int8", shape=(4, 3), unusual=("not-contiguous",)),
        FULL,
    ],
    ids=lambda one: one.name,
)
def test_what_callers_do_all_the_time_is_told_and_not_advised_on(argument: Argument) -> None:
    plain = diagnose(sketch.crash(FAULT), crash_rules()).verdict
    found = verdict(FAULT, argument, library="numpy")
    assert plain is not None
    assert (told(found) or "").startswith(argument.name)
    assert found.fixes == plain.fixes


def test_a_failed_check_tells_which_input_it_refused() -> None:
    scalar = Argument(name="index", type="EagerTensor", dtype="int64", shape=(), value="0")
    advice = verdict(CHECK.format("d < dims() (1 vs. 0)"), FULL, EMPTY, scalar).fixes[0].text
    assert "`index` of QuantizedMul first: the check refused a tensor with rank 0, and it is the only input" in advice
    assert "`tf.debugging.assert_rank_at_least(index, 2)`" in advice
    counted = verdict(CHECK.format("1 == NumElements() (1 vs. 6) Must have a one element tensor"), FULL, scalar)
    assert "`tf.debugging.assert_equal(tf.size(x), 1)`" in counted.fixes[0].text


def test_null_is_advised_on_where_a_null_pointer_was_used_only() -> None:
    null = Argument(name="p", type="LP_c_int", value="NULL", unusual=("null",))
    found = verdict(CHECK.format("n > 0 (0 vs. 1)"), null, library="ctypes")
    assert told(found) == "p = NULL"
    assert "`p`" not in found.fixes[0].text


def test_of_several_that_it_may_have_refused_none_is_singled_out() -> None:
    pair = [Argument(name=name, type="EagerTensor", dtype="int64", shape=()) for name in ("a", "b")]
    advice = verdict(CHECK.format("d < dims() (1 vs. 0)"), FULL, *pair).fixes[0].text
    assert "`a` and `b` have it" in advice


def test_a_death_that_the_call_has_no_part_in_says_nothing_of_it() -> None:
    assert told(verdict(KILLED, EMPTY)) is None


def test_a_long_call_is_cut_and_text_is_left_out() -> None:
    many = tuple(Argument(name=f"a{at}", type="int", value="1") for at in range(15))
    text = Argument(name="path", type="str")
    assert spell(Call(function="f", arguments=(text, *many))).endswith("a11 = 1; and 3 more")
    assert spell(Call(function="f", arguments=(text,))) == ""
