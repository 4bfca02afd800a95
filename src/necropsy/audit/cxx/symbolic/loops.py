"""Loops: the body runs once, with a counter between its bounds; what it changes is not known before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from necropsy.audit.cxx.declarators import base_text, declared, walk
from necropsy.audit.cxx.symbolic.machine import State
from necropsy.audit.cxx.symbolic.objects import UNKNOWN, Address, Condition, Number, Object, Sequence, Value, View
from necropsy.audit.cxx.symbolic.polynomials import Atom, Poly
from necropsy.audit.cxx.symbolic.prover import ELEMENTS, proved
from necropsy.audit.cxx.symbolic.statements import Statements
from necropsy.audit.cxx.symbolic.witness import EVERYTHING

if TYPE_CHECKING:
    from tree_sitter import Node

_TURNS = 6
"""A loop of at most so many turns is followed turn by turn."""
_CHANGING = frozenset(
    {"push_back", "emplace_back", "resize", "clear", "pop_back", "insert", "erase", "append", "assign"}
)
_SHAPES = frozenset({"AddDim", "AddDimWithStatus", "AppendShape", "InsertDim", "set_dim", "RemoveDim", "Update"})


class Counter(NamedTuple):
    """A variable that counts."""

    name: str
    cell: int
    atom: Atom


class Loops(Statements):
    """What loops do."""

    def _do_for_statement(self, node: Node) -> None:
        names = dict(self.frame.names)
        before = node.child_by_field_name("initializer")
        if before is not None:
            self.run(before)
        self._loop(node, node.child_by_field_name("condition"), node.child_by_field_name("update"))
        self.frame.names = names

    def _do_while_statement(self, node: Node) -> None:
        asked = node.child_by_field_name("condition")
        value = asked.child_by_field_name("value") if asked is not None and asked.type == "condition_clause" else asked
        self._loop(node, value, None)

    def _do_do_statement(self, node: Node) -> None:
        self._loop(node, None, None)

    def _continued(self) -> None:
        """Behind one turn of a loop that is followed turn by turn."""
        ends = [one for one in (self.state, *self.frame.continues) if not one.facts.is_dead]
        self.frame.continues = []
        if ends:
            self.state = self.meet(ends)

    def _unrolled(self, counter: Counter, body: Node, update: Node | None) -> bool:
        """A loop of a few turns, each followed on its own."""
        bounds = (counter.atom.least, counter.atom.most)
        low, high = (self.plain(one).constant if one is not None else None for one in bounds)
        if low is None or high is None or high - low >= _TURNS or self._has_break(body) or "+=" in self.text(update):
            return False
        turns = range(low, high + 1) if "--" not in self.text(update) else range(high, low - 1, -1)
        kind = self._kind(counter.cell)
        for turn in turns:
            self.state.cells[counter.cell] = Number(Poly.of(turn), kind)
            self.run(body)
            self._continued()
        return True

    def _loop(self, node: Node, condition: Node | None, update: Node | None) -> None:
        body = node.child_by_field_name("body")
        counter = self._counter(condition, update, body)
        if counter is not None and body is not None and self._unrolled(counter, body, update):
            return
        before = self.state.copy()
        starts = self._forget_changed([body, update, condition] if counter is None else [body], counter)
        if any(isinstance(old, Number) and _is_from_tensor(old) for old in starts.values()):
            self._first_turn(before, condition, body)
        if counter is not None:
            self.state.cells[counter.cell] = Number(Poly.atom(counter.atom), self._kind(counter.cell))
        self._grown(starts, body, update)
        outside = self.state.copy()
        if counter is None or condition is None:
            asked = self.condition(condition) if condition is not None else Condition("true")
            self.assume(asked)
        else:
            atom = counter.atom
            if atom.least is not None and atom.most is not None:
                self.assume(Condition("least", atom.most - atom.least))
                self._rest(condition)
        self._body(node, body, update if counter is None else None, counter, outside)
        if counter is None and condition is not None and not self.is_dead:
            exits = self.condition(condition)
            if not self._has_break(body):
                self.assume(exits, holds=False)

    def _first_turn(self, before: State, condition: Node | None, body: Node | None) -> None:
        """The first turn alone: a value of a tensor that the loop itself changes is still known in it."""
        frame, after = self.frame, self.state
        kept = list(frame.returns), list(frame.breaks), list(frame.continues), dict(frame.names)
        self.state = before
        if condition is not None:
            self.assume(self.condition(condition))
        if body is not None and not self.is_dead:
            self.run(body)
        frame.returns, frame.breaks, frame.continues, frame.names = kept
        self.state = after

    def _kind(self, cell: int) -> str:
        old = self.state.cells.get(cell)
        return old.kind if isinstance(old, Number) and old.kind else "whole"

    def _rest(self, condition: Node) -> None:
        """``i < n && ok``: what else holds in the body."""
        if condition.type == "binary_expression" and self.text(condition.child_by_field_name("operator")) == "&&":
            self.assume(self.condition(condition))

    def _body(
        self, node: Node, body: Node | None, update: Node | None, counter: Counter | None, outside: State
    ) -> None:
        breaks, continues = self.frame.breaks, self.frame.continues
        self.frame.breaks, self.frame.continues = [], []
        names = dict(self.frame.names)
        if body is not None and not self.is_dead:
            self.run(body)
        ends = [self.state, *self.frame.continues]
        alive = [one for one in ends if not one.facts.is_dead]
        if alive:
            self.state = self.meet(alive)
            if update is not None:
                self.value(update)
        left = [one for one in self.frame.breaks if not one.facts.is_dead]
        self.frame.breaks, self.frame.continues = breaks, continues
        self.frame.names = names
        after = outside.copy()
        if alive and not left and counter is not None:
            self._for_all(after, self.state, counter)
        ends = [after, *([self.state] if alive else []), *left]
        is_open = outside.is_open
        every, opaque, ordered = after.facts.every, after.facts.opaque, after.facts.ordered
        if alive:
            opaque |= self.state.facts.opaque
        self.state = self.meet(ends)
        self.state.is_open = is_open
        if not left:
            self.state.facts.every = every
            self.state.facts.ordered = ordered
        self.state.facts.opaque |= opaque
        del node

    def _for_all(self, after: State, done: State, counter: Counter) -> None:
        """What each turn has checked of the value at its index holds of all values."""
        known = set(after.facts.at_least)
        made = list(after.facts.every)
        index = Poly.atom(counter.atom)
        for fact in done.facts.at_least:
            if fact in known:
                continue
            values = [atom for atom in fact.atoms() if atom.kind in ELEMENTS and index in atom.key[1:]]
            self._is_order(after, fact)
            for one in values[:3]:
                made += self._pattern(one, fact, counter.atom)
        after.facts.opaque |= self._dims_compared(after, done, counter.atom)
        for pattern, fact in done.facts.every:
            if index in pattern.key[1:]:
                made += self._pattern(pattern, fact, counter.atom)
            elif (pattern, fact) not in made:
                made.append((pattern, fact))
        after.facts.every = tuple(dict.fromkeys(made))

    def _dims_compared(self, after: State, done: State, counter: Atom) -> frozenset[str]:
        """The shapes whose dimensions a loop compares one by one."""
        known = set(after.facts.at_least)
        found = {each for fact in done.facts.at_least if fact not in known for each in fact.atoms()}
        for atom, value in done.facts.equal.items():
            if after.facts.equal.get(atom) != value:
                found |= {atom, *value.atoms()}
        dims = {
            each.owner
            for each in found
            if each.kind == "dim" and isinstance(each.key[1], Poly) and counter in each.key[1].atoms()
        }
        lists = {each.owner.partition("[")[0] + "[" for each in found if each.owner.startswith("input list")}
        if any(str(each.key[0]).startswith("one of the inputs") for each in found if each.key):
            lists.add(EVERYTHING)
        return frozenset(dims | lists)

    def _is_order(self, after: State, fact: Poly) -> None:
        """``a(i + 1) >= a(i)``: the values are in order."""
        values = [atom for atom in fact.atoms() if atom.kind == "value" and len(atom.key) == 2]
        if len(values) != 2 or values[0].key[0] != values[1].key[0]:
            return
        upper, lower = values if fact.terms.get((values[0],)) == 1 else values[::-1]
        first, second = upper.key[1], lower.key[1]
        if fact.terms.get((upper,)) != 1 or fact.terms.get((lower,)) != -1 or fact.terms.get((), 0) > 0:
            return
        if isinstance(first, Poly) and isinstance(second, Poly) and (first - second).constant == 1:
            after.facts.ordered |= {str(upper.key[0])}

    def _pattern(self, atom: Atom, fact: Poly, counter: Atom) -> list[tuple[Atom, Poly]]:
        index = Poly.atom(counter)
        patterns = {}
        for one in fact.atoms():
            if one.kind in ELEMENTS and index in one.key[1:]:
                key = tuple("*" if each == index else each for each in one.key)
                text = f"{key[0]}({', '.join(map(str, key[1:]))})"
                patterns[one] = self.atoms.get(one.kind, key, text, one.low, one.high)
        anyone = patterns[atom]
        made = fact.replaced({one: Poly.atom(pattern) for one, pattern in patterns.items()})
        if counter in made.atoms():
            # The bound goes with the index: it holds with the weakest bound of all.
            parts = made.split(counter)
            bound = counter.least if parts is not None and (parts[0].constant or 0) < 0 else counter.most
            if parts is None or parts[0].constant is None or bound is None:
                return []
            made = parts[1] + parts[0] * bound
        return [(anyone, made)]

    def _counter(self, condition: Node | None, update: Node | None, body: Node | None) -> Counter | None:
        """``i < n; ++i``: the counter with its bounds, where nothing else changes it."""
        if condition is None or update is None:
            return None
        first = condition
        while first.type == "binary_expression" and self.text(first.child_by_field_name("operator")) == "&&":
            left = first.child_by_field_name("left")
            if left is None:
                return None
            first = left
        if first.type != "binary_expression" or update.type not in {"update_expression", "assignment_expression"}:
            return None
        sign = self.text(first.child_by_field_name("operator"))
        target = update.child_by_field_name("argument") or update.child_by_field_name("left")
        name = self.text(target)
        cell = self.cell(target)
        if cell is None or name in self._changed_names(body):
            return None
        left, right = first.child_by_field_name("left"), first.child_by_field_name("right")
        if self.text(left) != name:
            if self.text(right) != name:
                return None
            sign = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(sign, sign)
            right = left
        text = self.text(update)
        step = 1 if "++" in text else -1 if "--" in text else None
        if step is None:
            amount = self.number(self.value(update.child_by_field_name("right")), "").poly.constant
            step = amount if "+=" in text and amount and amount > 0 else None
        start = self.held(self.state.cells.get(cell, UNKNOWN))
        if not isinstance(start, Number) or step is None or start.kind == "float":
            return None
        limits = self._forgotten_then(right, body)
        end = self.number(limits, self.text(right)).poly
        atom = self.atoms.fresh("counter", name)
        if step > 0 and sign in {"<", "<=", "!="}:
            atom.least, atom.most = self.plain(start.poly), self.plain(end if sign == "<=" else end.plus(-1))
        elif step < 0 and sign in {">", ">=", "!="}:
            atom.least, atom.most = self.plain(end if sign == ">=" else end.plus(1)), self.plain(start.poly)
        else:
            return None
        low, high = atom.least.constant, atom.most.constant
        if low is None and proved(self.facts, atom.least, 2):
            low = 0
        atom.low, atom.high = low, high
        return Counter(name, cell, atom)

    def _forgotten_then(self, node: Node | None, body: Node | None) -> Value:
        """The limit of a loop whose body may change it."""
        value = self.held(self.value(node))
        names = (
            {self.text(one) for one in walk(node) if one.type in {"identifier", "field_identifier"}} if node else set()
        )
        if node is not None and node.type == "identifier":
            names.add(self.text(node))
        return self.unknown("a limit") if names & self._changed_names(body) else value

    def _changed_names(self, body: Node | None) -> set[str]:
        found: set[str] = set()
        for one in walk(body) if body is not None else ():
            target = None
            if one.type == "assignment_expression":
                target = one.child_by_field_name("left")
            elif one.type == "update_expression":
                target = one.child_by_field_name("argument")
            elif one.type == "call_expression":
                called = one.child_by_field_name("function")
                if called is not None and called.type == "field_expression":
                    name = self.text(called.child_by_field_name("field"))
                    target = called.child_by_field_name("argument") if name in _CHANGING | _SHAPES else None
            elif one.type == "pointer_expression" and self.text(one).startswith("&"):
                target = one.child_by_field_name("argument")
            while target is not None and target.type in {"subscript_expression", "parenthesized_expression"}:
                target = target.child_by_field_name("argument") or target.named_children[0]
            if target is not None and target.type in {"identifier", "field_expression"}:
                found.add(self.text(target).removeprefix("this->"))
        return found

    def _forget_changed(self, nodes: list[Node | None], counter: Counter | None) -> dict[int, Value]:
        """Before a body runs for the nth time: what it changes is not known. Returns what was known."""
        starts: dict[int, Value] = {}
        for node in nodes:
            names = self._changed_names(node)
            if node is not None and node.type in {"update_expression", "assignment_expression"}:
                target = node.child_by_field_name("argument") or node.child_by_field_name("left")
                names.add(self.text(target))
            this = self.held(self.frame.this)
            for name in names:
                cell = self.frame.names.get(name)
                if cell is None and isinstance(this, Object):
                    cell = this.members.get(name)
                if cell is None or (counter is not None and cell == counter.cell):
                    continue
                old = self.state.cells.get(cell, UNKNOWN)
                if isinstance(old, View) or cell in starts:
                    continue
                starts[cell] = old
                if isinstance(old, Address):
                    self.forget(old)
                else:
                    self.state.cells[cell] = self.forgotten(old)
        return starts

    def _grown(self, starts: dict[int, Value], body: Node | None, update: Node | None) -> None:
        """A variable that is only counted upwards is never below its start."""
        if body is None:
            return
        text = self.text(body) + " ; " + self.text(update)
        names = {cell: name for name, cell in self.frame.names.items()}
        for cell, old in starts.items():
            new, name = self.state.cells.get(cell), names.get(cell)
            if not isinstance(old, Number) or not isinstance(new, Number) or name is None:
                continue
            plain = f" {text} "
            for step in (f"{name}++", f"++{name}", f"{name} += 1"):
                plain = plain.replace(step, " ")
            if (
                not any(f"{name} {sign}" in plain for sign in ("=", "+=", "-=", "*=", "/="))
                and f"--{name}" not in plain
            ) and f"{name}--" not in plain:
                self.facts.add(new.poly - old.poly)

    def _has_break(self, body: Node | None) -> bool:
        return body is not None and any(one.type == "break_statement" for one in walk(body))

    def _do_for_range_loop(self, node: Node) -> None:
        names = dict(self.frame.names)
        held = self.held(self.value(node.child_by_field_name("right")))
        body = node.child_by_field_name("body")
        self._forget_changed([body], None)
        file = self.frame.function.file
        one = declared(file, base_text(file, node).rpartition("(")[2], node.child_by_field_name("declarator"))
        value: Value = self.from_type(one.type, one.name or "an element")
        counter = self.atoms.fresh("counter", f"the place of {one.name}", 0)
        counter.least = Poly.of(0)
        if isinstance(held, Sequence) and held.items and body is not None and not self._has_break(body):
            for item in held.items:
                self.frame.names[one.name] = self.new(item)
                self.run(body)
                self._continued()
            self.frame.names = names
            return
        outside = self.state.copy()
        if isinstance(held, Sequence):
            counter.most = held.size.plus(-1)
            index = Poly.atom(counter)
            self.facts.add(held.size.plus(-1))
            if held.is_list:
                value = self.listed(held, index)
            elif held.owner:
                atom = self.atoms.get("attribute", (held.owner, index), f"an element of attribute {held.owner}")
                value = Number(Poly.atom(atom))
            elif held.element is not UNKNOWN:
                value = held.element
        if one.name:
            self.frame.names[one.name] = self.new(value)
        if not self.is_dead:
            self._body(node, body, None, Counter(one.name, -1, counter), outside)
        else:
            self.state = outside
        self.frame.names = names


def _is_from_tensor(number: Number) -> bool:
    return any(atom.kind == "value" for atom in number.poly.atoms())
