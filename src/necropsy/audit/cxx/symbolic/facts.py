"""What is known on one path: equalities, ``p >= 0``, ``p != 0``, equal shapes, bounds of all values of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from necropsy.audit.cxx.symbolic.polynomials import MOST_TERMS, ZERO, Atom, Atoms, Poly, product

_ROUNDS = 12
_MOST_DIMS = 8
MOST_FACTS = 96


@dataclass(eq=False)
class Facts:
    """What holds on a path. Facts are only ever added; a copy is a branch."""

    atoms: Atoms
    at_least: tuple[Poly, ...] = ()
    """Each is >= 0; the newest last."""
    equal: dict[Atom, Poly] = field(default_factory=dict)
    not_zero: frozenset[Poly] = frozenset()
    same: dict[str, str] = field(default_factory=dict)
    """Shapes that are the same as another one."""
    every: tuple[tuple[Atom, Poly], ...] = ()
    """``p >= 0`` for every value of a tensor; the atom is a placeholder for the value."""
    ordered: frozenset[str] = frozenset()
    """Tensors whose values are in ascending order."""
    later: tuple[tuple[object, bool, object], ...] = ()
    """What holds besides once a condition is known to hold, or not to: the facts of one branch, after both met."""
    opaque: frozenset[str] = frozenset()
    """Shapes and tensors that code which is not known has judged."""
    either: tuple[tuple[Facts, ...], ...] = ()
    """Of each ``a || b`` that holds: what is known in each of its cases."""
    is_dead: bool = False
    """No call gets here."""

    def copy(self) -> Facts:
        """For another branch."""
        return Facts(
            self.atoms,
            self.at_least,
            dict(self.equal),
            self.not_zero,
            dict(self.same),
            self.every,
            self.ordered,
            self.later,
            self.opaque,
            self.either,
            self.is_dead,
        )

    def shape(self, name: str) -> str:
        """The name under which a shape is known."""
        for _ in range(_ROUNDS):
            if name not in self.same:
                break
            name = self.same[name]
        return name

    def plain(self, one: Poly) -> Poly:
        """With all equalities applied: two polynomials that are equal become the same."""
        for _ in range(_ROUNDS):
            values = {}
            for atom in one.atoms():
                value = self._value(atom)
                if value is not None:
                    values[atom] = value
            if not values:
                return one
            one = one.replaced(values)
            if len(one.terms) > MOST_TERMS:
                return one
        return one

    def _value(self, atom: Atom) -> Poly | None:
        value = self.equal.get(atom)
        if value is not None:
            return value
        if atom.kind in {"rank", "count", "dim"}:
            shape = str(atom.key[0])
            other = self.shape(shape)
            if atom.kind == "dim" and isinstance(atom.key[1], Poly):
                which = self.plain(atom.key[1]) if atom.key[1].constant is None else atom.key[1]
                if other != shape or which != atom.key[1]:
                    return self.atoms.dim(other, which)
            elif other != shape:
                return self.atoms.rank(other) if atom.kind == "rank" else self.atoms.number_of(other)
            if atom.kind == "count":
                rank = self.rank(other)
                if rank is not None and rank <= _MOST_DIMS:
                    return product(self.atoms.dim(other, Poly.of(at)) for at in range(rank))
        return None

    def rank(self, shape: str) -> int | None:
        """How many dimensions it has, where that is known."""
        return self.plain(self.atoms.rank(self.shape(shape))).constant

    def add_equal(self, one: Poly) -> None:
        """``one == 0``"""
        one = self.plain(one)
        constant = one.constant
        if constant is not None:
            self.is_dead = self.is_dead or constant != 0
            return
        for atom in sorted(one.atoms(), key=_first_to_replace):
            parts = one.split(atom)
            factor = parts[0].constant if parts is not None else None
            if parts is None or factor not in {1, -1}:
                continue
            value = parts[1].scaled(-1 if factor == 1 else 1)
            before = self.equal.get(atom)
            self.equal[atom] = value
            number = value.constant
            if number is not None and _outside(atom, number):
                self.is_dead = True
            if before is None and atom.kind == "rank" and number is not None:
                self._count_of(str(atom.key[0]), number)
            if atom.least is not None or atom.most is not None or atom.low is not None or atom.high is not None:
                self._keep_bounds(atom, value)
            return
        self._keep(one)
        self._keep(one.scaled(-1))

    def _keep_bounds(self, atom: Atom, value: Poly) -> None:
        for bound, sign in ((atom.least, 1), (atom.most, -1)):
            if bound is not None:
                self.add((value - bound).scaled(sign))
        if atom.low is not None:
            self.add(value.plus(-atom.low))
        if atom.high is not None:
            self.add(value.scaled(-1).plus(atom.high))

    def _count_of(self, shape: str, rank: int) -> None:
        """The rank becomes known after the number of elements did."""
        for atom, value in list(self.equal.items()):
            if atom.kind == "dim" and atom.key[0] == shape and isinstance(atom.key[1], Poly):
                which = self.plain(atom.key[1])
                if which != atom.key[1]:
                    self.add_equal(self.atoms.dim(shape, which) - value)
        count = self.atoms.number_of(shape)
        single = count.single
        if single is not None and single in self.equal and rank <= _MOST_DIMS:
            self.add_equal(
                product(self.atoms.dim(shape, Poly.of(at)) for at in range(rank)) - self.plain(self.equal[single])
            )

    def add_same_shape(self, one: str, other: str) -> None:
        """Two shapes are equal."""
        one, other = self.shape(one), self.shape(other)
        if one == other:
            return
        ranks = [self.atoms.rank(each) for each in (one, other)]
        counts = [self.atoms.number_of(each) for each in (one, other)]
        pairs = [
            (self.plain(first), self.plain(second))
            for first, second in (ranks, counts, *self._dims_of(one, other))
            if self._says(first) and self._says(second)
        ]
        self.same[other] = one
        for atom in list(self.equal):
            if atom.kind in {"rank", "count", "dim"} and atom.key[0] == other:
                value = self.equal[atom]
                self.add_equal(self._moved(atom, one) - value)
        for first, second in pairs:
            self.add_equal(first - second)

    def _moved(self, atom: Atom, shape: str) -> Poly:
        if atom.kind == "dim" and isinstance(atom.key[1], Poly):
            return self.atoms.dim(shape, atom.key[1])
        return self.atoms.rank(shape) if atom.kind == "rank" else self.atoms.number_of(shape)

    def _dims_of(self, one: str, other: str) -> Iterable[tuple[Poly, Poly]]:
        return [(self.atoms.dim(one, Poly.of(at)), self.atoms.dim(other, Poly.of(at))) for at in range(_MOST_DIMS)]

    def _says(self, one: Poly) -> bool:
        single = one.single
        return single is not None and single in self.equal

    def add(self, one: Poly) -> None:
        """``one >= 0``"""
        one = self.plain(one)
        constant = one.constant
        if constant is not None:
            self.is_dead = self.is_dead or constant < 0
        elif one not in self.at_least and len(one.terms) <= MOST_TERMS:
            if one.scaled(-1) in self.at_least or _is_at_bound(one):
                self.add_equal(one)
            else:
                self._keep(one)

    def _keep(self, one: Poly) -> None:
        if one not in self.at_least:
            self.at_least = (*self.at_least, one)[-MOST_FACTS:]

    def add_not_zero(self, one: Poly) -> None:
        """``one != 0``"""
        one = self.plain(one)
        if one == ZERO:
            self.is_dead = True
        self.not_zero |= {one, one.scaled(-1)}


def _is_at_bound(one: Poly) -> bool:
    """``0 - rank >= 0``: it is as small as it can be."""
    atoms = one.atoms()
    if len(atoms) != 1 or one.degree != 1:
        return False
    (atom,) = atoms
    factor, constant = one.terms.get((atom,), 0), one.terms.get((), 0)
    return (factor == -1 and atom.low == constant) or (factor == 1 and atom.high is not None and atom.high == -constant)


def _outside(atom: Atom, number: int) -> bool:
    return (atom.low is not None and number < atom.low) or (atom.high is not None and number > atom.high)


_ORDER = {"rank": 0, "count": 1, "made": 2, "unknown": 9, "dim": 4, "size": 5, "attribute": 6, "value": 7, "counter": 8}


def _first_to_replace(atom: Atom) -> tuple[int, int]:
    return _ORDER.get(atom.kind, 9), -atom.number
