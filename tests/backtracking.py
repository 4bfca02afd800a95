"""``re``, counting: a pattern that gives what the real one gives and says how many steps a backtracking search takes.

The module ``re`` tells nobody how often it tried, and its time is the machine's. So its search is done a second time
here, over the tree that its own parser makes: in the same order, without any memory of what failed before, as
CPython's ``Modules/_sre/sre_lib.h`` does. What comes out is compared with the real result at every call, so that the
steps are those of the search that really takes place. Constant factors differ; what grows with the text does not.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

# Since Python 3.11 they are modules of the package re; before, they stand beside it.
_WHERE = ("re._compiler", "re._parser") if sys.version_info >= (3, 11) else ("sre_compile", "sre_parse")
compiler: Any = importlib.import_module(_WHERE[0])
parser: Any = importlib.import_module(_WHERE[1])

Then = Callable[[int], int]
"""What follows: from a place to the place where the whole match ends, or ``NOWHERE``."""
Match = Callable[[int, Then], int]
Follows: TypeAlias = str | re.Pattern[str] | None
NOWHERE = -1
_SINGLE = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


class TooMuchWork(BaseException):
    """More steps than were allowed; not an ``Exception``, so that no reader takes it for one of its own."""


class Meter:
    """Steps of all kinds, and how many there may be."""

    def __init__(self) -> None:
        self.steps = 0
        self.most = 0
        """0: any number."""

    def add(self, steps: int) -> None:
        self.steps += steps
        if self.most and self.steps > self.most:
            raise TooMuchWork


class Counting:
    """Stands for the compiled pattern ``real``, of text; all that it does not count is the real one's."""

    def __init__(self, real: re.Pattern[str], meter: Meter) -> None:
        self.real = real
        self._meter = meter
        self._text, self._end = "", 0
        self._marks: dict[int, tuple[int, int] | None] = {}
        self._known: dict[tuple[str, str, int, int], tuple[int, tuple[int, int] | None]] = {}
        tree = parser.parse(real.pattern, real.flags)
        self._state: Any = tree.state
        self._match = self._sequence(list(tree), 0, 0)
        self._first = self._beginning(list(tree))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    # ------------------------------------------------------------ what re offers

    def match(self, text: str, pos: int = 0, endpos: int = 1 << 62) -> re.Match[str] | None:
        return self._same("match", self.real.match(text, pos, endpos), text, pos, endpos)

    def fullmatch(self, text: str, pos: int = 0, endpos: int = 1 << 62) -> re.Match[str] | None:
        return self._same("fullmatch", self.real.fullmatch(text, pos, endpos), text, pos, endpos)

    def search(self, text: str, pos: int = 0, endpos: int = 1 << 62) -> re.Match[str] | None:
        return self._same("search", self.real.search(text, pos, endpos), text, pos, endpos)

    def finditer(self, text: str, pos: int = 0, endpos: int = 1 << 62) -> Iterator[re.Match[str]]:
        after_empty = False
        for found in self.real.finditer(text, pos, endpos):
            # Behind an empty match the next may not be the same one; only the steps are taken then.
            span = self._counted("search", text, pos, endpos)
            assert after_empty or span == found.span(), (self.real.pattern, text, span, found)
            after_empty = found.end() == found.start()
            pos = found.end() + after_empty
            yield found
        self._counted("search", text, pos, endpos)

    def findall(self, text: str) -> list[Any]:
        list(self.finditer(text))
        return self.real.findall(text)

    def sub(self, by: Any, text: str, count: int = 0) -> str:
        list(islice(self.finditer(text), count or None))
        return self.real.sub(by, text, count)

    def split(self, text: str, maxsplit: int = 0) -> list[Any]:
        list(islice(self.finditer(text), maxsplit or None))
        return self.real.split(text, maxsplit)

    def _same(self, how: str, found: re.Match[str] | None, text: str, pos: int, endpos: int) -> re.Match[str] | None:
        span = self._counted(how, text, pos, endpos)
        assert span == (None if found is None else found.span()), (self.real.pattern, text, span, found)
        return found

    def _counted(self, how: str, text: str, pos: int, endpos: int) -> tuple[int, int] | None:
        """The span of the match; its steps are added. The same search of the same text has the same steps."""
        key = (how, text, pos, endpos)
        if key in self._known:
            steps, span = self._known[key]
            self._meter.add(steps)
            return span
        before = self._meter.steps
        self._text, self._end = str(text), min(len(text), endpos)
        self._marks = {}
        tracer = sys.gettrace()
        # The search is none of the code whose lines are counted; traced, it takes three times as long.
        sys.settrace(None)
        try:
            span = self._spanned(how, min(max(pos, 0), len(text)))
        finally:
            sys.settrace(tracer)
        self._known[key] = self._meter.steps - before, span
        return span

    def _spanned(self, how: str, begin: int) -> tuple[int, int] | None:
        if how == "search":
            return self._searched(begin)
        last: Then = self._at_the_end if how == "fullmatch" else _anywhere
        self._meter.add(1)
        end = self._match(begin, last) if begin <= self._end else NOWHERE
        return None if end == NOWHERE else (begin, end)

    def _at_the_end(self, at: int) -> int:
        return at if at == self._end else NOWHERE

    def _searched(self, at: int) -> tuple[int, int] | None:
        while at <= self._end:
            if self._first is not None:
                found = self._first.search(self._text, at, self._end)
                begin = self._end if found is None else found.start()
                self._meter.add(begin - at + 1)
                if found is None:
                    return None
                at = begin
            self._meter.add(1)
            end = self._match(at, _anywhere)
            if end != NOWHERE:
                return at, end
            at += 1
        return None

    # ------------------------------------------------------------ the tree

    def _compiled(self, items: list[Any], on: int, off: int) -> re.Pattern[str]:
        """Items that take no more time than they are long: the real ``re`` does them at once."""
        part = parser.SubPattern(self._state, items)
        whole = parser.SubPattern(self._state, [(parser.SUBPATTERN, (None, on, off, part))]) if on or off else part
        made: re.Pattern[str] = compiler.compile(whole, self._state.flags)
        return made

    def _beginning(self, items: list[Any], on: int = 0, off: int = 0) -> re.Pattern[str] | None:
        """What one of the characters must be that a match begins with; None: it may be any, or there may be none."""
        found: list[Any] = []
        if not _firsts(items, found) or not found:
            return None
        branches = [parser.SubPattern(self._state, [one]) for one in found]
        return self._compiled([(parser.BRANCH, (None, branches))], on, off)

    def _sequence(self, items: list[Any], on: int, off: int, follows: Follows = None) -> Match:
        """``follows``: the character that must stand behind it, or a pattern of those that may."""
        nodes: list[Match] = []
        fixed: list[Any] = []
        for at, item in enumerate(items):
            if str(item[0]) in _SINGLE or str(item[0]) == "AT":
                fixed.append(item)
                continue
            if fixed:
                nodes.append(self._fixed(fixed, on, off))
                fixed = []
            behind = follows if at + 1 == len(items) else self._behind(items[at + 1 :], on, off)
            nodes.append(self._node(item, on, off, behind))
        if fixed:
            nodes.append(self._fixed(fixed, on, off))
        return _one_after_the_other(nodes)

    def _fixed(self, items: list[Any], on: int, off: int) -> Match:
        pattern, meter = self._compiled(list(items), on, off), self._meter

        def match(at: int, then: Then) -> int:
            meter.add(1)
            found = pattern.match(self._text, at, self._end)
            return NOWHERE if found is None else then(found.end())

        return match

    def _behind(self, items: list[Any], on: int, off: int) -> Follows:
        """What must stand where these items begin."""
        literal = None if self._ignores_case(on, off) else _literal(items)
        return self._beginning(items, on, off) if literal is None else literal

    def _ignores_case(self, on: int, off: int) -> bool:
        return bool((self._state.flags | on) & ~off & re.IGNORECASE)

    def _node(self, item: Any, on: int, off: int, follows: Follows) -> Match:
        kind, value = str(item[0]), item[1]
        if kind == "BRANCH":
            return self._branch([self._sequence(list(one), on, off) for one in value[1]])
        if kind == "SUBPATTERN":
            group, more, less, body = value
            return self._group(group, self._sequence(list(body), (on | more) & ~less, (off | less) & ~more, follows))
        if kind == "ATOMIC_GROUP":
            return self._atomic(self._sequence(list(value), on, off))
        if kind in _REPEATS:
            low, high, body = value
            items = list(body)
            if len(items) == 1 and str(items[0][0]) in _SINGLE:
                many = (parser.MAX_REPEAT, (0, parser.MAXREPEAT, value[2]))
                run = self._compiled([many], on, off)
                behind = None if kind == "POSSESSIVE_REPEAT" else follows
                node = self._run(run, low, int(high), behind, lazy=kind == "MIN_REPEAT")
            else:
                node = self._repeat(self._sequence(items, on, off), low, int(high), lazy=kind == "MIN_REPEAT")
            return self._atomic(node) if kind == "POSSESSIVE_REPEAT" else node
        if kind in {"ASSERT", "ASSERT_NOT"}:
            back = 0 if value[0] > 0 else value[1].getwidth()[0]
            return self._look(self._sequence(list(value[1]), on, off), back, wanted=kind == "ASSERT")
        if kind == "GROUPREF":
            return self._again(value, ignore_case=self._ignores_case(on, off))
        # A kind that no pattern of ours has yet: counting it wrongly would be worse than failing.
        raise AssertionError(f"{kind} in {self.real.pattern} is not counted yet")

    def _branch(self, nodes: list[Match]) -> Match:
        def match(at: int, then: Then) -> int:
            for node in nodes:
                self._meter.add(1)
                end = node(at, then)
                if end != NOWHERE:
                    return end
            return NOWHERE

        return match

    def _group(self, group: int | None, body: Match) -> Match:
        if group is None:
            return body

        def match(at: int, then: Then) -> int:
            def close(end: int) -> int:
                before = self._marks.get(group)
                self._marks[group] = (at, end)
                result = then(end)
                if result == NOWHERE:
                    self._marks[group] = before
                return result

            return body(at, close)

        return match

    def _atomic(self, body: Match) -> Match:
        def match(at: int, then: Then) -> int:
            end = body(at, _anywhere)
            return NOWHERE if end == NOWHERE else then(end)

        return match

    def _run(self, many: re.Pattern[str], low: int, high: int, follows: Follows, *, lazy: bool) -> Match:
        """One character many times; where what ``follows`` does not, the rest is not tried."""
        meter = self._meter

        def match(at: int, then: Then) -> int:
            found = many.match(self._text, at, min(self._end, at + high))
            far = NOWHERE if found is None else found.end()
            meter.add(1 if lazy else max(far - at, 0) + 1)
            least = at + low
            here = least if lazy else far
            while least <= here <= far:
                if follows is not None:  # as sre_lib.h does with one character; but here, too, each place is a step
                    next_one = self._next(follows, here, far) if lazy else self._last(follows, least, here)
                    if next_one < 0:
                        meter.add(far - here if lazy else here - least)
                        return NOWHERE
                    meter.add(abs(next_one - here))
                    here = next_one
                meter.add(1)
                result = then(here)
                if result != NOWHERE:
                    return result
                here += 1 if lazy else -1
            return NOWHERE

        return match

    def _next(self, follows: str | re.Pattern[str], first: int, last: int) -> int:
        if isinstance(follows, str):
            return self._text.find(follows, first, last + 1)
        found = follows.search(self._text, first, last + 1)
        return NOWHERE if found is None else found.start()

    def _last(self, follows: str | re.Pattern[str], first: int, last: int) -> int:
        if isinstance(follows, str):
            return self._text.rfind(follows, first, last + 1)
        return next((at for at in range(last, first - 1, -1) if follows.match(self._text, at, at + 1)), NOWHERE)

    def _repeat(self, body: Match, low: int, high: int, *, lazy: bool) -> Match:
        def match(at: int, then: Then) -> int:
            def again(here: int, count: int, before: int) -> int:
                self._meter.add(1)
                if count < low:
                    return body(here, lambda end: again(end, count + 1, here))
                if lazy and (end := then(here)) != NOWHERE:
                    return end
                if count < high and here != before:
                    end = body(here, lambda end: again(end, count + 1, here))
                    if end != NOWHERE:
                        return end
                return NOWHERE if lazy else then(here)

            return again(at, 0, NOWHERE)

        return match

    def _look(self, body: Match, back: int, *, wanted: bool) -> Match:
        def match(at: int, then: Then) -> int:
            self._meter.add(1)
            there = at >= back and body(at - back, _anywhere) != NOWHERE
            return then(at) if there == wanted else NOWHERE

        return match

    def _again(self, group: int, *, ignore_case: bool) -> Match:
        def match(at: int, then: Then) -> int:
            span = self._marks.get(group)
            if span is None:
                return NOWHERE
            said = self._text[span[0] : span[1]]
            here = self._text[at : min(at + len(said), self._end)]
            self._meter.add(len(said) + 1)
            same = here.lower() == said.lower() if ignore_case else here == said
            return then(at + len(said)) if same else NOWHERE

        return match


