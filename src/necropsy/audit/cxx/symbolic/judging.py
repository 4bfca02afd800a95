"""What an access needs, whether it is proved, and which rule tells it if nothing prevents the opposite.

An access that is neither proved nor refuted by numbers is not reported, and counted.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function, Kernel
from necropsy.audit.cxx.symbolic.facts import Facts
from necropsy.audit.cxx.symbolic.objects import Tensor
from necropsy.audit.cxx.symbolic.polynomials import Atom, Poly
from necropsy.audit.cxx.symbolic.prover import proved, proved_equal, proved_not_zero, related
from necropsy.audit.cxx.symbolic.witness import Witness, witness
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

LARGEST = 1 << 31
_MODEST = 1 << 20

_PERHAPS_ALWAYS = frozenset({"op-buffer-overrun", "op-attr-unchecked"})


class AccessSite(NamedTuple):
    """Where the run is."""

    function: Function
    node: Node
    facts: Facts
    is_open: bool


@dataclass
class Judge:
    """Collects what is found in one unit."""

    look: Look
    found: dict[tuple[str, str, int], CodeDefect] = field(default_factory=dict)
    undecided: set[tuple[str, int]] = field(default_factory=set)
    kernel: Kernel | None = None
    """Whose Compute is run."""

    def rank(self, at: AccessSite, tensor: Tensor, need: Poly, *, equal: bool, case: str, **names: str) -> None:
        """``need >= 0``, or ``need == 0``, about a tensor's rank or number of elements."""
        if at.facts.is_dead:
            return
        zero = Poly.of(0)
        if proved_equal(at.facts, need, zero) if equal else proved(at.facts, need):
            return
        seen = witness(at.facts, need) or (witness(at.facts, need.scaled(-1)) if equal else None)
        if seen is None or tensor.origin != "input":
            self._leave(at)
            return
        self._report(at, "op-rank-unchecked", case, seen, names={"tensor": tensor.name, **names})

    def reach(self, at: AccessSite, index: Poly, extent: Poly, buffer: str, *, is_text: bool = False) -> None:
        """``0 <= index < extent``"""
        if at.facts.is_dead:
            return
        beyond = (extent if is_text else extent.plus(-1)) - index
        for need, side in ((beyond, "high"), (index, "low")):
            if proved(at.facts, need):
                continue
            seen = witness(at.facts, need)
            if seen is None:
                self._leave(at)
                continue
            rule = _rule_of(at.facts, index, extent, is_text)
            if at.is_open and rule in {"op-element-unchecked", "op-buffer-overrun"}:
                self._leave(at)  # the condition that is not known may be about the size
                continue
            always = side == "high" and rule in _PERHAPS_ALWAYS and self._always(at, need)
            rule = "op-buffer-overrun" if always else rule
            self._report(
                at,
                rule,
                side,
                seen,
                names={"buffer": buffer, "index": str(at.facts.plain(index)), "size": str(at.facts.plain(extent))},
                always=always,
            )
            break

    def spans(self, at: AccessSite, begin: Poly, size: Poly, whole: Poly, buffer: str) -> None:
        """``size`` bytes from ``begin`` on lie within ``whole`` bytes."""
        if at.facts.is_dead:
            return
        for need, side in ((whole - begin - size, "high"), (begin, "low")):
            if proved(at.facts, need):
                continue
            seen = witness(at.facts, need, (size.plus(-1),))
            if seen is None:
                if witness(at.facts, need) is None:
                    self._leave(at)
                continue
            from_values = any(each.kind == "value" for each in at.facts.plain(size).atoms())
            rule = _rule_of(at.facts, begin + size, whole, from_values)
            always = side == "high" and rule == "op-buffer-overrun" and self._always(at, need)
            names = {"buffer": buffer, "index": str(at.facts.plain(begin)), "size": str(at.facts.plain(whole))}
            self._report(at, rule, "range", seen, names={**names, "bytes": str(at.facts.plain(size))}, always=always)
            break

    def grows(self, at: AccessSite, old: Poly, factor: Poly, text: str) -> None:
        """A product of a loop, in 32 bits: each turn multiplies by what is in a tensor."""
        atoms = at.facts.plain(factor).atoms()
        if at.facts.is_dead or not atoms or all(each.is_known for each in at.facts.plain(old).atoms()):
            return
        if any(each.kind == "value" for each in atoms) and all(each.is_known for each in atoms):
            seen = witness(at.facts, Poly.of(9) - factor)
            if seen is not None:
                self._report(at, "op-size-overflow", "product", seen, names={"expression": text})

    def _always(self, at: AccessSite, need: Poly) -> bool:
        """The worst case of the loops is below zero whatever the sizes are."""
        worst = at.facts.plain(need)
        for atom in sorted(worst.atoms(), key=lambda each: -each.number):
            parts = worst.split(atom)
            factor = parts[0].constant if parts is not None else None
            bound = atom.most if (factor or 0) < 0 else atom.least
            if atom.kind == "counter" and parts is not None and factor is not None and bound is not None:
                worst = at.facts.plain(parts[1] + parts[0] * bound)
        return not at.is_open and (worst.constant or 0) < 0

    def divides(self, at: AccessSite, divisor: Poly, text: str) -> None:
        """``divisor != 0``"""
        if at.facts.is_dead or proved_not_zero(at.facts, divisor):
            return
        seen = witness(at.facts, Poly.of(-1), (divisor, divisor.scaled(-1)))
        if seen is None:
            self._leave(at)
            return
        atoms = at.facts.plain(divisor).atoms()
        rule = "op-attr-unchecked" if _kinds(atoms) & {"attribute"} else "op-division-unchecked"
        self._report(at, rule, "divisor", seen, names={"divisor": text})

    def makes(self, at: AccessSite, size: Poly, text: str, what: str) -> None:
        """A size that comes from data has to be neither negative nor huge; behind it, it is not negative."""
        self._makes(at, size, text, what)
        if not at.facts.is_dead and size.constant is None:
            at.facts.add(size)
            at.facts.is_dead = False

    def _makes(self, at: AccessSite, size: Poly, text: str, what: str) -> None:
        plain = at.facts.plain(size)
        kinds = _kinds(plain.atoms())
        if at.facts.is_dead or not kinds & {"value", "attribute"}:
            return
        rule = "op-allocation-unchecked" if "value" in kinds else "op-attr-unchecked"
        for need, side in ((size, "negative"), (Poly.of(LARGEST) - size, "huge")):
            if proved(at.facts, need) or (
                side == "huge" and (_is_of_a_size(at.facts, plain) or (what == "TensorShape" and _is_small(plain)))
            ):
                continue
            seen = witness(at.facts, need, _modest(at.facts, need) if side == "huge" else ())
            if seen is not None and (rule != "op-attr-unchecked" or side == "negative"):
                self._report(at, rule, side, seen, names={"size": text, "what": what})
                return
            if seen is None:
                self._leave(at)

    def narrow(self, at: AccessSite, number: Poly, text: str) -> None:
        """A product that is computed in 32 bits has to fit."""
        need = Poly.of(LARGEST - 1) - number
        values = [each for each in at.facts.plain(number).atoms() if each.kind == "value"]
        if at.facts.is_dead or not values or proved(at.facts, need, 2):
            return
        seen = witness(at.facts, need, _modest(at.facts, need))
        if seen is None:
            self._leave(at)
            return
        self._report(at, "op-size-overflow", "product", seen, names={"expression": text})

    def _leave(self, at: AccessSite) -> None:
        self.undecided.add((at.function.file.path, at.node.start_byte))

    def _report(
        self, at: AccessSite, rule: str, case: str, seen: Witness, *, names: dict[str, str], always: bool = False
    ) -> None:
        place = at.function.file.place(at.node)
        key = (rule, place.path, place.line)
        if key in self.found:
            return
        facts = (CodeFact(claim="nothing prevents", seen=seen.told()),) if seen.told() else ()
        self.found[key] = self.look.defect(
            rule,
            case,
            place,
            "access",
            function=at.function,
            kernel=self.kernel,
            names={**names, "witness": seen.told()},
            facts=facts,
            severity="error" if always else "warning",
            confidence="certain" if always else "likely",
        )


