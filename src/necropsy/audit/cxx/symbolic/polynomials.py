"""Integer polynomials over named atoms: sizes, ranks and values of tensors, attributes, loop counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_OF_SHAPES = frozenset({"rank", "count", "dim", "value"})
MOST_TERMS = 64
"""A longer polynomial is not kept."""


@dataclass(eq=False, slots=True)
class Atom:
    """A number that the code does not say; made by ``Atoms`` only, so that one number is one object."""

    number: int
    kind: str
    """``rank``, ``count``, ``dim``, ``value``, ``attribute``, ``size``, ``counter``, ``made``, ``unknown``"""
    key: tuple[object, ...]
    text: str
    low: int | None = None
    high: int | None = None
    choices: frozenset[int] | None = None
    """All that it can be, where those are few constants."""
    least: Poly | None = None
    most: Poly | None = None
    """Bounds that are no constants, of a loop's counter or of what divides: both are reached."""

    @property
    def is_known(self) -> bool:
        """The caller of the op decides it, alone or with a loop."""
        if (
            self.kind == "dim"
            and isinstance(self.key[1], Poly)
            and not all(one.is_known for one in self.key[1].atoms())
        ):
            return False
        return self.kind != "unknown" and (self.kind not in _OF_SHAPES or str(self.key[0]).startswith("input"))

    @property
    def owner(self) -> str:
        """The shape or tensor that it belongs to, or the attribute."""
        return str(self.key[0]) if self.key and self.kind not in {"counter", "made", "unknown"} else ""

    def __repr__(self) -> str:
        return self.text


Monomial = tuple[Atom, ...]


class Poly:
    """A polynomial with whole coefficients; immutable. ``terms`` maps sorted tuples of atoms to coefficients."""

    __slots__ = ("_atoms", "_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {one: factor for one, factor in terms.items() if factor}
        self._hash: int | None = None
        self._atoms: frozenset[Atom] | None = None

    @staticmethod
    def of(number: int) -> Poly:
        """A constant."""
        return Poly({(): number})

    @staticmethod
    def atom(one: Atom) -> Poly:
        """A single atom."""
        return Poly({(one,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for one, factor in other.terms.items():
            terms[one] = terms.get(one, 0) + factor
        return Poly(terms)

    def __sub__(self, other: Poly) -> Poly:
        return self + other.scaled(-1)

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[Monomial, int] = {}
        for left, by in self.terms.items():
            for right, factor in other.terms.items():
                one = tuple(sorted((*left, *right), key=_number)) if left and right else left or right
                terms[one] = terms.get(one, 0) + by * factor
        return Poly(terms)

    def scaled(self, by: int) -> Poly:
        """Times a number."""
        return Poly({one: factor * by for one, factor in self.terms.items()})

    def plus(self, number: int) -> Poly:
        """With a number added."""
        return self + Poly.of(number)

    @property
    def constant(self) -> int | None:
        """Its value, where it has no atoms."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    @property
    def single(self) -> Atom | None:
        """The atom, where it is nothing else."""
        if len(self.terms) == 1:
            (one, factor), *_ = self.terms.items()
            if len(one) == 1 and factor == 1:
                return one[0]
        return None

    def atoms(self) -> frozenset[Atom]:
        """All atoms in it."""
        if self._atoms is None:
            self._atoms = frozenset([atom for one in self.terms for atom in one])
        return self._atoms

    @property
    def degree(self) -> int:
        """Of its largest monomial."""
        return max((len(one) for one in self.terms), default=0)

    def split(self, atom: Atom) -> tuple[Poly, Poly] | None:
        """``(factor, rest)`` of ``factor * atom + rest``; None where the atom occurs with a power."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for one, by in self.terms.items():
            times = one.count(atom)
            if times == 0:
                rest[one] = by
            elif times == 1:
                factor[tuple(each for each in one if each is not atom)] = by
            else:
                return None
        return Poly(factor), Poly(rest)

    def replaced(self, values: Mapping[Atom, Poly]) -> Poly:
        """With polynomials in the place of atoms, once."""
        if not any(atom in values for one in self.terms for atom in one):
            return self
        total = Poly({})
        for one, factor in self.terms.items():
            part = Poly.of(factor)
            for atom in one:
                part *= values[atom] if atom in values else Poly.atom(atom)
            total += part
            if len(total.terms) > 4 * MOST_TERMS:
                break
        return total

    def value(self, numbers: Mapping[Atom, int]) -> int:
        """Its value; every atom has a number."""
        total = 0
        for one, factor in self.terms.items():
            part = factor
            for atom in one:
                part *= numbers[atom]
            total += part
        return total

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        parts: list[str] = []
        for one, factor in sorted(self.terms.items(), key=lambda each: (-len(each[0]), [at.number for at in each[0]])):
            names = " * ".join(atom.text for atom in one)
            size = abs(factor)
            text = names if size == 1 and names else f"{size} * {names}" if names else str(size)
            sign = "-" if factor < 0 else "+"
            parts.append(f" {sign} {text}" if parts else f"-{text}" if factor < 0 else text)
        return "".join(parts) or "0"


def _number(one: Atom) -> int:
    return one.number


ZERO, ONE = Poly({}), Poly.of(1)


def product(all_: Iterable[Poly]) -> Poly:
    """Of nothing: 1."""
    total = ONE
    for one in all_:
        total *= one
    return total


@dataclass
class Atoms:
    """Makes atoms, each once."""

    known: dict[tuple[object, ...], Atom] = field(default_factory=dict)
    count: int = 0

    def get(
        self, kind: str, key: tuple[object, ...], text: str, low: int | None = None, high: int | None = None
    ) -> Atom:
        """The atom of this kind and key."""
        whole = (kind, *key)
        found = self.known.get(whole)
        if found is None:
            found = self.known[whole] = self._new(kind, key, text, low, high)
        return found

    def fresh(self, kind: str, text: str, low: int | None = None, high: int | None = None) -> Atom:
        """A new atom that is like no other."""
        return self._new(kind, (self.count,), text, low, high)

    def _new(self, kind: str, key: tuple[object, ...], text: str, low: int | None, high: int | None) -> Atom:
        self.count += 1
        return Atom(self.count, kind, key, text, low, high)

    def __iter__(self) -> Iterator[Atom]:
        return iter(self.known.values())

    def rank(self, shape: str) -> Poly:
        """How many dimensions a tensor of this shape has."""
        return Poly.atom(self.get("rank", (shape,), f"the rank of {shape}", 0, 254))

    def number_of(self, shape: str) -> Poly:
        """How many elements a tensor of this shape has."""
        return Poly.atom(self.get("count", (shape,), f"the number of elements of {shape}", 0))

    def dim(self, shape: str, which: Poly) -> Poly:
        """The size of one dimension."""
        number = which.constant
        text = f"dimension {number if number is not None else which} of {shape}"
        return Poly.atom(self.get("dim", (shape, which), text, 0))
