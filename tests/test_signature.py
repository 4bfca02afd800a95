"""What a signature must not see, and what it must: properties of made-up stacks. Real deaths: capture/linux, windows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.model import (
    Address,
    Crash,
    Culprit,
    Diagnosis,
    Evidence,
    Exit,
    FastFail,
    Fault,
    Fold,
    Frame,
    Message,
    NtStatus,
    Owner,
    PythonPlace,
    Thread,
)
from necropsy.signature import FRAMES, plain, signature

NAMES = st.lists(st.from_regex(r"[A-Z][a-z]{1,6}", fullmatch=True), min_size=1, max_size=12, unique=True)
SEEDS = st.integers(0, 1 << 32)
SYSTEMS_OWN = (("raise", "libc.so.6"), ("memcpy", "libc.so.6"), ("RtlUserThreadStart", "ntdll.dll"))


def verdict(rule: str = "null-dereference", culprit: Culprit | None = None) -> Diagnosis:
    return Diagnosis(
        rule=rule,
        title=rule,
        summary=rule,
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="seen", seen="x"),),
        culprit=culprit,
    )


def frame(function: str | None, module: str = "ops.so", at: int = 0x1000, size: int | None = 64) -> Frame:
    return Frame(
        index=0,
        kind="native",
        function=function,
        module=module,
        module_offset=Address(at & 0xFFFF),
        address=Address(at),
        stack_bytes=size,
    )


def numbered(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    return tuple(msgspec.structs.replace(one, index=index) for index, one in enumerate(frames))


def crash(frames: Sequence[Frame], *folds: Fold, signal: str = "SIGSEGV", largest: tuple[Frame, ...] = ()) -> Crash:
    thread = Thread(tid=1, crashed=True, frames=numbered(frames), folds=folds, largest=largest)
    return Crash(fault=Fault(signal=signal), threads=(thread,))


def stack(names: Sequence[str]) -> list[Frame]:
    return [frame(name, at=0x1000 + 16 * index) for index, name in enumerate(names)]


def of(frames: Sequence[Frame]) -> str:
    return signature(crash(frames), verdict())


def seen_otherwise(frames: Sequence[Frame], dice: random.Random) -> list[Frame]:
    """The same stack as somebody else sees it: what is inlined, lines, addresses, the system's functions between."""
    moved = dice.randrange(1, 1 << 30) << 12
    found: list[Frame] = []
    for one in frames:
        at = (one.address or 0) + moved
        for _ in range(dice.randrange(3)):
            name = f"Inlined{dice.randrange(1 << 20)}"
            found.append(msgspec.structs.replace(frame(name, at=at, size=None), source="/elsewhere/x.h", line=7))
        spelled = dice.choice(("{}", "{}(int, char const*)", "void {}<float>(Tensor<float> const&)", "{}.constprop.0"))
        found.append(
            msgspec.structs.replace(
                one,
                function=spelled.format(one.function),
                address=Address(at),
                source=dice.choice((None, "/src/op.cc")),
                line=dice.choice((None, 3)),
                stack_bytes=dice.choice((None, 64)) if one.stack_bytes is None else one.stack_bytes,
            )
        )
        if dice.random() < 0.3:
            name, module = dice.choice(SYSTEMS_OWN)
            found.append(frame(name, module, at=0x7FFF0000 + dice.randrange(1 << 12) * 16))
    return found


@given(NAMES, SEEDS)
def test_who_sees_more_or_less_of_a_stack_sees_the_same_crash(names: list[str], seed: int) -> None:
    assert of(seen_otherwise(stack(names), random.Random(seed))) == of(stack(names))


@given(NAMES, st.data())
def test_another_function_is_another_crash(names: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, min(len(names), FRAMES) - 1))
    other = [*names[:at], "Another", *names[at + 1 :]]
    assert of(stack(other)) != of(stack(names))
    assert of(seen_otherwise(stack(other), random.Random(1))) != of(stack(names))


@given(NAMES, st.data())
def test_how_deep_a_tree_was_walked_makes_no_other_crash(names: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(names) - 1))
    end = data.draw(st.integers(start + 1, len(names)))
    times = data.draw(st.integers(2, 50))
    deeper = [*names[:start], *names[start:end] * times, *names[end:]]
    assert of(stack(deeper)) == of(stack(names))


