"""Where paths meet: what all of them know, what each variable may hold; and what is forgotten."""

from __future__ import annotations

from necropsy.audit.cxx.symbolic.conditions import joined, split
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.machine import Machine, State
from necropsy.audit.cxx.symbolic.objects import (
    CONTEXT,
    OPEN,
    UNKNOWN,
    Address,
    Condition,
    Number,
    Object,
    Pointer,
    Sequence,
    Shape,
    Tensor,
    Value,
)
from necropsy.audit.cxx.symbolic.polynomials import Poly


class Paths(Machine):
    """Joins states, and forgets."""

    def meet(self, states: list[State]) -> State:
        """What all paths that are not dead have in common."""
        alive = [each for each in states if not each.facts.is_dead]
        if not alive:
            made = states[0]
            made.facts.is_dead = True
            return made
        made = alive[0]
        if len(alive) == 1:
            return made
        facts = joined([each.facts for each in alive])
        cells = {}
        for cell, value in made.cells.items():
            others = [each.cells.get(cell, UNKNOWN) for each in alive[1:]]
            if all(each == value for each in others):
                cells[cell] = value
                continue
            cells[cell] = merged = self._merged([value, *others], facts)
            if isinstance(merged, Number):
                self._choice(merged.poly, alive, [value, *others], facts)
        return State(facts, cells, any(each.is_open for each in alive))

    def _choice(self, merged: Poly, alive: list[State], values: list[Value], facts: Facts) -> None:
        """The paths have set the number to different constants: the constant says which path it was."""
        sets = [_choices(each) for each in values]
        for state, value, own in zip(alive, values, sets, strict=True):
            others = [each for each in sets if each is not own]
            if own is None or None in others or any(own & each for each in others if each is not None):
                continue
            if len(own) == 1:
                split(facts, state.facts, Condition("equal", merged.plus(-min(own))), holds=True)
                continue
            for asked, holds, more in state.facts.later:  # decided earlier on this path
                poly = asked.poly if isinstance(asked, Condition) and asked.op == "equal" else None
                if poly is not None and isinstance(value, Number) and holds:
                    constant = (poly - value.poly).constant
                    if constant is not None:
                        facts.later = (*facts.later, (Condition("equal", merged.plus(constant)), True, more))
                        split(facts, state.facts, Condition("equal", merged.plus(constant)), holds=True)

    def _merged(self, values: list[Value], facts: Facts) -> Value:
        first = values[0]
        if all(isinstance(each, Number) for each in values):
            polys = [each.poly for each in values if isinstance(each, Number)]
            plain = {facts.plain(each) for each in polys}
            if len(plain) == 1:
                return first
            constants = [each.constant for each in plain]
            known = [each for each in constants if each is not None]
            atom = self.atoms.fresh("unknown", "a number")
            sets = [_choices(each) for each in values]
            if len(known) == len(constants):
                atom.low, atom.high = min(known), max(known)
            if None not in sets:
                atom.choices = frozenset().union(*(each for each in sets if each is not None))
            kinds = {each.kind for each in values if isinstance(each, Number)}
            return Number(Poly.atom(atom), kinds.pop() if len(kinds) == 1 else "whole")
        if all(isinstance(each, Condition) for each in values):
            return OPEN
        if all(isinstance(each, Sequence) for each in values):
            sizes = {each.size for each in values if isinstance(each, Sequence)}
            size = sizes.pop() if len(sizes) == 1 else self.unknown("a size", 0).poly
            same = isinstance(first, Sequence) and all(
                isinstance(each, Sequence) and each.element == first.element for each in values
            )
            element = first.element if same and isinstance(first, Sequence) else UNKNOWN
            return Sequence(size, element, getattr(first, "text", ""))
        if all(isinstance(each, Tensor) for each in values):
            name = f"a tensor ({self.atoms.count}, {self.next_cell})"
            self.next_cell += 1
            return Tensor(name, Shape(name))
        if all(isinstance(each, Shape) for each in values):
            self.next_cell += 1
            return Shape(f"a shape ({self.next_cell})")
        return UNKNOWN

    def forget(self, value: Value, depth: int = 0) -> None:
        """Code that is not known was given this to change: nothing is known of it any more."""
        if isinstance(value, Address) and depth < 3:
            held = self.state.cells.get(value.cell, UNKNOWN)
            self.forget(held, depth + 1)
            if not isinstance(held, Object):
                self.state.cells[value.cell] = self.forgotten(held)
        elif isinstance(value, Object) and depth < 3:
            for cell in value.members.values():
                self.forget(Address(cell), depth + 1)

    def forgotten(self, value: Value) -> Value:
        """Another value of the same sort, of which nothing is known."""
        if isinstance(value, Number):
            return self.unknown("a number", kind=value.kind)
        if isinstance(value, Sequence):
            return Sequence(
                value.size if value.is_fixed else self.unknown("a size", 0).poly, UNKNOWN, value.text, value.is_fixed
            )
        if isinstance(value, Tensor | Shape):
            self.next_cell += 1
            name = f"a tensor ({self.next_cell})"
            return Tensor(name, Shape(name)) if isinstance(value, Tensor) else Shape(name)
        if isinstance(value, Condition):
            return OPEN
        if isinstance(value, Object | Pointer):
            return value if isinstance(value, Object) else UNKNOWN
        return value if value is CONTEXT else UNKNOWN


def _choices(value: Value) -> frozenset[int] | None:
    """The few constants that a number can be."""
    if not isinstance(value, Number):
        return None
    constant, single = value.poly.constant, value.poly.single
    if constant is not None:
        return frozenset({constant})
    return single.choices if single is not None else None
