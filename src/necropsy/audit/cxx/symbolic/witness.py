"""Numbers for which ``p < 0`` although all facts hold: a call that nothing on the path prevents.

Only what the caller of the op decides may occur; where a number is involved that is not known, there is no witness.
"""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.audit.cxx.symbolic.conditions import together
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.polynomials import Atom, Poly
from necropsy.audit.cxx.symbolic.prover import related

_TRIED = (1, 0, 2, 3, -1, 4, 5, 8, 100)
_MOST_ATOMS = 12
EVERYTHING = "every input"
"""Among what was judged: code that is not known was given the context, and can have looked at all inputs."""
_STEPS = 4000


@dataclass(frozen=True)
class Witness:
    """Numbers of atoms; ``value`` is what the polynomial is for them."""

    numbers: dict[Atom, int]
    value: int

    def told(self) -> str:
        """``the number of elements of input 1 = 0``"""
        parts = [
            f"{atom.text} = {number}"
            for atom, number in sorted(self.numbers.items(), key=lambda each: each[0].number)
            if atom.kind != "made"
        ]
        return ", ".join(parts[:4])


def witness(facts: Facts, one: Poly, also: tuple[Poly, ...] = ()) -> Witness | None:
    """Numbers with which ``one`` is negative, and ``also`` are not."""
    seen = _witness(facts, one, also)
    return _in_a_case(facts, one, also, seen) if seen is not None and facts.either else seen


def _in_a_case(facts: Facts, one: Poly, also: tuple[Poly, ...], seen: Witness) -> Witness | None:
    """Of each ``a || b`` that was checked and says something about these numbers, one case has to hold."""
    names = {atom.owner for atom in seen.numbers}
    asked = [cases for cases in facts.either if any(names & _new(facts, each) for each in cases)]
    if not asked:
        return seen
    for case in asked[-1]:
        way = together(facts, case)
        way.either = tuple(asked[:-1])
        found = witness(way, one, also) if not way.is_dead else None
        if found is not None:
            return found
    return None


def _new(facts: Facts, case: Facts) -> set[str]:
    """The owners of what is known in a case only."""
    polys = [each for each in case.at_least if each not in facts.at_least]
    polys += [value + Poly.atom(atom) for atom, value in case.equal.items() if facts.equal.get(atom) != value]
    polys += case.not_zero - facts.not_zero
    names = {name for one, other in case.same.items() if facts.same.get(one) != other for name in (one, other)}
    return names | {atom.owner for each in polys for atom in each.atoms()}


def _witness(facts: Facts, one: Poly, also: tuple[Poly, ...]) -> Witness | None:
    plain = facts.plain(one)
    wanted = [plain.scaled(-1).plus(-1), *(facts.plain(each) for each in also)]
    needed = _needed(facts, wanted)
    if needed is None:
        return None
    conditions, atoms, not_zero = needed
    search = _Search(conditions, not_zero, atoms, [_chosen(facts, atom) for atom in atoms])
    numbers = search.found()
    return Witness(numbers, plain.value(numbers)) if numbers is not None else None


def _needed(facts: Facts, wanted: list[Poly]) -> tuple[list[Poly], list[Atom], list[Poly]] | None:
    """All conditions and atoms that have to do with it; None where one is not known, or there are too many."""
    conditions = list(wanted)
    atoms: set[Atom] = set()
    waiting = {atom for each in wanted for atom in each.atoms()}
    while waiting:
        atoms |= waiting
        if len(atoms) > _MOST_ATOMS or any(not atom.is_known or _is_judged(facts, atom) for atom in atoms):
            return None
        more = [each for each in related(facts, atoms) if each not in conditions]
        for atom in waiting:
            more += [facts.plain(Poly.atom(atom) - bound) for bound in (atom.least,) if bound is not None]
            more += [facts.plain(bound - Poly.atom(atom)) for bound in (atom.most,) if bound is not None]
        conditions += [each for each in more if each not in conditions]
        waiting = {atom for each in more for atom in each.atoms()} - atoms
    if any(_is_mixed(facts, atom, atoms) for atom in atoms):
        return None
    names = {atom.owner for atom in atoms if atom.owner.startswith("input ")}
    numbered = {name for name in names if name[6:7].isdigit()}
    if numbered and (names - numbered or _knows_named(facts)):
        return None  # input 0 and input "x" may be the same
    conditions += _counts(facts, atoms)
    atoms |= {atom for each in conditions for atom in each.atoms()}
    not_zero = [facts.plain(each) for each in facts.not_zero]
    order = sorted(atoms, key=lambda atom: ({"counter": 2, "value": 1}.get(atom.kind, 0), atom.number))
    return conditions, order, [each for each in not_zero if each.atoms() <= atoms]


def _knows_named(facts: Facts) -> bool:
    """Something is known of an input that the code names, and whose number is not known."""
    polys = [*facts.at_least, *map(Poly.atom, facts.equal)]
    owners = {atom.owner for each in polys for atom in each.atoms()}
    return any(each.startswith("input ") and not each[6:7].isdigit() and each[6:10] != "list" for each in owners)


