"""Is ``p >= 0`` on a path? Proved from its facts with fixed limits, or not; no solver.

Equalities are applied; a counter gives way to its bound where the sign of its factor is known; a known fact, or an
atom times a fact, is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.polynomials import Atom, Monomial, Poly

_DEEPEST = 4
_MOST_TERMS = 64
_NEWEST = 24
_STEPS = 60
ELEMENTS = frozenset({"value", "attribute"})
"""The kinds of atoms that can be one of many: of the values of a tensor, or of the elements of a list attribute."""


@dataclass
class _Search:
    facts: Facts
    left: int = _STEPS
    seen: set[Poly] = field(default_factory=set)
    values: dict[Atom, list[Poly]] = field(default_factory=dict)

    @cached_property
    def newest(self) -> list[Poly]:
        """The newest facts, with all equalities applied."""
        return [self.facts.plain(each) for each in reversed(self.facts.at_least[-_NEWEST:])]

    def about(self, one: Poly) -> list[Poly]:
        """What is known of its atoms."""
        atoms = one.atoms()
        found = []
        for atom in atoms:
            if atom.kind == "value":
                if atom not in self.values:
                    self.values[atom] = list(every_value(self.facts, atom))
                found += self.values[atom]
        return found + [each for each in self.newest if not atoms.isdisjoint(each.atoms())]


def proved(facts: Facts, one: Poly, depth: int = _DEEPEST) -> bool:
    """``one >= 0`` holds in every call that gets here."""
    return facts.is_dead or _holds(_Search(facts), facts.plain(one), depth)


def proved_not_zero(facts: Facts, one: Poly) -> bool:
    """``one != 0`` holds."""
    plain = facts.plain(one)
    constant = plain.constant
    if constant is not None:
        return constant != 0
    if plain in facts.not_zero or any(facts.plain(each) == plain for each in facts.not_zero):
        return True
    return proved(facts, plain.plus(-1), 3) or proved(facts, plain.scaled(-1).plus(-1), 2)


def proved_equal(facts: Facts, one: Poly, other: Poly) -> bool:
    """Both are the same number."""
    difference = facts.plain(one - other)
    if difference.constant is not None:
        return difference.constant == 0
    return proved(facts, difference, 2) and proved(facts, difference.scaled(-1), 2)


def related(facts: Facts, atoms: AbstractSet[Atom], most: int = 40) -> list[Poly]:
    """The facts about these atoms, and those about the atoms in these facts."""
    found: list[Poly] = []
    reached = set(atoms)
    pool = [facts.plain(each) for each in facts.at_least]
    pool += [each for atom in atoms for each in every_value(facts, atom)]
    grown = True
    while grown and len(found) < most:
        grown = False
        for each in pool:
            if each not in found and each.constant is None and each.atoms() & reached:
                found.append(each)
                more = each.atoms() - reached
                reached |= more
                pool += [one for atom in more for one in every_value(facts, atom)]
                grown = grown or bool(more)
    return found


def every_value(facts: Facts, atom: Atom) -> Iterator[Poly]:
    """What a check of all values of a tensor says about this one."""
    if atom.kind not in ELEMENTS:
        return
    owner = str(atom.key[0])
    if owner in facts.ordered and len(atom.key) == 2:
        size = facts.plain(facts.atoms.number_of(owner))
        for index, sign in ((size.plus(-1), -1), (Poly.of(0), 1)):
            end = facts.atoms.get("value", (owner, index), f"{owner}({index})", atom.low, atom.high)
            if end is not atom:
                yield facts.plain((Poly.atom(atom) - Poly.atom(end)).scaled(sign))
    for pattern, fact in facts.every:
        if fits(facts, pattern, atom):
            yield facts.plain(fact.replaced(_instance(facts, pattern, atom, fact)))


def _instance(facts: Facts, pattern: Atom, atom: Atom, fact: Poly) -> dict[Atom, Poly]:
    """The value for its pattern, and for each other pattern of the fact the value at the same index."""
    found = {pattern: Poly.atom(atom)}
    index = next((atom.key[at] for at, one in enumerate(pattern.key) if one == "*"), "*")
    for other in fact.atoms() - {pattern}:
        if other.kind in ELEMENTS and "*" in other.key:
            key = tuple(index if one == "*" else one for one in other.key)
            shown = ", ".join(map(str, key[1:]))
            found[other] = Poly.atom(facts.atoms.get(other.kind, key, f"{key[0]}({shown})", other.low, other.high))
    return found


def fits(facts: Facts, pattern: Atom, atom: Atom) -> bool:
    """The pattern stands for this value: ``*`` is any index."""
    if len(pattern.key) != len(atom.key) or facts.shape(str(pattern.key[0])) != facts.shape(str(atom.key[0])):
        return False
    return all(
        one == "*" or (isinstance(one, Poly) and isinstance(other, Poly) and facts.plain(one) == facts.plain(other))
        for one, other in zip(pattern.key[1:], atom.key[1:], strict=True)
    )


def low_of(atom: Atom) -> int | None:
    """The constant below which it never is."""
    return atom.low


def least(one: Poly) -> int | None:
    """A lower bound from the bounds of its atoms alone."""
    total = 0
    for each, factor in one.terms.items():
        bound = _bounds(each)[0 if factor > 0 else 1]
        if bound is None:
            return None
        total += factor * bound
    return total


def _bounds(one: Monomial) -> tuple[int | None, int | None]:
    """Of a product of atoms that are not negative; of a single atom its own."""
    if len(one) == 1:
        return one[0].low, one[0].high
    low: int | None = 1
    high: int | None = 1
    for atom in one:
        if atom.low is None or atom.low < 0:
            return (0, None) if len(one) == 2 and one[0] is one[1] else (None, None)
        low = low * atom.low if low is not None else None
        high = high * atom.high if high is not None and atom.high is not None else None
    return low, high


def _holds(search: _Search, one: Poly, depth: int) -> bool:
    bound = least(one)
    if bound is not None and bound >= 0:
        return True
    if one.constant is not None or search.left <= 0 or len(one.terms) > _MOST_TERMS or one in search.seen:
        return False
    search.left -= 1
    if depth <= 0:
        return False
    search.seen.add(one)
    return any(_holds(search, each, depth) for each in _without_counter(search, one, depth)) or any(
        _holds(search, each, depth - 1) for each in _less_a_fact(search, one)
    )


def _without_counter(search: _Search, one: Poly, depth: int) -> Iterator[Poly]:
    """Its worst case: a counter at the bound that makes it least."""
    bounded = [atom for atom in one.atoms() if atom.least is not None or atom.most is not None]
    for atom in sorted(bounded, key=lambda each: -each.number):
        parts = one.split(atom)
        if parts is None:
            continue
        factor, rest = parts
        for sign, bound in ((1, atom.least), (-1, atom.most)):
            if bound is None:
                continue
            signed = factor.scaled(sign)
            constant = signed.constant
            if constant is not None:
                fits_ = constant > 0
            else:
                low = least(search.facts.plain(signed))
                fits_ = (low is not None and low >= 0) or _holds(search, signed, depth - 2)
            if fits_:
                yield search.facts.plain(rest + factor * bound)
                break


def _less_a_fact(search: _Search, one: Poly) -> Iterator[Poly]:
    """With a fact subtracted that takes away a part that is negative, or may be."""
    lacking = [each for each, factor in one.terms.items() if each and (factor < 0 or not _is_positive(each))]
    if not lacking:
        return
    facts = search.facts
    for fact in search.about(one):
        for part in lacking:
            need = one.terms[part]
            for has, factor in fact.terms.items():
                if not has or (factor > 0) != (need > 0):
                    continue
                times = _times(part, has)
                if times is None:
                    continue
                if need % factor == 0:
                    yield facts.plain(one - fact * Poly({times: abs(need // factor)}))
                elif factor % need == 0:
                    # k * one - fact >= 0 with k > 0 gives one >= 0
                    yield facts.plain(one.scaled(abs(factor // need)) - fact * Poly({times: 1}))
                break


def _times(part: Monomial, has: Monomial) -> Monomial | None:
    """By which atoms, none of them negative, ``has`` becomes ``part``."""
    rest = list(part)
    for atom in has:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest) if all(atom.low is not None and atom.low >= 0 for atom in rest) else None


def _is_positive(one: Monomial) -> bool:
    """Never negative."""
    low = _bounds(one)[0]
    return low is not None and low >= 0
