"""The prover and the search for numbers, against all small numbers."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.audit.cxx.symbolic.conditions import assumed, joined
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.objects import Condition
from necropsy.audit.cxx.symbolic.polynomials import Atom, Atoms, Poly
from necropsy.audit.cxx.symbolic.prover import proved, proved_not_zero
from necropsy.audit.cxx.symbolic.witness import witness

SMALL = range(-3, 4)
FACTORS = st.integers(-2, 2)


def three() -> tuple[Atoms, list[Atom]]:
    """Two numbers, and one that is never negative."""
    atoms = Atoms()
    return atoms, [
        atoms.get("value", ("input 0", "x"), "x"),
        atoms.get("value", ("input 0", "y"), "y"),
        atoms.get("count", ("input 1",), "n", 0),
    ]


def poly(made: list[Atom], factors: tuple[int, ...]) -> Poly:
    x, y, n = (Poly.atom(one) for one in made)
    parts = (x, y, n, x * n, Poly.of(1))
    total = Poly({})
    for part, factor in zip(parts, factors, strict=True):
        total += part.scaled(factor)
    return total


POLY = st.tuples(FACTORS, FACTORS, FACTORS, st.integers(-1, 1), st.integers(-3, 3))


def points(made: list[Atom]) -> list[dict[Atom, int]]:
    return [
        dict(zip(made, numbers, strict=True))
        for numbers in itertools.product(SMALL, SMALL, (one for one in SMALL if one >= 0))
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["least", "equal", "not"]), POLY), max_size=3), POLY)
def test_what_is_proved_holds_for_all_small_numbers(
    given_: list[tuple[str, tuple[int, ...]]], asked: tuple[int, ...]
) -> None:
    atoms, made = three()
    facts = Facts(atoms)
    conditions = [(sort, poly(made, factors)) for sort, factors in given_]
    for sort, one in conditions:
        condition = Condition("equal", one).negated() if sort == "not" else Condition(sort, one)
        facts = assumed(facts, condition)
    goal = poly(made, asked)
    holds = {"least": lambda value: value >= 0, "equal": lambda value: value == 0, "not": lambda value: value != 0}
    left = [each for each in points(made) if all(holds[sort](one.value(each)) for sort, one in conditions)]
    if facts.is_dead:
        assert not left
        return
    if proved(facts, goal):
        assert all(goal.value(each) >= 0 for each in left)
    if proved_not_zero(facts, goal):
        assert all(goal.value(each) != 0 for each in left)
    seen = witness(facts, goal)
    if seen is not None:
        full = dict.fromkeys(made, 0) | {atom: number for atom, number in seen.numbers.items() if atom in made}
        assert seen.value < 0
        assert set(goal.atoms()) >= set(facts.plain(goal).atoms()) or full
        assert not proved(facts, goal)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(POLY, POLY, POLY)
def test_what_two_paths_share_holds_on_both(
    first: tuple[int, ...], second: tuple[int, ...], asked: tuple[int, ...]
) -> None:
    atoms, made = three()
    ways = [assumed(Facts(atoms), Condition("least", poly(made, one))) for one in (first, second)]
    both = joined(ways)
    goal = poly(made, asked)
    if not both.is_dead and proved(both, goal):
        for factors in (first, second):
            condition = poly(made, factors)
            assert all(goal.value(each) >= 0 for each in points(made) if condition.value(each) >= 0)


def test_an_element_of_a_matrix_is_within_its_buffer() -> None:
    atoms = Atoms()
    rows, columns = (atoms.dim("input 0", Poly.of(at)) for at in (0, 1))
    i, j = atoms.fresh("counter", "i", 0), atoms.fresh("counter", "j", 0)
    i.least = j.least = Poly.of(0)
    i.most, j.most = rows.plus(-1), columns.plus(-1)
    facts = Facts(atoms)
    index = Poly.atom(i) * columns + Poly.atom(j)
    assert proved(facts, rows * columns - index - Poly.of(1))
    assert not proved(facts, rows * columns - index - Poly.of(2))
    assert witness(facts, rows * columns - index - Poly.of(2)) is not None


def test_the_number_of_elements_follows_from_the_rank() -> None:
    atoms = Atoms()
    facts = assumed(Facts(atoms), Condition("equal", atoms.rank("input 0").plus(-2)))
    dims = [atoms.dim("input 0", Poly.of(at)) for at in (0, 1)]
    assert facts.plain(atoms.number_of("input 0")) == dims[0] * dims[1]
    scalar = assumed(Facts(atoms), Condition("equal", atoms.rank("input 1")))
    assert facts.plain(atoms.number_of("input 1")).constant is None
    assert scalar.plain(atoms.number_of("input 1")).constant == 1


def test_equal_shapes_have_equal_sizes() -> None:
    atoms = Atoms()
    facts = assumed(Facts(atoms), Condition("same", shapes=("input 0", "input 1")))
    assert facts.plain(atoms.number_of("input 0") - atoms.number_of("input 1")).constant == 0


def test_no_numbers_are_made_up_for_what_is_not_known() -> None:
    atoms = Atoms()
    facts = Facts(atoms)
    unknown = Poly.atom(atoms.fresh("unknown", "n"))
    assert witness(facts, unknown) is None
    value = Poly.atom(atoms.get("value", ("input 0", "x"), "x"))
    assert witness(facts, value) is not None
    judged = assumed(facts, Condition("open", shapes=("input 0",)))
    assert witness(judged, value) is None


def test_what_a_branch_knew_comes_back_with_its_condition() -> None:
    from necropsy.audit.cxx.symbolic.conditions import split

    atoms = Atoms()
    rank, size = atoms.rank("input 0"), atoms.number_of("input 1")
    asked = Condition("equal", rank.plus(-1))
    yes = assumed(assumed(Facts(atoms), asked), Condition("equal", size.plus(-4)))
    no = assumed(Facts(atoms), asked, holds=False)
    both = joined([yes, no])
    split(both, yes, asked, holds=True)
    assert both.plain(size).constant is None
    assert assumed(both, asked).plain(size).constant == 4
    assert assumed(both, asked, holds=False).plain(size).constant is None