@given(NAMES, SEEDS, st.integers(4, 100_000))
def test_where_a_recursion_used_up_the_stack_is_chance(names: list[str], seed: int, times: int) -> None:
    """It begins anywhere in its period, with anything on top, of any depth; some of it may be inlined."""
    dice = random.Random(seed)
    found = set()
    for way in range(3):
        turn = dice.randrange(len(names))
        unit = seen_otherwise(stack([*names[turn:], *names[:turn]]), dice) if way else stack(names)
        top = [frame("malloc", "libc.so.6", at=0x7F0000), frame(f"Leaf{way}", at=0x500)]
        fold = Fold(
            period=len(unit),
            times=times + way,
            functions=tuple(one.function or "?" for one in unit),
            modules=tuple(one.module for one in unit),
            bytes_per_period=100.0,
            start=len(top),
        )
        small = Fold(period=1, times=times, functions=(f"Other{way}",), modules=("ops.so",), bytes_per_period=1.0)
        shown = crash([*top, *unit * 4], small, fold)
        found.add(signature(shown, verdict("stack-overflow-recursion")))
    assert len(found) == 1
    other = signature(
        crash(
            stack(["Another"] * 4), Fold(period=1, times=times, functions=("Another",), modules=("ops.so",), start=0)
        ),
        verdict("stack-overflow-recursion"),
    )
    assert other not in found


@given(NAMES, NAMES)
def test_what_was_called_when_a_large_frame_filled_the_stack_is_chance(names: list[str], called: list[str]) -> None:
    rule = verdict("stack-overflow-large-frame")
    large = frame("TheLarge", at=0x9000, size=16 << 20)
    outer = stack(names)
    bare = signature(crash([large, *outer]), rule)
    assert signature(crash([*stack([f"C{name}" for name in called]), large, *outer]), rule) == bare
    other = frame("Another", at=0x9000, size=16 << 20)
    assert signature(crash([other, *outer]), rule) != bare


@given(NAMES)
def test_the_rule_and_the_signal_count(names: list[str]) -> None:
    one = crash(stack(names))
    bus = crash(stack(names), signal="SIGBUS")
    assert len({signature(one, verdict()), signature(one, verdict("invalid-read")), signature(bus, verdict())}) == 3


def test_an_inlined_recursion_is_one_function() -> None:
    """GCC puts a few levels of a function into itself."""
    fold = Fold(period=2, times=50, functions=("Part", "Walk"), modules=("ops.so", "ops.so"), start=0)
    pair = [frame("Part", at=0x40, size=None), frame("Walk", at=0x40)]
    plain_fold = Fold(period=1, times=50, functions=("Walk",), modules=("ops.so",), start=0)
    rule = verdict("stack-overflow-recursion")
    seen = signature(crash(pair * 5, fold), rule)
    assert seen == signature(crash(stack(["Walk"] * 5), plain_fold), rule)
    assert seen.startswith("stack-overflow-recursion|Walk|")


def test_a_recursion_whose_inlined_call_is_the_last_frame_that_is_shown() -> None:
    """Of a deep stack only the first and the last frames are: where that cuts a pair of them is chance."""
    pair = [frame("Part", at=0x40, size=None), frame("Walk", at=0x40, size=64)]
    rule = verdict("stack-overflow-recursion")
    found = set()
    for shown in ([*pair, *pair], [pair[1], *pair, pair[0]]):
        fold = Fold(period=2, times=900, functions=("Part", "Walk"), modules=("ops.so", "ops.so"), start=0)
        indexed = crash([*shown, *pair], fold)
        (thread,) = indexed.threads or ()
        frames = [
            msgspec.structs.replace(one, index=one.index + 1000 * (one.index >= 4)) for one in thread.frames or ()
        ]
        cut = msgspec.structs.replace(thread, frames=tuple(frames))
        found.add(signature(msgspec.structs.replace(indexed, threads=(cut,)), rule))
    assert len(found) == 1
    assert "|Walk|" in found.pop()


def test_a_crash_in_a_recursion_is_known_by_its_place() -> None:
    """Not by the recursion: what it fell over is what differs."""
    fold = Fold(period=1, times=9, functions=("Walk",), modules=("ops.so",), start=1)
    read, write = (signature(crash(stack([leaf, *["Walk"] * 9]), fold), verdict()) for leaf in ("Read", "Write"))
    assert read != write


def test_functions_without_names_are_their_places() -> None:
    """Wherever the library was loaded; two places are two crashes. Code made at run time is nowhere."""
    here, there = frame(None, at=0x5000_1230), frame(None, at=0x7000_1230)
    assert of([here]) == of([there]) != of([frame(None, at=0x5000_1240)])
    assert of([here]).startswith("null-dereference|ops.so+0x1230|")
    generated = msgspec.structs.replace(here, module=None, module_offset=None)
    assert of([generated, *stack(["Outer"])]) == of(stack(["Outer"]))


def test_who_called_the_interpreter_does_not_count() -> None:
    loop = frame("_PyEval_EvalFrameDefault", "python3.11")
    inner = stack(["Work"])
    assert of([*inner, loop, *stack(["Embedder"])]) == of([*inner, loop])


