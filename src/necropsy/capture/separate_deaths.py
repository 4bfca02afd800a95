"""Tells the deaths apart that one log tells of.

A text is of another death only if something proves it: another process number, the dump of other threads, another
signal, another labelled writer, another test, or that the process before had ended. In doubt it is of the same death,
and what may be of two deaths is evidence of neither. Decided line by line from above, so that a log that grows at its
end keeps its earlier deaths.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from necropsy.capture.death_marks import KERNEL, Marks, marks_of
from necropsy.formats.text_reports import TextReport
from necropsy.model import Message

MOST = 10_000
"""Deaths of one log that are told apart."""
OPEN = 64
"""The latest deaths, to which more of the text may belong; of older ones only repetitions are known."""
_TEXTS = 200
"""Messages, and as many pieces, that are kept of one death."""
_WORDS = 5 * MOST
"""Words of programs by which a repetition is known."""
_FAR = 2000
"""Lines between the sentence that a process has ended, and the dump that it left, at most."""
_ENDS = frozenset({"dump", "bare", "end", "lost"})
_BEFORE = 20
"""Messages of a writer that are kept for the death that may follow."""

Told = TextReport | Message


@dataclass(eq=False)
class LogDeath:
    """One death: ``pieces`` and ``messages`` are about it and no other; ``first`` and ``last`` are lines of the log."""

    first: int
    last: int
    writer: str = ""
    pieces: list[TextReport] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tail: str = ""
    """The last lines of its writer, up to the last of its own."""
    signal: str | None = None
    """By which it ended."""
    pid: dict[str, int] = field(default_factory=dict)
    threads: set[str] = field(default_factory=set)
    stack: tuple[str, ...] = ()
    dumps: set[str] = field(default_factory=set)
    test: str | None = None
    has_words: bool = False
    ended: bool = False
    """Somebody said that it ended by its signal."""
    over: bool = False
    """Who said so waits for the end of a process: what follows is another's."""
    blurred: bool = False
    """Sentences about its end may be about another death."""
    done: bool = False
    """Nothing more is read of it."""


