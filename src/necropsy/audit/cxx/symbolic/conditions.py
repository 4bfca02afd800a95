"""What a condition adds to the facts, whichever way it goes; and what two paths have in common."""

from __future__ import annotations

from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.objects import Condition
from necropsy.audit.cxx.symbolic.polynomials import ZERO, Poly
from necropsy.audit.cxx.symbolic.prover import least, proved

_DEEPEST = 24
_MOST_KEPT = 48


_MOST_LATER = 40
_MOST_EITHER = 6
_MOST_CASES = 4


def assumed(facts: Facts, condition: Condition, *, holds: bool = True, depth: int = 0) -> Facts:
    """The facts if the condition holds, or if it does not; ``is_dead`` where that cannot be."""
    made = _assumed(facts, condition, holds=holds, depth=depth)
    if made.later and not made.is_dead:
        _remember(made, condition, holds)
    return made


def _remember(made: Facts, condition: Condition, holds: bool) -> None:
    """What a branch has found out, once its condition is known again."""
    waiting = made.later
    for entry in waiting:
        asked, way, more = entry
        is_so = isinstance(asked, Condition) and _is_so(made, asked, way)
        if not is_so and (asked != condition or way != holds):
            continue
        made.later = tuple(each for each in made.later if each is not entry)
        if isinstance(more, Facts):
            _more(made, more)


def _more(made: Facts, more: Facts) -> None:
    for shape, to in more.same.items():
        made.add_same_shape(to, shape)
    for atom, value in more.equal.items():
        made.add_equal(Poly.atom(atom) - value)
    for each in more.at_least:
        made.add(each)
    made.not_zero |= more.not_zero
    made.every = (*made.every, *(each for each in more.every if each not in made.every))
    made.ordered |= more.ordered


def _is_so(made: Facts, asked: Condition, way: bool) -> bool:
    if asked.op == "not":
        return _is_so(made, asked.parts[0], not way)
    if asked.op in {"and", "or"}:
        decides = any if (asked.op == "or") == way else all
        return decides(_is_so(made, each, way) for each in asked.parts)
    if asked.op == "same" and asked.shapes is not None:
        return way and made.shape(asked.shapes[0]) == made.shape(asked.shapes[1])
    if asked.poly is None:
        return False
    plain = made.plain(asked.poly)
    if asked.op == "equal":
        return plain == ZERO if way else (plain.constant or 0) != 0 or plain in made.not_zero
    low = least(plain if way else plain.scaled(-1).plus(-1))
    return low is not None and low >= 0


def split(facts: Facts, one: Facts, condition: Condition, *, holds: bool) -> None:
    """Keep what only the branch ``one`` knows for when its condition is known again."""
    known = set(facts.at_least)
    more = Facts(
        facts.atoms,
        tuple(each for each in one.at_least if each not in known)[-_MOST_LATER:],
        {atom: value for atom, value in one.equal.items() if facts.equal.get(atom) != value},
        one.not_zero - facts.not_zero,
        {shape: to for shape, to in one.same.items() if facts.same.get(shape) != to},
        tuple(each for each in one.every if each not in facts.every),
        one.ordered - facts.ordered,
    )
    if more.at_least or more.equal or more.same or more.every or more.ordered:
        facts.later = (*facts.later, (condition, holds, more))[-_MOST_LATER:]


def once(facts: Facts, condition: Condition, known: Poly) -> None:
    """Keep ``known >= 0`` for when the condition is known to hold."""
    facts.later = (*facts.later, (condition, True, Facts(facts.atoms, (known,))))[-_MOST_LATER:]


def _assumed(facts: Facts, condition: Condition, *, holds: bool, depth: int) -> Facts:
    op = condition.op
    if op == "not":
        return assumed(facts, condition.parts[0], holds=not holds, depth=depth + 1)
    made = facts.copy()
    if depth > _DEEPEST or op == "open":
        made.opaque |= frozenset(condition.shapes or ())
        return made
    if op in {"true", "false"}:
        made.is_dead = made.is_dead or (op == "true") != holds
    elif op in {"and", "or"}:
        if (op == "and") == holds:
            for each in condition.parts:
                made = assumed(made, each, holds=holds, depth=depth + 1)
        else:
            ways = []
            for each in condition.parts:  # the first that decides it: those before it did not
                ways.append(assumed(made, each, holds=holds, depth=depth + 1))
                made = assumed(made, each, holds=not holds, depth=depth + 1)
            both = joined(ways)
            if len(ways) == 2 and not any(each.is_dead for each in ways):
                split(both, ways[1], condition.parts[0], holds=not holds)
                split(both, ways[0], condition.parts[1], holds=not holds)
            return _with_cases(both, ways)
    elif op == "paths":
        return _of_paths(made, condition, holds, depth)
    elif op == "same" and condition.shapes is not None:
        if holds:
            made.add_same_shape(condition.shapes[0], condition.shapes[1])
    elif condition.poly is not None:
        _compared(made, condition.poly, op, holds)
    return made


