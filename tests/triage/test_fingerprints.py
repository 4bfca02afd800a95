"""What a fingerprint keeps of a death, and what it leaves out: one test for each way in which one bug looks like two."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.triage.documents import Call, DeadThread, Mapped, Phrase, Repeated, Thrown
from necropsy.triage.messages import condition, contradict, words
from necropsy.triage.names import agree, of_function
from triage_reports import LIBRARY, call, check, of, python, report


@pytest.mark.parametrize(
    ("function", "last", "full"),
    [
        ("rows::dot(double const*, double const*, long)", "dot", "rows::dot"),
        ("dot", "dot", "dot"),
        ("rows::Cache<int>::evict(int) [clone .cold]", "evict", "rows::Cache::evict"),
        ("rows::parse.constprop.0", "parse", "rows::parse"),
        ("rows::parse(int) [clone .isra.0] [clone .part.0]", "parse", "rows::parse"),
        ("parse.llvm.1234567", "parse", "parse"),
        ("rows::name[abi:cxx11](int)", "name", "rows::name"),
        ("fwrite@@GLIBC_2.2.5", "fwrite", "fwrite"),
        ("r_sum(int)::{lambda(int)#1}::operator()(int) const", "r_sum", "r_sum"),
        ("rows::sum(int)::{lambda(int)#2}::_FUN(int)", "sum", "rows::sum"),
        ("rows::sum(int)::<lambda(int)>", "sum", "rows::sum"),
        ("rows::sum::$_0::operator()(int) const", "sum", "rows::sum"),
        ("rows::sum(long)::'lambda'(long)::operator()(long) const", "sum", "rows::sum"),
        ("(anonymous namespace)::visit(int)", "visit", "{anonymous}::visit"),
        ("Node::~Node()", "~Node", "Node::~Node"),
        ("rows::operator<<(std::ostream&, Row const&)", "operator<<", "rows::operator<<"),
    ],
)
def test_a_function_has_one_name_in_every_build(function: str, last: str, full: str) -> None:
    assert of_function(function) == (last, full)


@pytest.mark.parametrize(
    "function",
    [
        "operator()",
        "_M_invoke",
        "_FUN",
        "__invoke_impl<int, int (*)()>",
        "std::__invoke_impl<void, f>(f)",
        "std::vector<int>::at(unsigned long)",
    ],
)
def test_names_that_say_nothing_are_none(function: str) -> None:
    assert of_function(function) is None


def test_scopes_agree_where_one_is_unknown() -> None:
    assert agree("rows::dot", "dot")
    assert agree("a::rows::dot", "rows::dot")
    assert not agree("AddOp::Compute", "MulOp::Compute")


def test_inlined_functions_are_aliases_of_one_frame() -> None:
    one = of(
        report([call("dot", 0x10, "rows.cc:8"), call("rows::score_rows(long)", 0x10, "rows.cc:20"), call("step", 0x90)])
    )
    assert [place.names for place in one.frames] == [("dot", "score_rows"), ("step",)]
    assert one.frames[0].lines == ("rows.cc:8", "rows.cc:20")
    assert (one.frames[0].build_id, one.frames[0].offset) == ("b1", "0x10")


def test_a_debugger_prints_no_address_for_what_was_inlined() -> None:
    frames = [
        Call(function="dot", source="rows.cc", line=8, found_by="text"),
        Call(function="score_rows", source="rows.cc", line=20, found_by="text"),
        Call(function="step", source="rows.cc", line=40, address="0x7f00", found_by="text"),
    ]
    assert [place.names for place in of(report(frames)).frames] == [("dot", "score_rows"), ("step",)]


def test_true_recursion_is_not_taken_for_inlining() -> None:
    one = of(report([call("visit", 0x10), call("visit", 0x10), call("step", 0x90)]))
    assert [place.names for place in one.frames] == [("visit",), ("visit",), ("step",)]


@pytest.mark.parametrize(
    "function", ["check_failed(char const*, int)", "rows::CheckFailed(int)", "throw_bad_row()", "fatal_error"]
)
def test_the_messenger_is_skipped_where_the_process_ended_itself(function: str) -> None:
    frames = [call("abort", 0x1, module="libc.so.6"), call(function, 0x10), call("set_dim", 0x20)]
    assert [place.names for place in of(report(frames, signal="SIGABRT")).frames] == [("set_dim",)]


def test_a_function_named_like_a_messenger_can_be_the_place_of_a_fault() -> None:
    assert of(report([call("check_failed", 0x10), call("set_dim", 0x20)])).frames[0].names == ("check_failed",)


def test_a_stack_of_messengers_only_keeps_them() -> None:
    assert of(report([call("check_failed", 0x10)], signal="SIGABRT")).frames[0].names == ("check_failed",)


def test_what_the_system_and_the_interpreter_do_is_no_part() -> None:
    frames = [
        msgspec.structs.replace(call("__memmove_avx", 0x1, module="libc.so.6"), owner="system"),
        call("pack_rows", 0x10),
        msgspec.structs.replace(call("ffi_call", 0x2, module="libffi.so.8"), owner="interpreter"),
        msgspec.structs.replace(
            call("_PyEval_EvalFrameDefault", 0x3, module="libpython3.11.so.1.0"), owner="interpreter"
        ),
        call("main", 0x99),
    ]
    assert [place.names for place in of(report(frames)).frames] == [("pack_rows",)]


def test_a_template_of_the_cpp_library_in_an_own_library_keeps_its_place_but_no_name() -> None:
    frames = [
        call("std::_Function_handler<int (int), Visit>::_M_invoke(std::_Any_data const&)", 0x10),
        call("each", 0x20),
    ]
    first, second = of(report(frames)).frames
    assert (first.names, first.offset) == ((), "0x10")
    assert second.names == ("each",)


def test_a_lambda_is_found_in_the_arguments_of_a_template() -> None:
    name = (
        "std::_Function_handler<int (int), rows::total(long)::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)"
    )
    assert of(report([call(name, 0x10)])).frames[0].names == ("total",)


def test_the_line_of_an_inlined_template_is_not_a_line_of_the_function_around_it() -> None:
    """clang++ does not always name what it has inlined."""
    line = "/usr/include/c++/12/bits/stl_iterator.h:1073"
    assert of(report([call("rows::score_rows(long)", 0x10, line)])).frames[0].lines == ()


def test_a_recursion_is_the_set_of_its_functions() -> None:
    library = ("librows.so", "librows.so")
    one = Repeated(period=2, times=9000, functions=("value(Node*)", "list(Node*)"), modules=library)
    two = Repeated(period=2, times=8000, functions=("list(Node*)", "value(Node*)"), modules=library)
    frames = [call("value(Node*)", 0x10), call("list(Node*)", 0x20)]
    first, second = (of(report(frames, folds=(fold,), rule="stack-overflow-recursion")) for fold in (one, two))
    assert first.family == "stack"
    assert first.key == second.key
    assert [place.names for place in first.period] == [("list",), ("value",)]


def test_the_rule_is_no_part_of_the_key() -> None:
    frames = [call("histogram", 0x10), call("step", 0x20)]
    assert of(report(frames, rule="invalid-read")).key == of(report(frames, rule="invalid-write")).key


def test_addresses_pids_and_times_are_no_part_of_the_key() -> None:
    one = report([call("histogram", 0x10)])
    moved = msgspec.structs.replace(call("histogram", 0x10), address="0x7fff00000010")
    other = report([moved])
    other = msgspec.structs.replace(
        other, pid=7, crash=msgspec.structs.replace(other.crash, pid=7, at="2026-11-24T10:00:00Z")
    )
    assert of(one).key == of(other).key


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("rank <= 8 (29 vs. 8)", "rank <= 8"),
        ("rank <= 8 (29 vs. 8)rank of 0x7f01 is too large", "rank <= 8"),
        ("size >= 0 (-97 vs. 0)", "size >= 0"),
        ("f(a, 3) == g(b) (1 vs. 2)", "f(a, 3) == g(b)"),
        ("ok", "ok"),
    ],
)
def test_a_check_is_its_condition(text: str, kept: str) -> None:
    assert condition(text) == kept


def test_words_lose_what_differs_each_time() -> None:
    text = "vector::_M_range_check: __n (which is 100) >= this->size() (which is 3)"
    assert words(text) == "vector::_M_range_check: __n (which is #) >= this->size() (which is #)"
    assert words("cannot open /data/part-7/rows.bin at 0x7f00ab") == words("cannot open /tmp/x/y.bin at 0x1")
    assert words("no column 'width' in 3 tables") == words("no column 'height' in 12 tables")


def test_texts() -> None:
    assert of(report(said=check("rank <= 8 (29 vs. 8)"), signal="SIGABRT")).text == "CHECK rank <= 8"
    thrown = Thrown(type="std::out_of_range", what="no row 7")
    assert of(report([call("at", 1)], thrown=thrown, signal="SIGABRT")).text == "std::out_of_range: no row #"
    heap = [
        Phrase(kind="glibc-abort", text=text, fields={"what": text})
        for text in ("free(): invalid pointer", "corrupted size")
    ]
    assert of(report(said=heap[0], signal="SIGABRT")).text == of(report(said=heap[1], signal="SIGABRT")).text


def test_texts_that_contradict() -> None:
    assert contradict("CHECK a", "CHECK b")
    assert contradict("std::out_of_range", "std::logic_error: x")
    assert not contradict("std::out_of_range", "std::out_of_range: x")
    assert not contradict(None, "CHECK a")


def test_the_python_functions_are_the_users_own() -> None:
    lines = (
        *python("train.py:7 score"),
        Call(function="call", source="/usr/lib/python3.11/site-packages/x/y.py", line=3, owner="package"),
        *python("train.py:20 main"),
    )
    one = of(report([call("dot", 0x10)], lines=lines))
    assert one.python == ("train.py:score", "train.py:main")
    assert one.python_line == "train.py:7"


def test_a_log_does_not_tell_a_full_stack_from_other_faults() -> None:
    one = of(report(lines=python("train.py:7 score")))
    assert (one.family, one.end, one.native) == ("memory-or-stack", "SIGSEGV", False)


def test_build_ids_belong_to_the_library_of_the_frame() -> None:
    one = report([call("dot", 0x10)])
    crash = msgspec.structs.replace(one.crash, modules=(Mapped(path=LIBRARY + " (deleted)", build_id="b2"),))
    assert of(msgspec.structs.replace(one, crash=crash)).frames[0].build_id == "b2"


NAMES = st.text(alphabet="abcxyz_:<>()[]{}~$. *&,'#@0123456789", max_size=60)


@given(st.lists(st.tuples(NAMES, st.integers(0, 5)), max_size=12), NAMES, st.booleans())
def test_anything_has_a_fingerprint_and_always_the_same(
    functions: list[tuple[str, int]], said: str, ended: bool
) -> None:
    frames = [call(function or None, at) for function, at in functions]
    one = report(frames, said=Phrase(kind="check-failed", text=said), signal="SIGABRT" if ended else "SIGSEGV")
    assert of(one) == of(one)
    for place in of(one).frames:
        assert not place.names or len(place.names) == len(place.qualified)


def test_a_death_without_threads() -> None:
    one = report()
    crash = msgspec.structs.replace(one.crash, threads=None, exit=None, modules=None)
    assert of(msgspec.structs.replace(one, crash=crash)).end == "unknown"
    crash = msgspec.structs.replace(crash, threads=(DeadThread(), DeadThread()))
    assert of(msgspec.structs.replace(one, crash=crash)).frames == ()