def _anywhere(at: int) -> int:
    return at


def _one_after_the_other(nodes: list[Match]) -> Match:
    if not nodes:
        return lambda at, then: then(at)
    if len(nodes) == 1:
        return nodes[0]
    first, rest = nodes[0], _one_after_the_other(nodes[1:])
    return lambda at, then: first(at, lambda end: rest(end, then))


def _literal(items: list[Any]) -> str | None:
    """The character that these items begin with, where there is only one."""
    kind, value = items[0]
    if str(kind) == "LITERAL":
        return chr(value)
    if str(kind) == "SUBPATTERN" and not value[1] and not value[2] and len(value[3]):
        return _literal(list(value[3]))
    return None


def _firsts(items: list[Any], found: list[Any]) -> bool:
    """Gather what the first character may be; True: there is one."""
    for kind, value in items:
        name = str(kind)
        if name in _SINGLE:
            found.append((kind, value))
            return True
        if name in {"AT", "ASSERT", "ASSERT_NOT"}:
            continue
        if name == "BRANCH":
            there = [_firsts(list(one), found) for one in value[1]]
            if all(there):
                return True
        elif name == "SUBPATTERN":
            inner: list[Any] = []
            begins = _firsts(list(value[3]), inner)
            for one in inner:
                part = parser.SubPattern(value[3].state, [one])
                found.append((parser.SUBPATTERN, (None, value[1], value[2], part)))
            if begins:
                return True
        elif name == "ATOMIC_GROUP":
            if _firsts(list(value), found):
                return True
        elif name in _REPEATS:
            if _firsts(list(value[2]), found) and value[0]:
                return True
        else:
            return False
    return False