def _is_judged(facts: Facts, atom: Atom) -> bool:
    """Code that is not followed in detail has judged what it belongs to."""
    owner = atom.owner
    if EVERYTHING in facts.opaque and owner.startswith("input"):
        return True
    if owner in facts.opaque or owner.partition("[")[0] + "[" in facts.opaque:
        return True
    return bool(facts.same) and facts.shape(owner) in {facts.shape(each) for each in facts.opaque}


def _is_mixed(facts: Facts, atom: Atom, atoms: set[Atom]) -> bool:
    """A dimension whose number is not known, beside another one of the tensor: they may be the same."""
    if atom.kind != "dim" or not isinstance(atom.key[1], Poly) or facts.plain(atom.key[1]).constant is not None:
        return False
    return any(each.kind == "dim" and each is not atom and each.key[0] == atom.key[0] for each in atoms)


def _counts(facts: Facts, atoms: set[Atom]) -> list[Poly]:
    """Of a tensor whose rank is not known, the number of elements is a multiple of each dimension."""
    found = []
    for atom in list(atoms):
        if atom.kind != "count":
            continue
        dims = [each for each in atoms if each.kind == "dim" and each.key[0] == atom.key[0]]
        if dims:
            rest = Poly.atom(facts.atoms.get("made", ("the rest of", atom.key[0]), "the rest", 0))
            whole = rest
            for each in dims:
                whole *= Poly.atom(each)
            found += [whole - Poly.atom(atom), Poly.atom(atom) - whole]
    return found


def _chosen(facts: Facts, atom: Atom) -> tuple[str, Poly, Poly] | None:
    """Of ``max(a, b)`` and ``min(a, b)``: what it is the largest or the least of."""
    if atom.kind != "made" or len(atom.key) != 3 or atom.key[0] not in {"max", "min"}:
        return None
    which, one, other = atom.key
    return (
        (str(which), facts.plain(one), facts.plain(other))
        if isinstance(one, Poly) and isinstance(other, Poly)
        else None
    )


class _Search:
    def __init__(
        self,
        conditions: list[Poly],
        not_zero: list[Poly],
        atoms: list[Atom],
        chosen: list[tuple[str, Poly, Poly] | None],
    ) -> None:
        self.atoms = atoms
        self.chosen = [(atom, each) for atom, each in zip(atoms, chosen, strict=True) if each is not None]
        self.steps = _STEPS
        at = {atom: number for number, atom in enumerate(atoms)}
        self.ready: list[list[Poly]] = [[] for _ in atoms]
        self.not_zero: list[list[Poly]] = [[] for _ in atoms]
        self.impossible = False
        for groups, all_ in ((self.ready, conditions), (self.not_zero, not_zero)):
            for each in all_:
                last = max((at[atom] for atom in each.atoms()), default=-1)
                if last >= 0:
                    groups[last].append(each)
                elif groups is self.ready and each.value({}) < 0:
                    self.impossible = True
        self.bases = sorted(
            {abs(factor) for each in conditions for one, factor in each.terms.items() if not one and abs(factor) > 1}
        )[:6]

    def found(self) -> dict[Atom, int] | None:
        if self.impossible:
            return None
        numbers: dict[Atom, int] = {}
        return numbers if self._from(0, numbers) else None

    def _from(self, at: int, numbers: dict[Atom, int]) -> bool:
        if at == len(self.atoms):
            return all(_is_one_of(numbers, atom, which, both) for atom, (which, *both) in self.chosen)
        atom = self.atoms[at]
        for number in self._tried(atom, at, numbers):
            self.steps -= 1
            if self.steps <= 0:
                return False
            numbers[atom] = number
            if (
                all(each.value(numbers) >= 0 for each in self.ready[at])
                and all(each.value(numbers) != 0 for each in self.not_zero[at])
                and self._from(at + 1, numbers)
            ):
                return True
        numbers.pop(atom, None)
        return False

    def _tried(self, atom: Atom, at: int, numbers: dict[Atom, int]) -> list[int]:
        low, high = atom.low, atom.high
        tried = list(_TRIED)
        for each in self.ready[at]:  # the numbers at which a condition is just met
            parts = each.split(atom)
            if parts is None:
                continue
            factor, rest = parts[0].value(numbers), parts[1].value(numbers)
            if factor > 0:
                low = max(-(rest // factor), low) if low is not None else -(rest // factor)
            elif factor < 0:
                high = min(rest // -factor, high) if high is not None else rest // -factor
        if low is not None:
            tried = [low, low + 1, *tried]
        if high is not None:
            tried = [*tried[: 3 if low is not None else 1], high, *tried]
        tried += [sign * base + step for base in self.bases for sign in (1, -1) for step in (0, 1)]
        return [one for one in dict.fromkeys(tried) if (low is None or one >= low) and (high is None or one <= high)]


def _is_one_of(numbers: dict[Atom, int], atom: Atom, which: str, both: list[Poly]) -> bool:
    known = [each.value(numbers) for each in both if each.atoms() <= numbers.keys()]
    return len(known) < 2 or numbers[atom] == (max(known) if which == "max" else min(known))
