"""A thread's calls: whose they are, what is folded away, what repeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from report_examples import OP, PYTHON, RECURSION, native

from necropsy.model import Fold, Frame, Thread
from necropsy.reports import call_lines

LIBRARY = "/venv/lib/python3.11/site-packages/tensorflow/libtensorflow_cc.so.2"
KERAS = "/venv/lib/python3.11/site-packages/keras/src/layer.py"


def python(index: int, source: str, function: str = "f", evaluated_by: int | None = None) -> Frame:
    return Frame(index=index, kind="python", function=function, source=source, line=7, evaluated_by=evaluated_by)


def deep() -> Thread:
    """The op, twenty calls of the library, a line of its own, two of Keras, one of the user, and the interpreter."""
    return Thread(
        tid=1,
        frames=(
            native(0, "Inner", OP),
            native(1, "Compute", OP),
            *(native(n, f"library{n}", LIBRARY) for n in range(2, 22)),
            native(22, "_PyEval_EvalFrameDefault", PYTHON),
            *(native(n, f"_Py{n}", PYTHON) for n in range(23, 30)),
            native(30, "__libc_start_main", "/lib/libc.so.6"),
            native(31, "_start", "/usr/bin/python3.11"),
        ),
        python=(
            python(0, KERAS, "__call__", 22),
            python(1, KERAS, "call", 22),
            python(2, "/home/u/train.py", "step", 22),
        ),
    )


def shown(parts: tuple[call_lines.CallPart, ...]) -> list[str]:
    return [part.title or "/".join(line.name for line in part.lines) for part in parts]


def test_what_is_a_librarys_is_folded_and_what_is_the_users_is_not() -> None:
    made = call_lines.lines(deep(), "d0-")
    assert shown(call_lines.parts(made, {"deep.so"}, ())) == [
        "Inner/Compute/library2",
        "20 calls and 2 lines of Python in libtensorflow_cc.so.2, libpython3.11.so.1.0, keras",
        "/home/u/train.py:7 in step/7 frames of the interpreter/__libc_start_main/_start",
    ]


def test_a_link_does_not_end_at_a_closed_door() -> None:
    made = call_lines.lines(deep(), "d0-")
    titles = shown(call_lines.parts(made, {"deep.so"}, {"d0-f12"}))
    assert titles[1:4] == ["9 calls in libtensorflow_cc.so.2", "library12", titles[3]]
    assert titles[3].startswith("10 calls and 2 lines of Python in ")


def test_a_short_stack_and_one_with_known_sources_stay_open() -> None:
    few = call_lines.lines(Thread(tid=1, frames=tuple(native(n, f"f{n}", LIBRARY) for n in range(16))), "d0-")
    assert [part.title for part in call_lines.parts(few, (), ())] == [None]
    known = call_lines.lines(
        Thread(tid=1, frames=tuple(native(n, f"f{n}", LIBRARY, source="a.cc", line=n) for n in range(40))), "d0-"
    )
    assert [part.title for part in call_lines.parts(known, (), ())] == [None]
    systems = call_lines.lines(
        Thread(tid=1, frames=tuple(native(n, f"f{n}", "/lib/libc.so.6", source="a.c", line=n) for n in range(40))),
        "d0-",
    )
    assert shown(call_lines.parts(systems, (), ())) == ["f0/f1/f2", "37 calls in libc.so.6"], (
        "packages of -dbg tell them too"
    )
    assert call_lines.parts((), (), ()) == (call_lines.CallPart(()),)


@given(
    st.lists(st.tuples(st.sampled_from([OP, LIBRARY, PYTHON, "/lib/libc.so.6"]), st.booleans()), max_size=60),
    st.sets(st.integers(0, 60), max_size=5),
)
def test_no_line_is_lost_or_moved(modules: list[tuple[str, bool]], linked: set[int]) -> None:
    frames = tuple(
        native(index, f"f{index}", module, **({"source": "a.cc", "line": 1} if known else {}))
        for index, (module, known) in enumerate(modules)
    )
    made = call_lines.lines(Thread(tid=1, frames=frames), "d0-")
    anchors = {f"d0-f{index}" for index in linked}
    parts = call_lines.parts(made, {"deep.so"}, anchors)
    assert tuple(line for part in parts for line in part.lines) == made
    assert not [line for part in parts if part.title for line in part.lines if line.anchor in anchors]


def test_the_cycle_is_told_in_the_order_of_the_calls() -> None:
    # Innermost first, as a fold has them: c was called by b, b by a.
    fold = Fold(period=3, times=500, functions=("c", "b", "a"), modules=(OP,) * 3, bytes_per_period=160.0, start=0)
    frames = (native(0, "c", OP, source="x.cc", line=3), native(1, "b", OP, source="x.cc", line=2), native(2, "a", OP))
    cycle = call_lines.cycle(Thread(tid=1, frames=frames, folds=(fold,)))
    assert cycle == call_lines.Cycle(
        steps=(("a", "deep.so"), ("b", "deep.so  x.cc:2"), ("c", "deep.so  x.cc:3")), more=0, times=500, each="160 B"
    )


def test_the_cycle_of_python_code_is_told_by_its_lines() -> None:
    fold = Fold(
        period=8,
        times=100,
        functions=tuple(f"_Py{n}" for n in range(8)),
        modules=(PYTHON,) * 8,
        start=0,
        python=tuple(python(n, "/home/u/train.py", f"f{n}") for n in range(9)),
    )
    cycle = call_lines.cycle(Thread(tid=1, folds=(fold,)))
    assert cycle is not None
    assert [name for name, _ in cycle.steps] == ["f8", "f7", "f6", "f5", "f4", "f3"]
    assert (cycle.more, cycle.steps[0][1], cycle.each) == (3, "train.py:7", None)


def test_of_native_code_the_interpreters_part_is_left_out() -> None:
    fold = Fold(period=2, times=9, functions=("_PyEval_EvalFrameDefault", "call"), modules=(PYTHON, OP), start=0)
    cycle = call_lines.cycle(Thread(tid=1, folds=(fold,)))
    assert cycle is not None
    assert cycle.steps == (("call", "deep.so"),)
    assert call_lines.cycle(Thread(tid=1)) is None


def test_the_recursion_that_takes_most_is_the_one() -> None:
    thread = RECURSION.crash.crashed_thread
    assert thread is not None
    small = Fold(period=1, times=10, functions=("small",), bytes_per_period=16.0, start=200_000)
    cycle = call_lines.cycle(Thread(tid=1, frames=thread.frames, folds=(small, *thread.folds)))
    assert cycle is not None
    assert cycle.steps == (("Walk(Node const*, int)", "deep.so  deep.cc:12"),)