def _is_of_a_size(facts: Facts, size: Poly) -> bool:
    """A check says that a product with each of its values is the size of an input: ``frames * atoms * 3 == dim``."""
    products = [
        made.atoms()
        for atom, made in facts.equal.items()
        if atom.kind in {"dim", "count", "size"} and len(made.terms) == 1
    ]
    return all(any(each in product for product in products) for each in size.atoms() if each.kind == "value")


def _is_small(size: Poly) -> bool:
    """All values in it have at most 32 bits: TensorFlow refuses the allocation."""
    return all(each.high is not None for each in size.atoms() if each.kind == "value")


def _modest(facts: Facts, need: Poly) -> tuple[Poly, ...]:
    """Tensors are not huge themselves."""
    atoms = {atom for each in [facts.plain(need), *related(facts, facts.plain(need).atoms())] for atom in each.atoms()}
    return tuple(Poly.of(_MODEST) - Poly.atom(each) for each in atoms if each.kind in {"dim", "count", "size"})


def _kinds(atoms: AbstractSet[Atom]) -> set[str]:
    return {each.kind for each in deep(atoms)}


def deep(atoms: AbstractSet[Atom]) -> set[Atom]:
    """These atoms, and those that bound them."""
    found, waiting = set(atoms), list(atoms)
    while waiting:
        one = waiting.pop()
        for bound in (one.least, one.most):
            more = bound.atoms() - found if bound is not None else set()
            found |= more
            waiting += more
    return found


def _rule_of(facts: Facts, index: Poly, extent: Poly, is_range: bool) -> str:
    own = facts.plain(index).atoms()
    around = deep(own)
    if any(each.kind == "value" for each in own):
        return "op-offset-unchecked" if is_range else "op-index-unchecked"
    if any(each.kind == "value" for each in around):
        return "op-offset-unchecked"
    if "attribute" in {each.kind for each in around}:
        return "op-attr-unchecked"
    sizes = deep(facts.plain(extent).atoms())
    if not own and any(each.kind == "attribute" for each in sizes):
        return "op-attr-unchecked"
    if not own:
        return "op-element-unchecked"
    owners = {each.owner for each in around if each.owner}
    others = {each.owner for each in sizes if each.owner}
    if others and owners - others:
        return "op-sizes-unrelated"
    return "op-buffer-overrun"
