"""Names, instructions and stacks as texts show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats import backtrace, demangle_itanium
from necropsy.formats.disassembly import instruction
from necropsy.formats.siginfo import code_in, code_name
from necropsy.model import Frame


@pytest.mark.parametrize(
    ("text", "function", "arguments"),
    [
        ("f (x=1)", "f", "x=1"),
        ("op::f<int>(int const&) (x=1, p=0x0)", "op::f<int>(int const&)", "x=1, p=0x0"),
        ("std::function<void (int)>::operator()(int) const ()", "std::function<void (int)>::operator()(int) const", ""),
        ("op::(anonymous namespace)::f (x=1)", "op::(anonymous namespace)::f", "x=1"),
        ("operator<< (os=...)", "operator<<", "os=..."),
        ("operator-> (this=0x0)", "operator->", "this=0x0"),
        ("f", "f", None),
        ("f (x=", "f", "x="),
    ],
)
def test_call(text: str, function: str, arguments: str | None) -> None:
    called = backtrace.call(text)
    assert (called.function, called.arguments) == (function, arguments)


def test_only_pointers_are_kept_of_arguments() -> None:
    text = 'this=0x0, key=key@entry=0x7f10 "token-1234", n=5, p=(Node *) 0x10, name="secret"'
    assert backtrace.pointers(text) == {"this": "0x0", "key": "0x7f10", "p": "0x10"}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2op4FillEPii", "op::Fill"),
        ("_ZN5caffe2db10LMDBCursor5valueB5cxx11Ev", "caffe::db::LMDBCursor::value"),
        ("_ZN2op6KernelIfLi4EE3RunERKSt6vectorIfSaIfEE", "op::Kernel::Run"),
        ("_ZNK2op4NodeclEv", "op::Node::operator()"),
        ("_ZN2op4NodeC1Ei", "op::Node::Node"),
        ("_ZN2op4NodeD0Ev", "op::Node::~Node"),
        ("_ZN12_GLOBAL__N_14FillEv", "(anonymous namespace)::Fill"),
        ("_ZZN2op3RunEvENKUlvE_clEv", "op::Run::{lambda}::operator()"),
        ("_ZSt9terminatev", "std::terminate"),
        ("_ZThn16_N2op4Node3RunEv", "op::Node::Run"),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        ("main", "main"),
        ("_ZN2op", "_ZN2op"),
        ("_Z", "_Z"),
    ],
)
def test_mangled(symbol: str, name: str) -> None:
    assert demangle_itanium.readable(symbol) == name


@given(st.text(alphabet="_ZNKSt0123456789IEULvLbTRPabJXDF", max_size=60).map(lambda text: "_Z" + text))
def test_any_mangled_name_is_survived(symbol: str) -> None:
    assert demangle_itanium.readable(symbol)


VALUES = {"rax": 0, "rdi": 0x10, "rsp": 0x7FFE0000, "rcx": 2, "x8": 0x20}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mov    (%rax),%eax", [("[rax]", "read", 0)]),
        ("mov    %edx,(%rax)", [("[rax]", "write", 0)]),
        ("movl   $0x1,0x10(%rdi)", [("[rdi + 0x10]", "write", 0x20)]),
        ("mov    -0x58(%rbp),%rdi", [("[rbp - 0x58]", "read", None)]),
        ("vmovdqu (%rdi,%rcx,8),%ymm0", [("[rdi + rcx*8]", "read", 0x20)]),
        ("cmpl   $0x1,(%rax)", [("[rax]", "read", 0)]),
        ("call   *0x18(%rax)", [("[rax + 0x18]", "read", 0x18), ("[rsp - 8]", "write", 0x7FFDFFF8)]),
        ("push   %rbp", [("[rsp - 8]", "write", 0x7FFDFFF8)]),
        ("rep stos %al,%es:(%rdi)", [("[rdi]", "write", 0x10)]),
        ("lea    0x10(%rdi),%rax", []),
        ("mov    0x2ef2(%rip),%rax        # 0x555 <x>", [("[rip + 0x2ef2]", "read", None)]),
        ("mov eax, dword ptr [rdi + 0x10]", [("[rdi + 0x10]", "read", 0x20)]),
        ("mov    DWORD PTR [rbp-0x58],rdi", [("[rbp - 0x58]", "write", None)]),
        ("mov dword ptr [rax+rcx*4],1", [("[rax + rcx*4]", "write", 8)]),
        ("ldr    w8, [x8, #0x10]", [("[x8 + 0x10]", "read", 0x30)]),
        ("str    w9, [x8]", [("[x8]", "write", 0x20)]),
        ("ud2", []),
    ],
)
def test_instruction(text: str, expected: list[tuple[object, ...]]) -> None:
    found = instruction(0x1000, text, VALUES)
    assert [(one.text, one.access, one.address) for one in found.operands] == expected
    assert found.text == " ".join(text.split())


def test_instruction_names_its_registers_whole() -> None:
    assert instruction(0x1000, "mov (%rax),%ecx", VALUES).registers == {"rax": 0, "rcx": 2}
    assert instruction(0x1000, "idivl -0x8(%rbp)").mnemonic == "idiv"


@given(st.text(max_size=80))
def test_any_instruction_is_survived(text: str) -> None:
    assert instruction(0, text, VALUES).address == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("address not mapped to object", "SEGV_MAPERR"),
        ("Address not mapped", "SEGV_MAPERR"),
        ("invalid permissions for mapped object", "SEGV_ACCERR"),
        ("Non-existant physical address", "BUS_ADRERR"),
        ("nonexistent physical address", "BUS_ADRERR"),
        ("Integer divide-by-zero", "FPE_INTDIV"),
        ("memory not mapped", "SEGV_MAPERR"),
        ("something else", None),
    ],
)
def test_words_of_signals(words: str, code: str | None) -> None:
    assert code_in(words) == code


def test_numbers_of_signals() -> None:
    assert [code_name("SIGSEGV", number) for number in (1, 2, 128, 0, -6, 77)] == [
        *("SEGV_MAPERR", "SEGV_ACCERR", "SI_KERNEL", "SI_USER", "SI_TKILL", "77"),
    ]


# ---------------------------------------------------------------- threads


def frames(*spans: tuple[int, int, str]) -> list[Frame]:
    return [backtrace.native(index, name) for low, high, name in spans for index in range(low, high)]


def test_a_thread_keeps_both_ends() -> None:
    thread = backtrace.thread(frames((0, 5000, "f"), (5000, 5001, "main")))
    assert thread.frames is not None
    assert (len(thread.frames), thread.frames_total) == (512, 5001)
    assert thread.folds[0].times == 5000


def test_a_hole_is_filled_by_the_recursion_that_reaches_it() -> None:
    thread = backtrace.thread(frames((0, 30, "f"), (1000, 1010, "f"), (1010, 1011, "main")))
    (fold,) = thread.folds
    assert (fold.start, fold.times, thread.frames_total) == (0, 1010, 1011)


def test_a_hole_that_no_recursion_reaches_stays_one() -> None:
    thread = backtrace.thread(frames((0, 8, "f"), (8, 9, "g"), (1000, 1001, "main")))
    assert [fold.times for fold in thread.folds] == [8]


def test_the_ends_of_one_stack_are_joined() -> None:
    head = backtrace.thread(frames((0, 400, "f")), crashed=True, tid=7)
    tail = backtrace.thread(frames((9000, 9100, "f"), (9100, 9101, "main")))
    whole = backtrace.joined(head, tail)
    assert (whole.tid, whole.crashed, whole.frames_total) == (7, True, 9101)
    assert whole.folds[0].times == 9100
    assert backtrace.joined(tail, head) is tail, "what begins at 0 is not the end of another stack"


@pytest.mark.parametrize(
    ("registers", "address", "full"),
    [
        ({"rsp": 0x7FFFFF7FF000}, 0x7FFFFF7FEFF8, True),
        ({"rsp": 0x7FFFFD9D1000, "rbp": 0x7FFFFFFFD000}, 0x7FFFFDFD1000, True),
        ({"rsp": 0x7FFFFFFFD000, "rbp": 0x7FFFFFFFD100}, 0x10, None),
        ({"rsp": 0x10, "rbp": 0x10}, 0x18, None),
        ({"rsp": 0x7FFFFFFFD000}, None, None),
    ],
)
def test_a_stack_has_ended_where_its_own_memory_is_refused(
    registers: dict[str, int], address: int | None, full: bool | None
) -> None:
    stack = backtrace.by_stack(registers, address)
    assert stack is not None and stack.guard_hit is full


def test_without_a_stack_pointer_nothing_is_known_of_a_stack() -> None:
    assert backtrace.by_stack({"rax": 1}, 0x10) is None
