"""Which deaths are one bug and which are not: one test for each way in which grouping is known to go wrong."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from hypothesis import given
from hypothesis import strategies as st

from necropsy.triage.deaths import Fingerprint
from necropsy.triage.documents import Call, Phrase, Repeated, Thrown
from necropsy.triage.grouping import group
from triage_corpus import corpus, grouped, measured
from triage_reports import call, check, keyed, of, python, report

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from 3.11 on


class Details(TypedDict, total=False):
    """What a report may have besides its frames."""

    signal: str
    lines: Sequence[Call]
    said: Phrase | None
    thrown: Thrown | None
    rule: str


def together(*them: Fingerprint, others: Sequence[Fingerprint] = ()) -> bool:
    """The first ones are in one group, in the company of others."""
    everything = keyed(*them, *others)
    keys = {one.key for one in them}
    return any(keys <= set(one.keys) for one in group(everything, {}, []).groups)


def debug(
    *names: str, at: int = 0x10, build: str = "O0", step: int = 0x10, line: int = 8, **more: Unpack[Details]
) -> Fingerprint:
    """A stack without inlining, with lines."""
    frames = [call(name, at + step * place, f"rows.cc:{line + 10 * place}") for place, name in enumerate(names)]
    return of(report(frames, build=build, **more))


def bare(*names: str | None, at: int = 0x10, build: str = "stripped", **more: Unpack[Details]) -> Fingerprint:
    """A stack without debug information."""
    frames = [call(name, at + 0x10 * place) for place, name in enumerate(names)]
    return of(report(frames, build=build, **more))


# ---------------------------------------------------------------- what is one bug


def test_another_caller_is_the_same_bug() -> None:
    assert together(
        debug("histogram", "train"), debug("histogram", "serve", at=0x100), debug("histogram", "batch", at=0x200)
    )


def test_a_helper_that_is_inlined_in_one_build() -> None:
    inlined = of(
        report([call("dot", 0x5, "rows.cc:8"), call("score_rows", 0x5, "rows.cc:20"), call("step", 0x9)], build="O2")
    )
    assert together(debug("rows::dot(double*)", "rows::score_rows(long)", "step"), inlined)


def test_a_stripped_build_shows_only_the_function_around_it() -> None:
    assert together(debug("dot", "score_rows", "step"), bare("score_rows", "step"))


def test_the_caller_is_not_taken_for_the_callee_where_debug_information_would_show_it() -> None:
    assert not together(debug("dot", "score_rows", "step"), debug("score_rows", "step", at=0x99, build="O2", line=70))


def test_nameless_frames_have_the_names_of_other_reports_of_the_build() -> None:
    stripped = bare(None, None, at=0x10, build="b7")
    named = of(report([call("evict", 0x10, "rows.cc:8"), call("shrink", 0x20, "rows.cc:20")], build="b7"))
    other = debug("rows::Cache::evict(int)", "shrink", build="b8")
    assert not together(stripped, other)
    assert together(stripped, other, others=[named])


def test_offsets_of_different_builds_are_different_code() -> None:
    assert not together(bare(None, build="b1"), bare(None, build="b2"))


def test_lambdas_belong_to_their_owner() -> None:
    inlined = of(report([call("operator()", 0x5, "rows.cc:16"), call("total_of", 0x5, "rows.cc:16")], build="O2"))
    assert together(debug("total_of(long)::{lambda(long)#1}::operator()(long) const", "total_of(long)"), inlined)
    assert together(
        bare("total_of::$_0::operator()(long) const"), bare("total_of(long)::{lambda(long)#3}::_FUN(long)", at=0x90)
    )


def test_template_instances_that_look_alike_join_nothing() -> None:
    name = "std::_Function_handler<int (int), {}>::_M_invoke(std::_Any_data const&, int&&)"
    assert not together(bare(name.format("A"), "first"), bare(name.format("B"), "second", at=0x90))


def test_clones_belong_to_their_function() -> None:
    assert together(bare("parse.constprop.0", "step"), bare("parse(int) [clone .cold]", "step", at=0x900, build="b2"))


def test_recursion_is_a_set_of_functions() -> None:
    def overflow(*functions: str, build: str) -> Fingerprint:
        modules = ("librows.so",) * len(functions)
        fold = Repeated(period=len(functions), times=9000, functions=functions, modules=modules)
        frames = [call(one, 0x10 + 0x10 * place) for place, one in enumerate(functions * 3)]
        return of(report(frames, folds=(fold,), build=build, rule="stack-overflow-recursion"))

    assert together(
        overflow("value", "list", build="O0"), overflow("list", "value", build="O0b"), overflow("list", build="O2")
    )
    assert not together(overflow("value", "list", build="O0"), overflow("visit", build="O0"))


def test_destructors_of_a_list() -> None:
    def overflow(function: str, build: str) -> Fingerprint:
        fold = Repeated(period=1, times=9000, functions=(function,), modules=("librows.so",))
        return of(report([call(function, 0x10)] * 3, folds=(fold,), build=build, rule="stack-overflow-recursion"))

    assert together(
        overflow("rows::Node::~Node()", "O0"),
        overflow("std::unique_ptr<rows::Node, std::default_delete<rows::Node> >::~unique_ptr()", "stripped"),
        overflow("std::default_delete<rows::Node>::operator()(rows::Node*) const", "O3"),
    )


def test_reading_and_writing_are_one_bug() -> None:
    assert together(
        debug("histogram", "step", rule="invalid-read"),
        debug("histogram", "step", at=0x90, build="O2", rule="invalid-write"),
    )


# ---------------------------------------------------------------- what is not


def test_different_signals_never_join() -> None:
    assert not together(debug("summarise", "step"), debug("summarise", "step", signal="SIGFPE"))


def test_different_checks_never_join() -> None:
    frames = [call("check_failed", 0x5), call("summarise", 0x10), call("step", 0x20)]
    one, two = (
        of(report(frames, signal="SIGABRT", said=check(text)))
        for text in ("rank <= 8 (29 vs. 8)", "size >= 0 (-1 vs. 0)")
    )
    assert not together(one, two)
    same = of(report(frames[1:], signal="SIGABRT", said=check("rank <= 8 (11 vs. 8)"), build="b2"))
    assert together(one, same)


def test_different_exceptions_never_join() -> None:
    frames = [call("parse", 0x10), call("step", 0x20)]
    one, two = (
        of(report(frames, signal="SIGABRT", thrown=Thrown(type=name)))
        for name in ("std::out_of_range", "std::logic_error")
    )
    assert not together(one, two)


def test_the_messenger_joins_nothing() -> None:
    first = bare("check_failed", "reshape", "step", signal="SIGABRT")
    second = bare("check_failed", "crop", "task", signal="SIGABRT")
    assert not together(first, second)


def test_methods_of_different_classes_are_different() -> None:
    assert not together(bare("AddOp::Compute(Context*)"), bare("MulOp::Compute(Context*)", at=0x90))


def helper(name: str, *, of_bug: str, route: str) -> Fingerprint:
    lines = python(f"{route}.py:7 {of_bug}_{route}")
    return debug(name, of_bug, f"{of_bug}_{route}", build=route, lines=lines)


def test_a_helper_that_two_functions_give_wrong_arguments_is_not_the_bug() -> None:
    routes = ("train", "serve", "batch")
    scores = [helper("dot", of_bug="score_rows", route=route) for route in routes]
    norms = [helper("dot", of_bug="norm_of", route=route) for route in routes]
    assert together(*scores, others=norms)
    assert together(*norms, others=scores)
    assert not together(*scores, *norms)


def test_a_chain_of_weak_links_does_not_join_its_ends() -> None:
    """Average linkage: each stack is like the next one, the first is not like the last."""
    stacks = [bare(f"f{place}", f"f{place + 1}", f"f{place + 2}", at=0x100 * place) for place in range(1, 12)]
    assert not together(stacks[0], stacks[-1], others=stacks[1:-1])


def test_two_failed_checks_on_two_lines_of_one_function() -> None:
    """Where nothing captured their words."""
    one = debug("summarise", "step", signal="SIGABRT", line=52)
    two = debug("summarise", "task", signal="SIGABRT", line=53, at=0x14)
    assert not together(one, two)


def test_lines_of_different_builds_separate_nothing() -> None:
    """Another version has other lines."""
    assert together(debug("summarise", "step", line=52), debug("summarise", "step", line=90, at=0x90, build="2.0"))


# ---------------------------------------------------------------- logs


def log(*lines: str, said: str | None = None, signal: str = "SIGSEGV") -> Fingerprint:
    return of(report(lines=python(*lines), said=check(said) if said else None, signal=signal))


def test_a_log_joins_its_only_candidate() -> None:
    capture = debug("dot", "score_rows", lines=python("train.py:7 score", "train.py:90 main"))
    assert together(capture, log("train.py:7 score", "train.py:90 main"))
    assert not together(capture, log("train.py:8 score", "train.py:90 main"))
    assert not together(capture, log("train.py:7 score", "other.py:3 run"))


def test_a_log_with_two_candidates_is_a_group_of_its_own() -> None:
    lines = ("calling.py:3 call", "train.py:90 main")
    first = debug("dot", "score_rows", lines=python(*lines))
    second = debug("evict", "shrink", lines=python(*lines), at=0x100)
    text = log(*lines)
    found = group(keyed(first, second, text), {}, []).groups
    assert len(found) == 3
    alone = next(one for one in found if text.key in one.keys)
    assert any("No report has native frames" in why for why in alone.why)


def test_a_log_is_told_from_others_by_what_it_says() -> None:
    lines = ("calling.py:3 call", "train.py:90 main")

    def capture(said: str, function: str, at: int) -> Fingerprint:
        return of(report([call(function, at)], lines=python(*lines), said=check(said), signal="SIGABRT"))

    first, second = capture("rank <= 8 (9 vs. 8)", "set_rank", 0x10), capture("size >= 0 (-1 vs. 0)", "set_dim", 0x90)
    assert together(second, log(*lines, said="size >= 0 (-5 vs. 0)", signal="SIGABRT"), others=[first])


def test_a_log_with_another_end_or_another_text_joins_nothing() -> None:
    lines = ("train.py:7 score",)
    capture = of(report([call("set_dim", 0x10)], lines=python(*lines), said=check("size >= 0"), signal="SIGABRT"))
    assert not together(capture, log(*lines))
    assert not together(capture, log(*lines, said="rank <= 8", signal="SIGABRT"))


def bare_log(rule: str, summary: str = "", version: str = "1") -> Fingerprint:
    """The signal and a verdict are known, nothing else."""
    return of(report(rule=rule, summary=summary, libraries={"tensorflow": version}))


def test_logs_that_say_nothing_are_told_apart_by_their_verdicts() -> None:
    threads = bare_log("thread-limit", "thread 513 could not be started")
    assert not together(threads, bare_log("exit-status-only"))
    assert not together(threads, bare_log("thread-limit", "the limit of the control group was met"))
    same = bare_log("thread-limit", "thread 1025 could not be started", version="2")
    assert together(threads, same)
    (found,) = group(keyed(threads, same), {}, []).groups
    assert "Nothing else is known of them, so they may be several bugs." in found.why


def test_a_log_that_says_nothing_joins_the_group_that_is_there() -> None:
    first, second = bare_log("exit-status-only"), bare_log("exit-status-only", version="2")
    (found,) = group(keyed(first, second), {first.key: "g1"}, []).groups
    assert (found.id, set(found.keys)) == ("g1", {first.key, second.key})


def test_words_that_many_programs_say_join_no_capture() -> None:
    for kind, what in (
        ("std::bad_alloc", "std::bad_alloc"),
        ("std::out_of_range", "basic_string::substr: __pos (which is 2) > this->size() (which is 0)"),
    ):
        thrown = Thrown(type=kind, what=what)
        capture = of(report([call("load_rows", 0x10)], thrown=thrown, signal="SIGABRT"))
        assert not together(capture, of(report(thrown=thrown, signal="SIGABRT")))
    own = Thrown(type="std::runtime_error", what="the header of the table is damaged")
    capture = of(report([call("load_rows", 0x10)], thrown=own, signal="SIGABRT"))
    assert together(capture, of(report(thrown=own, signal="SIGABRT")))


def test_logs_do_not_pull_captures_apart() -> None:
    captures = [
        debug("histogram", route, lines=python(f"{route}.py:7 {route}"), at=place * 0x100, build=route)
        for place, route in enumerate(("train", "serve", "batch"), 1)
    ]
    logs = [log(f"{route}.py:7 {route}") for route in ("train", "serve", "batch")]
    assert together(*captures, *logs)


def test_a_debuggers_text_joins_by_names() -> None:
    frames = [
        Call(function="rows::dot", source="rows.cc", line=8, address="0x7f00", found_by="text"),
        Call(function="rows::score_rows", source="rows.cc", line=20, found_by="text"),
        Call(function="step", source="rows.cc", line=40, address="0x7f50", found_by="text"),
    ]
    assert together(debug("dot", "score_rows", "step"), of(report(frames)))


# ---------------------------------------------------------------- what is said of a group


def test_a_group_says_why() -> None:
    lines = python("train.py:7 score")
    them = [debug("dot", "score_rows", "step", lines=lines), bare("score_rows", "step", lines=lines, at=0x700)]
    (found,) = group(keyed(*them), {}, []).groups
    assert "score_rows" in found.names
    assert any("dot" in why for why in found.why)
    assert "The Python line is the same: train.py:7." in found.why


def test_the_worst_member_is_visible() -> None:
    lines = python("train.py:7 score")
    them = [debug("dot", "score_rows", "step", lines=lines, build=build) for build in ("a", "b", "c")]
    text = log("train.py:7 score")
    (found,) = group(keyed(*them, text), {}, []).groups
    assert set(found.fit) == set(found.keys)
    assert min(found.fit, key=lambda key: found.fit[key]) == text.key


# ---------------------------------------------------------------- groups that exist


def test_a_newcomer_joins_its_group_and_nothing_else_changes() -> None:
    first, second = debug("histogram", "train"), debug("evict", "train", at=0x500)
    newcomer = debug("histogram", "serve", at=0x100, build="O2")
    before = {first.key: "g1", second.key: "g2"}
    found = {one.id: one.keys for one in group(keyed(first, second, newcomer), before, []).groups}
    assert found == {"g1": tuple(sorted((first.key, newcomer.key))), "g2": (second.key,)}


def test_groups_that_exist_are_not_joined_but_suggested() -> None:
    """The symbolised report of a release shows that the group of its stripped ones is known by name."""
    stripped, other = bare(None, None, build="b7"), debug("evict", "shrink", build="b8")
    before = {stripped.key: "g1", other.key: "g2"}
    assert not group(keyed(stripped, other), before, []).suggested
    named = of(report([call("evict", 0x10, "rows.cc:8"), call("shrink", 0x20, "rows.cc:20")], build="b7"))
    found = group(keyed(stripped, other, named), before, [])
    assert {one.id for one in found.groups} == {"g1", "g2"}
    ((first, second, evidence),) = found.suggested
    assert {first, second} == {"g1", "g2"}
    assert "evict" in evidence
    assert len(group(keyed(stripped, other, named), {}, []).groups) == 1


def test_keys_that_were_taken_apart_stay_apart() -> None:
    first, second = debug("histogram", "train"), debug("histogram", "serve", at=0x100)
    third = debug("histogram", "batch", at=0x200)
    everything = keyed(first, second, third)
    found = group(everything, {}, [frozenset((first.key, second.key))])
    holders = [one for one in found.groups if {first.key, second.key} & set(one.keys)]
    assert len(holders) == 2
    before = {first.key: "g1", second.key: "g2"}
    found = group(everything, before, [frozenset((first.key, second.key))])
    assert {one.id for one in found.groups} == {"g1", "g2"}
    assert not found.suggested


def test_nothing_is_nothing() -> None:
    assert group({}, {}, []).groups == ()


# ---------------------------------------------------------------- properties


def parts(
    everything: Mapping[str, Fingerprint], before: Mapping[str, str], apart: Collection[frozenset[str]] = ()
) -> set[tuple[str, ...]]:
    return {one.keys for one in group(everything, before, apart).groups}


CASES = st.deferred(lambda: st.lists(st.integers(0, len(corpus()) - 1), min_size=1, max_size=60, unique=True))


@given(CASES, st.randoms(use_true_random=False))
def test_any_order_gives_the_same_groups(numbers: list[int], chance: random.Random) -> None:
    them = [corpus()[number].fingerprint for number in numbers]
    mixed = them[:]
    chance.shuffle(mixed)
    assert group(keyed(*them), {}, []) == group(keyed(*mixed), {}, [])


@given(CASES, st.lists(st.integers(1, 59), max_size=4))
def test_any_split_into_portions_keeps_every_id(numbers: list[int], cuts: list[int]) -> None:
    them = [corpus()[number].fingerprint for number in numbers]
    known: dict[str, str] = {}
    seen: dict[str, Fingerprint] = {}
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(them)], strict=True):
        seen |= keyed(*them[first:last])
        found = group(seen, known, []).groups
        after = {key: one.id or f"g{min(one.keys)}" for one in found for key in one.keys}
        assert after.keys() == seen.keys()
        assert all(after[key] == name for key, name in known.items())
        assert len({one.id or min(one.keys) for one in found}) == len(found)
        known = after
    assert parts(seen, {}) == parts(keyed(*them), {})


@given(CASES, st.data())
def test_what_was_taken_apart_is_never_together(numbers: list[int], data: st.DataObject) -> None:
    everything = keyed(*(corpus()[number].fingerprint for number in numbers))
    keys = sorted(everything)
    pairs = st.tuples(st.sampled_from(keys), st.sampled_from(keys)).filter(lambda pair: pair[0] != pair[1])
    apart = [frozenset(pair) for pair in data.draw(st.lists(pairs, max_size=5))] if len(keys) > 1 else []
    for one in group(everything, {}, apart).groups:
        assert not any(pair <= set(one.keys) for pair in apart)


# ---------------------------------------------------------------- the corpus


def test_the_corpus_is_grouped_as_well_as_promised() -> None:
    native, everything = measured(corpus(), grouped)
    assert native.precision >= 0.97
    assert native.recall >= 0.95
    assert everything.precision >= 0.92
    assert everything.recall >= 0.85


def test_the_corpus_has_what_it_should() -> None:
    cases = corpus()
    assert len({case.bug for case in cases}) >= 40
    assert {case.kind for case in cases} == {"live", "core", "capsule", "gdb", "faulthandler"}
    assert {case.build for case in cases} == {"O0", "O2", "O3", "stripped", "clang"}

    def ways(bug: str, what: str) -> int:
        return len({getattr(case, what) for case in cases if case.bug == bug})

    bugs: set[str] = {case.bug for case in cases}
    assert all(ways(bug, "caller") == 3 for bug in bugs)
    assert sum(case.part == "held out" for case in cases) > len(cases) / 3
