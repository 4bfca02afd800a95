"""What became worse between two profiles, and when that is a failure."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from necropsy.model import Diagnosis, Document, Evidence, Process, ResourceUse, StackFunction, StackUse, Subject, Tool
from necropsy.profile.comparison import Conditions, checked, compared
from necropsy.reports import comparison as report
from necropsy.reports import rendered

KIB, MIB = 1 << 10, 1 << 20
PARSE = StackFunction(function="parse", module="json.so", frame_bytes=128, times=8192, bytes=MIB)
MAIN = StackUse(tid=1, name="main", size=8 * MIB, peak=2 * MIB, exact=True, functions=(PARSE,))


def document(*stacks: StackUse, findings: tuple[Diagnosis, ...] = (), **peaks: int) -> Document:
    own = Process(pid=1, command=("python",), stacks=stacks, peaks=ResourceUse(at=1.0, **peaks) if peaks else None)
    return Document(
        kind="profile",
        id="old",
        tool=Tool(name="necropsy", version=""),
        complete=True,
        subject=Subject(kind="process"),
        processes=(own,),
        findings=findings,
    )


def finding(severity: str) -> Diagnosis:
    return Diagnosis(
        rule="near-stack-overflow",
        title="t",
        summary="main used most of its stack.",
        severity=severity,  # type: ignore[arg-type] # one of the literals, as a str
        confidence="certain",
        evidence=(Evidence(claim="c", seen="s", where="w"),),
    )


def grown(stack: StackUse, octets: int) -> StackUse:
    rows = tuple(msgspec.structs.replace(row, bytes=row.bytes + octets) for row in stack.functions or ())
    return msgspec.structs.replace(stack, peak=(stack.peak or 0) + octets, functions=rows)


def test_a_stack_that_grew_is_named_with_the_function_that_took_it() -> None:
    now = compared(document(grown(MAIN, MIB)), document(MAIN))
    assert now.comparison is not None
    stack, function = now.comparison.regressions
    assert (stack.what, stack.name, stack.before, stack.after, stack.growth) == ("stack", "main", 2 * MIB, 3 * MIB, 0.5)
    assert (function.what, function.function, function.before, function.after) == ("function", "parse", MIB, 2 * MIB)
    assert [row.inner for row in report.rows(now)] == [False, True]
    assert "stack of main: 3 MiB, before 2 MiB (+50.0%)" in rendered(now, "text")
    assert "What became worse" in rendered(now, "html")


def test_a_page_or_two_are_no_change() -> None:
    now = compared(document(grown(MAIN, 8 * KIB), rss=100 * MIB + 4096), document(MAIN, rss=100 * MIB))
    assert now.comparison is not None
    assert (now.comparison.compared, now.comparison.regressions) == (2, ())
    assert "2 peaks of old: nothing became worse." in rendered(now, "text")


def test_threads_of_a_pool_are_compared_by_the_deepest() -> None:
    def pool(*peaks: int) -> Document:
        return document(*(StackUse(tid=9 + n, name=f"worker-{n}", size=MIB, peak=one) for n, one in enumerate(peaks)))

    now = compared(pool(4 * KIB, 900 * KIB, 8 * KIB), pool(4 * KIB, 300 * KIB))
    assert now.comparison is not None
    (one,) = now.comparison.regressions
    assert (one.name, one.before, one.after) == ("worker", 300 * KIB, 900 * KIB)


def test_threads_of_python_are_compared_by_their_own_names_without_numbers() -> None:
    def started(name: str, peak: int) -> Document:
        return document(StackUse(tid=9, name="python", python_name=name, size=MIB, peak=peak))

    now = compared(started("Thread-7 (load)", 900 * KIB), started("Thread-1 (load)", 300 * KIB))
    assert now.comparison is not None
    assert [one.name for one in now.comparison.regressions] == ["Thread (load)"]


def test_a_new_stack_counts_where_it_is_deep_and_children_are_compared_by_program() -> None:
    new = StackUse(tid=2, name="new", size=MIB, peak=512 * KIB)
    small = StackUse(tid=3, name="idle", size=MIB, peak=8 * KIB)
    old = document(MAIN)
    child = Process(pid=7, command=("/usr/bin/cc", "a.c"), stacks=(MAIN,))
    older = Process(pid=99, command=("/opt/cc", "b.c"), stacks=(msgspec.structs.replace(MAIN, peak=MIB),))
    now = compared(
        msgspec.structs.replace(document(MAIN, new, small), processes=(*document(MAIN, new, small).processes, child)),
        msgspec.structs.replace(old, processes=(*old.processes, older)),
    )
    assert now.comparison is not None
    assert [(one.name, one.process, one.before) for one in now.comparison.regressions if one.what == "stack"] == [
        ("new", None, None),
        ("main", "cc", MIB),
    ]
    assert "stack of main in cc: 2 MiB, before 1 MiB" in rendered(now, "text")


def test_a_note_that_became_a_warning_is_worse_and_the_other_way_round_is_not() -> None:
    note, warning = document(MAIN, findings=(finding("note"),)), document(MAIN, findings=(finding("warning"),))
    now = compared(warning, note)
    assert now.comparison is not None
    assert [(one.what, one.severity, one.before, one.after) for one in now.comparison.regressions] == [
        ("finding", "warning", None, 1)
    ]
    assert "warnings of near-stack-overflow: 1, new" in rendered(now, "text")
    back = compared(document(MAIN), warning)
    assert back.comparison is not None
    assert back.comparison.regressions == ()


def test_conditions_fail_on_a_rule_of_any_severity_and_on_growth_beyond_the_limit() -> None:
    rules = Conditions(rules=("near-stack-overflow", "near-fd-limit"))
    failed = checked(document(MAIN, findings=(finding("note"),)), rules).failed_checks or ()
    assert [(one.condition, one.seen) for one in failed] == [("near-stack-overflow", "main used most of its stack.")]
    now = compared(document(grown(MAIN, 200 * KIB), rss=109 * MIB), document(MAIN, rss=100 * MIB))
    assert checked(now, Conditions(growth=0.10)).failed_checks == ()
    (stack,) = [one.seen for one in checked(now, Conditions(growth=0.0901)).failed_checks or ()]
    assert stack == "the stack of main grew by 9.8%, from 2 MiB to 2.2 MiB"
    assert "failed: --fail-on growth=9%" in rendered(checked(now, Conditions(growth=0.09)), "text")


def test_an_old_document_without_measurements_compares_nothing() -> None:
    now = compared(document(MAIN), msgspec.structs.replace(document(), processes=()))
    assert now.comparison is not None
    assert now.comparison.compared == 0


@given(st.lists(st.integers(0, 1 << 40), max_size=6), st.lists(st.integers(0, 1 << 40), max_size=6))
def test_what_is_worse_in_one_direction_is_not_worse_in_the_other(before: list[int], after: list[int]) -> None:
    def of(peaks: list[int]) -> Document:
        return document(
            *(StackUse(tid=1 + n, name=f"t{chr(97 + n)}", size=1 << 41, peak=one) for n, one in enumerate(peaks))
        )

    there, back = compared(of(after), of(before)).comparison, compared(of(before), of(after)).comparison
    assert there is not None
    assert back is not None
    assert not {one.name for one in there.regressions} & {one.name for one in back.regressions}
    assert all(one.before is None or one.after > one.before for one in there.regressions)