def test_where_nothing_is_the_programs_own() -> None:
    """ctypes reads at 0: the C library's function, and the function of Python that led there."""
    frames = [frame("__strlen_avx2", "libc.so.6"), frame("_PyEval_EvalFrameDefault", "python3.11")]

    def led(function: str, file: str) -> str:
        place = PythonPlace(function=function, file=file, line=3)
        return signature(crash(frames), verdict(culprit=Culprit(python=place)))

    assert led("read", "/a/train.py") == led("read", "/b/train.py")
    assert led("read", "/a/train.py") != led("write", "/a/train.py")
    assert signature(crash(frames), verdict()) != signature(crash([frame("memchr", "libc.so.6")]), verdict())


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("Foo<int>::bar(int) const", "Foo::bar"),
        ("(anonymous namespace)::go(int)", "{anonymous}::go"),
        ("{anonymous}::go", "{anonymous}::go"),
        ("walk.constprop.0", "walk"),
        ("walk.cold", "walk"),
        ("walk.localalias", "walk"),
        ("_walk", "walk"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("_", "_"),
    ],
)
def test_names_as_all_sources_know_them(spelled: str, name: str) -> None:
    assert plain(spelled) == name


def test_an_exception_is_known_by_its_place_and_by_what_it_was_about() -> None:
    def raised(function: str, **fields: str) -> str:
        said = (
            Message(kind="python-traceback", text="...", where="log line 3", fields={"exception": "ImportError"}),
            Message(kind="missing-library", text="...", where="log line 4", fields=fields),
        )
        place = PythonPlace(function=function, file="train.py", line=3)
        return signature(
            Crash(exit=Exit(kind="exited", code=1), messages=said), verdict("missing-library", Culprit(python=place))
        )

    assert raised("load", library="/a/libx.so") == raised("load", library="/b/libx.so")
    seen = {raised("load", library="libx.so"), raised("load", library="liby.so"), raised("main", library="libx.so")}
    assert len(seen) == 3


def test_a_hang_is_known_by_who_is_blamed() -> None:
    def hung(function: str) -> str:
        return signature(Crash(exit=Exit(kind="timeout")), verdict("hang", Culprit(function=function)))

    assert hung("Collatz(long)") == hung("Collatz") != hung("Flush")
    assert hung("Collatz").startswith("hang|Collatz|")


def test_a_fast_fail_is_another_one_by_its_subcode() -> None:
    def failed(subcode: int) -> Crash:
        status = NtStatus(value="0xC0000409", signed=-1073740791, fast_fail=FastFail(code=subcode))
        return msgspec.structs.replace(crash(stack(["Check"])), exit=Exit(kind="exited", ntstatus=status))

    assert signature(failed(5), verdict()) == signature(failed(5), verdict()) != signature(failed(8), verdict())


def test_a_rule_that_takes_what_dumps_do_not_show_is_the_general_one() -> None:
    one = crash(stack(["Work"]))
    assert signature(one, verdict("write-to-readonly")) == signature(one, verdict("invalid-write"))
    assert signature(one, verdict("invalid-read")) != signature(one, verdict("invalid-write"))


def test_the_exit_status_counts_where_there_is_nothing_else() -> None:
    def ended(code: int) -> Crash:
        status = NtStatus(value=f"0x{code:08X}", signed=code - (1 << 32))
        return Crash(exit=Exit(kind="exited", code=code, ntstatus=status))

    assert signature(ended(0xC0000409), None) == signature(ended(0xC0000409), None)
    assert signature(ended(0xC0000409), None) != signature(ended(0xC0000374), None)
    assert signature(Crash(exit=Exit(kind="exited", code=139)), None) == signature(
        Crash(exit=Exit(kind="signaled", signal="SIGSEGV")), None
    )


def test_who_notices_that_the_heap_is_damaged_makes_no_other_crash() -> None:
    def noticed(*functions: str, owner: Owner | None = None) -> str:
        frames = tuple(
            Frame(index=at, kind="native", function=name, module="/usr/lib/libtensorflow_cc.so.2", owner=owner)
            for at, name in enumerate(functions)
        )
        place = PythonPlace(function="train", file="/home/u/train.py", line=11)
        crash = Crash(fault=Fault(signal="SIGABRT"), threads=(Thread(tid=1, crashed=True, frames=frames),))
        return signature(crash, verdict("heap-corruption", Culprit(python=place)))

    assert noticed("tensorflow::ValidateNodeDef", "tensorflow::Run") == noticed("absl::Status::Status")
    assert noticed("Sum", owner="native-code") != noticed("Copy", owner="native-code"), "the user's own code is named"