class Separator:
    """Takes what a log says, line by line; ``deaths`` are those found so far."""

    def __init__(self) -> None:
        self.deaths: list[LogDeath] = []
        self.more = 0
        """Texts of further deaths, beyond ``MOST``."""
        self._open: deque[LogDeath] = deque(maxlen=OPEN)
        self._by_pid: dict[tuple[str, int], LogDeath | None] = {}
        self._by_thread: dict[str, deque[LogDeath]] = defaultdict(partial(deque, maxlen=OPEN))
        self._by_content: dict[str, LogDeath] = {}
        self._by_test: dict[str, LogDeath | None] = {}
        self._by_words: dict[str, LogDeath] = {}
        self._before: dict[str, deque[Told]] = defaultdict(partial(deque, maxlen=_BEFORE))
        self._words: dict[str, deque[Message]] = defaultdict(partial(deque, maxlen=_BEFORE))
        self._told = 0

    def take(self, messages: Sequence[Message], pieces: Sequence[TextReport], writers: Mapping[int, str]) -> None:
        """What the next lines say."""
        # Of two readings of one sentence, the one with the number of the process says more.
        told: list[tuple[int, int, Told]] = [(one.first, int(one.crash.pid is None), one) for one in pieces]
        told += [(one.line or 0, 2, one) for one in messages]
        owners: list[tuple[TextReport, LogDeath | None]] = []
        for line, _, one in sorted(told, key=itemgetter(0, 1)):
            owners = [(piece, owner) for piece, owner in owners if piece.last >= line]
            writer = one.writer if isinstance(one, TextReport) else writers.get(line, "")
            inside = next((pair for pair in owners if pair[0].writer == writer), None)
            if isinstance(one, Message):
                if inside is None:
                    self._message(one, writer)
                elif inside[1] is not None:
                    self._add(inside[1], one)
                continue
            marks = marks_of(one)
            if marks.role not in _ENDS:
                self._other(one, marks)
            elif inside is None or not _same_text(inside[0], one):
                owners.append((one, self._piece(one, marks)))
            elif inside[1] is not None:
                self._add(inside[1], one, marks)

    @property
    def open(self) -> Sequence[LogDeath]:
        """Those that were not told yet."""
        return self.deaths[self._told :]

    def finished(self) -> Iterator[tuple[int, LogDeath]]:
        """The deaths to which nothing more can belong, each once, with its place; they give up their texts."""
        still = set(map(id, self._open))
        for place in range(self._told, len(self.deaths)):
            if id(self.deaths[place]) in still:
                return
            yield from self._finish(place)

    def rest(self) -> Iterator[tuple[int, LogDeath]]:
        """The others, at the end of the text."""
        for place in range(self._told, len(self.deaths)):
            yield from self._finish(place)

    def _finish(self, place: int) -> Iterator[tuple[int, LogDeath]]:
        death = self.deaths[place]
        yield place, death
        self._told = place + 1
        death.done = True
        death.pieces, death.messages = [], []

    # ---------------------------------------------------------------- texts

    def _piece(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        """The death that the piece is evidence of."""
        if marks.watched:
            return self._watched(piece, marks)
        if marks.role == "dump":
            return self._dump(piece, marks)
        if marks.role == "bare":
            return self._bare(piece, marks)
        return self._lost(piece, marks) if marks.role == "lost" else self._end(piece, marks)

    def _other(self, piece: TextReport, marks: Marks) -> None:
        if (death := self._of_pid(marks)) is not None:
            self._add(death, piece)
        elif marks.role == "before":
            self._keep_before(piece, piece.writer)

    def _of_pid(self, marks: Marks) -> LogDeath | None:
        """The death of the process with this number, the kernel's or another's."""
        number = marks.pid if marks.pid is not None else marks.thread
        if number is None:
            return None
        found = (self._by_pid.get((by, number)) for by in dict.fromkeys((marks.by, KERNEL, "")))
        return next((one for one in found if one is not None and _agree(one, marks)), None)

    def _dump(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        if (known := self._known(piece, marks)) is not None:
            self._words.pop(piece.writer, None)  # they are repeated, too
            is_new = piece.content not in self._by_content and (piece.kind not in known.dumps or not known.over)
            return self._add(known, piece, marks) if is_new else None
        for death in reversed(self._open):
            if self._may_be_of(death, piece, marks):
                return self._add(death, piece, marks)
        return self._new(piece, piece.first, piece.writer, marks)

    def _bare(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        agreeing = [one for one in self._open if _agree(one, marks) and _same_writer(one.writer, piece.writer)]
        if not agreeing:
            return self._new(piece, piece.first, piece.writer, marks)
        return None if agreeing[-1].over else self._add(agreeing[-1], piece, marks)

    def _known(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        """The death of which this is another dump, or the same one once more."""
        for number in sorted(piece.threads):
            for death in self._by_thread.get(number, ()):
                # A process and those that it forked have the same numbers of threads.
                if not _differ(death.stack, marks.stack) and _agree(death, marks):
                    return death
        repeated = self._by_content.get(piece.content)
        if (death_ := self._of_pid(marks)) is not None:
            return death_ if repeated is death_ or not death_.over or piece.kind not in death_.dumps else None
        return repeated if not piece.threads and marks.pid is None else None

    def _may_be_of(self, death: LogDeath, piece: TextReport, marks: Marks) -> bool:
        if death.over or not _agree(death, marks) or not _same_writer(death.writer, piece.writer):
            return False
        if marks.pid is not None and death.pid.get(marks.by, marks.pid) != marks.pid:
            return False
        if death.threads and piece.threads:
            return False  # of other threads, or they would be known
        if piece.kind in death.dumps and (marks.pid is not None or piece.threads):
            return False
        return bool(death.dumps or death.has_words) or piece.first - death.last <= _FAR

    def _end(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        if (known := self._of_pid(marks)) is not None:
            self._words.pop(piece.writer, None)
            return self._add(known, piece, marks)
        if (marks.by, marks.pid) in self._by_pid:
            return None
        fitting = [
            one
            for one in self._open
            if not one.ended
            and _agree(one, marks)
            and _same_writer(one.writer, piece.writer)
            and (marks.pid is None or one.pid.get(marks.by) is None)
        ]
        exact = [one for one in fitting if one.signal == marks.signal] or fitting
        if exact:
            self._words.pop(piece.writer, None)
            return self._one_of(exact, piece, marks)
        if marks.pid is None and (not marks.is_crash or any(_agree(one, marks) for one in self._open)):
            return None  # the same end, said once more
        if not marks.is_crash and any(one.signal not in {None, marks.signal} for one in self._open):
            return None  # killed because another had crashed, as launchers do
        return self._new(piece, piece.first, piece.writer, marks)

    def _watched(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        """The kernel and debuggers write when they like, and the kernel numbers processes in its own way."""
        if piece.content in self._by_content:
            return None
        if (known := self._of_pid(marks)) is not None:
            return self._add(known, piece, marks)
        if (marks.by, marks.pid) in self._by_pid:
            return None
        agreeing = [one for one in self._open if _agree(one, marks)]
        fitting = [
            one
            for one in agreeing
            if piece.kind not in one.dumps and (marks.pid is None or one.pid.get(marks.by) is None)
        ]
        if fitting:
            return self._one_of(fitting, piece, marks)
        if agreeing and marks.pid is None:
            return self._add(agreeing[-1], piece, marks)  # more of the same session
        return self._new(piece, piece.first, piece.writer, marks)

    def _one_of(self, deaths: Sequence[LogDeath], piece: TextReport, marks: Marks) -> LogDeath | None:
        """The piece is about one of ``deaths``; where it may be any, about none that is known."""
        first = deaths[0]
        if len(deaths) == 1 and not first.blurred:
            return self._add(first, piece, marks)
        for one in deaths:
            one.blurred = True
        if marks.pid is not None:
            self._by_pid[marks.by, marks.pid] = None
        if marks.watched:
            first.dumps.add(piece.kind)
        elif marks.role == "end":
            first.ended, first.over = True, first.over or marks.is_last
        if marks.test is not None:
            first.test, self._by_test[marks.test] = marks.test, None
        return None

    def _lost(self, piece: TextReport, marks: Marks) -> LogDeath | None:
        """A sentence that says that a process is gone, and not how."""
        if marks.test is None:
            return self._new(piece, piece.first, piece.writer, marks) if not self._open else None
        if marks.test in self._by_test:
            return None
        free = [one for one in self._open if one.test is None]
        named = [one for one in free if marks.function in one.stack]
        if len(named) == 1:
            return self._add(named[0], piece, marks)
        return self._one_of(free, piece, marks) if free else self._new(piece, piece.first, piece.writer, marks)

    def _message(self, message: Message, writer: str) -> None:
        marks = marks_of(message)
        latest = next((one for one in reversed(self._open) if one.writer == writer), None)
        has_only_words = latest is not None and not (latest.dumps or latest.ended)
        if marks.role != "words":
            if latest is not None and has_only_words:
                self._add(latest, message)
            elif marks.role == "before":
                self._keep_before(message, writer)
            return
        if (known := self._by_words.get(message.text)) is not None:
            if known.over:
                self._words[writer].append(message)  # the next process may say the same
        elif latest is None or latest.over:
            self._new(message, message.line or 0, writer, marks)
        elif has_only_words:
            self._add(latest, message, marks)
        else:
            self._words[writer].append(message)
            self._know_words(message, latest)

    def _keep_before(self, told: Told, writer: str) -> None:
        latest = next((one for one in reversed(self._open) if _same_writer(one.writer, writer)), None)
        if latest is None or latest.over:
            self._before[writer].append(told)

    # ---------------------------------------------------------------- deaths

    def _new(self, told: Told, line: int, writer: str, marks: Marks) -> LogDeath | None:
        before = [*self._before.pop(writer, ()), *self._words.pop(writer, ())]
        if len(self.deaths) >= MOST:
            self.more += 1
            return None
        death = LogDeath(first=line, last=line, writer=writer)
        self.deaths.append(death)
        self._open.append(death)
        for one in before:
            self._add(death, one)
        return self._add(death, told, marks)

    def _add(self, death: LogDeath, told: Told, marks: Marks | None = None) -> LogDeath | None:
        if death.done:
            return None
        if isinstance(told, Message):
            first, last = told.line or death.first, told.line or death.last
            if len(death.messages) < _TEXTS:
                death.messages.append(told)
            if marks_of(told).role == "words":
                death.has_words = True
                self._know_words(told, death)
        else:
            first, last = told.first, told.last
            if len(death.pieces) < _TEXTS:
                death.pieces.append(told)
        death.first, death.last = min(death.first, first), max(death.last, last)
        if marks is not None:
            self._note(death, told, marks)
        return death

    def _know_words(self, message: Message, death: LogDeath) -> None:
        if len(self._by_words) < _WORDS:
            self._by_words.setdefault(message.text, death)

    def _note(self, death: LogDeath, told: Told, marks: Marks) -> None:
        if marks.pid is not None:
            death.pid.setdefault(marks.by, marks.pid)
            self._by_pid.setdefault((marks.by, marks.pid), death)
        death.signal = death.signal or marks.signal
        if marks.test is not None:
            death.test = marks.test
            self._by_test[marks.test] = death
        if marks.role == "end":
            death.ended, death.over = True, death.over or marks.is_last
        if isinstance(told, TextReport) and marks.role == "dump":
            death.dumps.add(told.kind)
            death.stack = death.stack or marks.stack
            death.threads |= told.threads
            self._by_content.setdefault(told.content, death)
            for number in told.threads:
                self._by_thread[number].append(death)


def separated(
    messages: Sequence[Message], pieces: Sequence[TextReport], writers: Mapping[int, str]
) -> tuple[LogDeath, ...]:
    """The deaths of one text that was read as a whole."""
    separator = Separator()
    separator.take(messages, pieces, writers)
    return tuple(separator.deaths)


def _same_text(one: TextReport, other: TextReport) -> bool:
    """Two readers read the same sentence."""
    return one.kind == other.kind and (one.first, one.last) == (other.first, other.last)


def _same_writer(one: str, other: str) -> bool:
    return not one or not other or one == other


def _agree(death: LogDeath, marks: Marks) -> bool:
    """Both may have ended by the same signal."""
    if death.signal is None or marks.signal is None or death.signal == marks.signal:
        return True
    # Who reports a fault by itself (a sanitizer, the machine of Java) aborts afterwards.
    return marks.signal == "SIGABRT" and bool(death.dumps) and not death.dumps & _BY_SIGNAL


_BY_SIGNAL = frozenset({"faulthandler", "kernel-log", "core-dump-notice", "gdb", "lldb"})
"""Whose texts name the signal that ends the process."""


def _differ(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(first != second for first, second in zip(one, other, strict=False))