def _compared(made: Facts, poly: Poly, op: str, holds: bool) -> None:
    plain = made.plain(poly)
    if op == "least":
        wanted = plain if holds else plain.scaled(-1).plus(-1)
        made.add(wanted)
        _not_at_zero(made, wanted)
        if not made.is_dead and wanted.constant is None and proved(made, wanted.scaled(-1).plus(-1), 2):
            made.is_dead = True
    elif holds:
        if plain.constant is None and (
            proved(made, plain.plus(-1), 1) or proved(made, plain.scaled(-1).plus(-1), 1) or plain in made.not_zero
        ):
            made.is_dead = True
        made.add_equal(plain)
    else:
        made.add_not_zero(plain)
        for sign in (1, -1):
            if plain.constant is None and proved(made, plain.scaled(sign), 2):
                made.add(plain.scaled(sign).plus(-1))


def _not_at_zero(made: Facts, wanted: Poly) -> None:
    """``p >= 0`` and ``p != 0``: ``p >= 1``."""
    if wanted.constant is None and made.plain(wanted) in made.not_zero:
        made.add(wanted.plus(-1))


def _of_paths(facts: Facts, condition: Condition, holds: bool, depth: int) -> Facts:
    ways = []
    for path in condition.paths:
        way = together(facts, path.facts)
        if not way.is_dead:
            ways.append(assumed(way, path.value, holds=holds, depth=depth + 1))
    return _with_cases(joined(ways), ways) if ways else facts


def _with_cases(facts: Facts, ways: list[Facts]) -> Facts:
    """With the ways kept, of which one holds."""
    alive = tuple(each for each in ways if not each.is_dead)
    if 1 < len(alive) <= _MOST_CASES:
        facts = facts.copy()
        facts.either = (*facts.either, alive)[-_MOST_EITHER:]
    return facts


def together(one: Facts, other: Facts) -> Facts:
    """What is known on both: of the same path, at different times."""
    made = one.copy()
    for shape, to in other.same.items():
        made.add_same_shape(to, shape)
    for atom, value in other.equal.items():
        if made.equal.get(atom) != value:
            made.add_equal(Poly.atom(atom) - value)
    known = set(made.at_least)
    for each in other.at_least:
        if each not in known:
            made.add(each)
    made.not_zero |= other.not_zero
    made.opaque |= other.opaque
    made.ordered |= other.ordered
    made.later = (*made.later, *(each for each in other.later if each not in made.later))[-_MOST_LATER:]
    made.every = (*made.every, *(each for each in other.every if each not in made.every))
    made.either = (*made.either, *(each for each in other.either if each not in made.either))[-_MOST_EITHER:]
    made.is_dead = made.is_dead or other.is_dead
    return made


def joined(ways: list[Facts]) -> Facts:
    """What is known on all paths that are not dead."""
    alive = [each for each in ways if not each.is_dead]
    if not alive:
        return ways[0]
    made = alive[0]
    for other in alive[1:]:
        made = _common(made, other)
    return made


def _common(one: Facts, other: Facts) -> Facts:
    if one is other:
        return one
    made = Facts(one.atoms)
    made.same = {shape: to for shape, to in one.same.items() if other.shape(shape) == other.shape(to)}
    lost: list[Poly] = []
    for here, there in ((one, other), (other, one)):
        for atom, value in here.equal.items():
            if there.equal.get(atom) == value:
                made.equal[atom] = value
            else:
                difference = Poly.atom(atom) - value
                lost += [difference, difference.scaled(-1)]
        lost += [each for each in here.at_least if each not in there.at_least]
        if len(lost) > _MOST_KEPT:
            lost = lost[-_MOST_KEPT:]
    for each in one.at_least:
        if each in other.at_least:
            made.add(each)
    for each in dict.fromkeys(lost):
        if proved(one, each, 2) and proved(other, each, 2):
            made.add(each)
    made.not_zero = frozenset(each for each in one.not_zero if each in other.not_zero)
    for here, there in ((one, other), (other, one)):
        made.not_zero |= frozenset(
            each for each in here.not_zero - there.not_zero if there.plain(each).constant not in {None, 0}
        )
    made.every = tuple(each for each in one.every if each in other.every)
    made.ordered = one.ordered & other.ordered
    made.later = tuple(each for each in one.later if each in other.later)
    made.opaque = one.opaque | other.opaque
    made.either = tuple(each for each in one.either if each in other.either)
    return made
