"""Tries a full stack at several sizes, to see if it is too small or no size would do.

The crash runs with two, eight and 64 times the stack, up to 1 GiB. If it survives, the thread's peak use is the need;
if the thread ended unmeasured, the size is bisected. A death at the end of every size means endless recursion, and a
death at the same depth for every size means that the stack was not the cause.

RLIMIT_STACK sets the main thread's size and that of threads without their own; for others, a preloaded hook around
pthread_create does (``preload/thread_stack.c``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.confirm.campaign import Lab
from necropsy.confirm.conclusions import ExperimentResult
from necropsy.confirm.stack_size import Try, size_text
from necropsy.confirm.tally import outcome_of
from necropsy.model import Change, Crash, Culprit, Diagnosis, Evidence, Experiment, Fix, Fold

_RECURSION, _LARGE, _SMALL = "stack-overflow-recursion", "stack-overflow-large-frame", "stack-overflow-small-stack"
RULES = frozenset({_RECURSION, _LARGE, _SMALL})
LARGEST = 1 << 30
FACTORS = (2, 8, 64)
PRECISION = 0.04
"""Relative precision of a bisected size."""
HEADROOM = 1.25
_DEFAULT = 8 << 20
_MARGIN = 64 << 10
"""Bytes beyond a large frame and its callers, for what it calls."""


@dataclass
class StackStudy:
    """The stack of the thread that died, at several sizes."""

    rule: str
    shares: frozenset[str]
    is_main: bool
    size: int
    fix_texts: Sequence[Fix] = field(default_factory=tuple)
    largest: int = 0
    """Bytes of the largest single frame, from the unwind table."""
    function: str | None = None
    """The function with that frame."""
    used: int = 0
    """Used bytes of the stack, including the frame that did not fit."""
    by_python: bool = True
    """``threading`` made the thread and so sets its stack size."""
    repeats: str | None = None
    """The recursive function."""

    @property
    def text(self) -> str:
        """What it changes, in words."""
        who = "the main thread" if self.is_main else "the thread that died"
        return f"{who} gets more stack than its {size_text(self.size)}: up to {size_text(LARGEST)}, in steps"

    @property
    def most(self) -> int:
        """Runs of a program that dies every time."""
        return 16

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Enlarge the stack until it survives or no larger one can be had, and say which size it takes."""
        by_limit = True
        tries: list[Try] = []
        sizes = sorted({min(LARGEST, factor * self.size) for factor in FACTORS} | {LARGEST})
        fits = self._fits
        if fits is not None:
            # One frame fills it: what it takes is known, and tried first.
            sizes = [fits, *(size for size in sizes if size > fits)]
        for size in sizes:
            one = self._try(lab, size, by_limit=by_limit)
            if one is not None and not one.survives and by_limit and not self.is_main and one.ignored(self.size):
                # Its creator named a size: the limit does not reach it.
                by_limit = False
                one = self._try(lab, size, by_limit=False)
            if one is None:
                break
            if size == fits:
                one.experiment = msgspec.structs.replace(one.experiment, change=self._with_room(size))
            tries.append(one)
            if one.survives or not one.decided:
                break
        return self._concluded(lab, tries, by_limit=by_limit)

    @property
    def _fits(self) -> int | None:
        """The size that fits the largest frame and its callers; None without such a frame."""
        # At the death the frame is counted where its function had begun, or it is what was about to be made.
        wanted = self.used if self.used > self.largest else self.used + self.largest
        if not self.largest or self.largest < wanted / 2:
            return None
        size = -(-max(wanted + _MARGIN, int(wanted * (1 + PRECISION))) // _MARGIN) * _MARGIN
        return size if self.size < size < LARGEST else None

    def _with_room(self, size: int) -> str:
        name = f" of `{self.function}`" if self.function else ""
        return f"a stack of {size_text(size)}, with room for the one frame{name} that takes {self.largest:,} bytes"

    # ------------------------------------------------------------ runs

    @staticmethod
    def _change(size: int, *, by_limit: bool) -> Change:
        return Change(stack_limit=size) if by_limit else Change(thread_stack=size)

    def _try(self, lab: Lab, size: int, *, by_limit: bool) -> Try | None:
        change = self._change(size, by_limit=by_limit)
        name = f"stack-{size}" + ("" if by_limit else "-hook")
        tally = lab.tally(name, change)
        last = lab.last
        if not tally.outcomes or last is None:
            return None
        survives = tally.outcome == "survives"
        # A stack that is full is full, in whichever function of the recursion that is noticed.
        full = tally.crashed == len(tally.outcomes) and last.rule in RULES
        decided = tally.outcome == "same" or full or (survives and lab.is_known and len(tally.outcomes) >= lab.enough)
        experiment = Experiment(
            name=name,
            change=f"a stack of {size_text(size)}",
            predicts="it survives, or it is used up again",
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=outcome_of(tally),
            rule=self.rule,
            conclusive=decided,
        )
        of = None
        if tally.crashed and last.rule not in RULES and last.rule is not None:
            of = last.rule + (f", {last.where}" if last.where else "")
        return Try(size, experiment, survives, dict(last.measures), decided, "same" in tally.outcomes, of)

    # ------------------------------------------------------------ conclusions

    def _concluded(self, lab: Lab, tries: Sequence[Try], *, by_limit: bool) -> ExperimentResult:
        if not tries:
            return ExperimentResult(())
        rows = [_with(one.experiment, one.meaning) for one in tries]
        last = tries[-1]
        # What was stopped, because it took too long, has neither died nor lived.
        died = [one for one in tries if one.experiment.crashed]
        if last.survives and last.decided:
            below = max((one.size for one in died), default=self.size)
            needed, extra = self._needed(lab, last, below, by_limit=by_limit)
            rows += extra
            fixes = self._verified(lab, last, needed, by_limit=by_limit, rows=rows)
            proofs = self._proofs(lab, needed)
            fixes = (*fixes, *self._too_little(max((one.size for one in died), default=0)))
            return ExperimentResult(tuple(rows), proofs, fixes, evidence=self._why_not_small(proofs, needed))
        # What dies otherwise has got past it, and died of something else.
        if any(one.same and one.grew(self.size) is False for one in died):
            return ExperimentResult(tuple(rows), dict.fromkeys((self.rule, *self.shares), False))
        if not died or not all(one.grew(self.size) for one in died):
            return ExperimentResult(tuple(rows))
        # No size was enough: a frame that is too large would have fitted, a stack that is only small as well.
        proofs = dict.fromkeys((self.rule, *self.shares), False) | {_RECURSION: True}
        last = died[-1]
        filled = f"{size_text(last.size)} {'are' if len(died) == 1 else 'and less are'} filled too"
        claim = "how much stack it fills"
        if last.size < LARGEST:
            seen = (Evidence(claim=claim, seen=filled, where="experiments"),)
            return ExperimentResult(tuple(rows), {_RECURSION: True} if self.rule == _RECURSION else {}, evidence=seen)
        # One that ends still deeper would look the same.
        deep = last.depth
        beyond = f", or one beyond {deep}" if deep else ", or none that this reaches"
        rows[tries.index(last)] = _with(last.experiment, f"{last.meaning}: no size that was tried is enough")
        seen = (Evidence(claim=claim, seen=f"{filled}: the recursion has no end{beyond}", where="experiments"),)
        text = f"Find what should end {self.repeated}, and does not: {size_text(last.size)} of stack is not enough."
        if deep:
            text += f" If it must go deeper than {deep}, make it a loop."
        advice = Fix(text=text)
        return ExperimentResult(tuple(rows), proofs, (advice, *_refused(self.fix_texts)), evidence=seen)

    @property
    def repeated(self) -> str:
        """What repeats, by its name where that is known."""
        return f"`{self.repeats}`" if self.repeats else "the recursion"

    def _too_little(self, filled: int) -> list[Fix]:
        """Advice for a stack of at most the ``filled`` bytes, which also overflowed."""
        return _refused([fix for fix in self.fix_texts if 0 < _asked(fix) <= filled])

    def _proofs(self, lab: Lab, needed: int) -> dict[str, bool]:
        """Was a usual size enough, if ``needed`` bytes were?"""
        usual = needed <= _DEFAULT
        plain = lab.plain
        # What filled it was no ordinary chain of calls, and is as long as its data say.
        repeats = plain.get("depth", 0) * plain.get("per_level", 0) > plain.get("used", needed) / 2
        proofs = {self.rule: usual if self.rule == _SMALL else True}
        wrong = {
            _SMALL: not usual or (self.rule == _RECURSION and repeats),
            _RECURSION: self.largest > needed / 2 or (self.rule == _SMALL and usual),
            _LARGE: self.largest < needed / 2,
        }
        proofs |= dict.fromkeys((rival for rival in self.shares - {self.rule} if wrong[rival]), False)
        return proofs

    def _why_not_small(self, proofs: Mapping[str, bool], needed: int) -> tuple[Evidence, ...]:
        """Why a small stack is not the cause, although a larger one was enough."""
        if proofs.get(_SMALL) is not False:
            return ()
        seen = f"it needs {size_text(needed)}, more than the usual {size_text(_DEFAULT)}"
        if needed <= _DEFAULT:
            who = f"`{self.repeats}`" if self.repeats else "what fills it"
            filled = f"with more of them it fills the usual {size_text(_DEFAULT)} as well"
            seen = f"{who} goes as deep as its data require: {filled}"
        return (Evidence(claim="why it is more than a stack that is too small", seen=seen, where="experiments"),)

    def _needed(self, lab: Lab, fit: Try, below: int, *, by_limit: bool) -> tuple[int, list[Experiment]]:
        """The least size in bytes: the measured peak, or else by bisection."""
        peak = fit.measures.get("main_peak" if self.is_main else "peak")
        if self.is_main and peak and peak > below * 0.9:
            return int(peak), []
        low, high, rows = below, fit.size, []
        runs = crashed = 0
        # What a thread that lived to the end had used is a good guess, if it was the one.
        guesses = [int(peak * (1 + share)) for share in (-PRECISION / 2.5, PRECISION / 2.5)] if peak else []
        while high - low > PRECISION * high:
            guess = guesses.pop() if guesses else 0
            middle = (guess if low < guess < high else (low + high) // 2) // 4096 * 4096
            change = self._change(middle, by_limit=by_limit)
            trial = lab.run(f"stack-{middle}" + ("" if by_limit else "-hook"), change)
            full = trial is not None and trial.outcome == "another" and trial.rule in RULES
            if trial is None or (trial.outcome not in {"survives", "same"} and not full):
                break
            runs, crashed = runs + 1, crashed + (trial.outcome != "survives")
            low, high = (low, middle) if trial.outcome == "survives" else (middle, high)
        rows.append(
            Experiment(
                name="stack-bisected",
                change=f"stacks between {size_text(below)} and {size_text(fit.size)}, by halves",
                predicts="it survives from one size on",
                runs=runs,
                crashed=crashed,
                outcome=f"it needs between {size_text(low)} and {size_text(high)}",
                rule=self.rule,
                conclusive=high - low <= PRECISION * high,
            )
        )
        return high, rows

    def _verified(self, lab: Lab, fit: Try, needed: int, *, by_limit: bool, rows: list[Experiment]) -> tuple[Fix, ...]:
        """Try the size to use until it counts as enough."""
        wanted = min(LARGEST, -(-int(needed * HEADROOM) // (1 << 20)) * (1 << 20))
        one = self._try(lab, wanted, by_limit=by_limit)
        # Where the budget ends here, what it has lived with is known to be enough.
        lived = (self._advice(fit.size, "It lived with that. It only moves the limit.", by_limit=by_limit),)
        if one is None:
            return lived
        enough = f"the {size_text(needed)} that it needs, and at least a quarter more"
        row = _with(one.experiment, enough if one.survives else one.meaning)
        known = next((place for place, before in enumerate(rows) if before.name == row.name), None)
        if known is None:
            rows.append(row)
        elif one.survives:
            # It was one of the first sizes, and is not run again.
            rows[known] = _with(rows[known], f"the stack was too small; this is {enough}")
        if not one.decided:
            return lived if one.survives else ()
        room = f"It needs {size_text(needed)}; {size_text(wanted)} is at least a quarter more. It only moves the limit."
        return (msgspec.structs.replace(self._advice(wanted, room, by_limit=by_limit), verified=one.survives),)

    def _advice(self, wanted: int, room: str, *, by_limit: bool) -> Fix:
        """Give this thread ``wanted`` bytes of stack, with which it survived."""
        if self.is_main:
            fix = Fix(text=f"Start it with a stack of {size_text(wanted)}. {room}", command=f"ulimit -s {wanted >> 10}")
        elif by_limit:
            each = "Every thread without a size of its own takes as much address space."
            text = f"Start it with a limit of {size_text(wanted)}, which its threads take over. {room} {each}"
            fix = Fix(text=text, command=f"ulimit -s {wanted >> 10}")
        elif self.by_python:
            each = "Every thread made after it takes as much address space."
            text = f"Set a thread stack size of {size_text(wanted)} before this thread starts. {room} {each}"
            fix = Fix(text=text, command=f"threading.stack_size({wanted >> 20} << 20)")
        else:
            # What the hook did from outside, the code that makes the thread has to do.
            text = f"Where native code makes this thread, let it ask for {size_text(wanted)} of stack. {room}"
            fix = Fix(text=text, command=f"pthread_attr_setstacksize(&attributes, {wanted >> 20} << 20)")
        return msgspec.structs.replace(fix, verified=True)


def study(crash: Crash, rules: Sequence[str], verdict: Diagnosis | None = None) -> StackStudy | None:
    """The study of the crashed thread's stack, or None if its size is unknown; it may refute ``verdict``'s advice."""
    thread = crash.crashed_thread
    stack = thread.stack if thread is not None else None
    if thread is None or stack is None or not stack.size:
        return None
    is_main = stack.is_main or thread.tid == crash.pid
    fixes = verdict.fixes if verdict is not None else ()
    larger = tuple(fix for fix in fixes if (fix.command or "").startswith(("ulimit -s", "threading.stack_size(")))
    frame = max(thread.largest, key=lambda one: one.stack_bytes or 0, default=None)
    largest, function = (frame.stack_bytes or 0, frame.function) if frame is not None else (0, None)
    fold = max(thread.folds or (), key=lambda one: one.period * one.times, default=None)
    culprit = verdict.culprit if verdict is not None else None
    return StackStudy(
        rules[0],
        frozenset(rules[1:]),
        is_main,
        stack.size,
        larger,
        largest,
        function,
        stack.used or 0,
        by_python=any((frame.source or "").endswith("threading.py") for frame in thread.python or ()),
        repeats=_name(fold, culprit) if fold is not None else None,
    )


def _name(fold: Fold, culprit: Culprit | None) -> str | None:
    """The recursive function: a Python function on its way, which can end the recursion, or else the verdict's.

    The innermost function at the end of the stack is chance.
    """
    python = next((frame.function for frame in fold.python if frame.function), None)
    blamed = culprit.function if culprit is not None and culprit.function in fold.functions else None
    return python or blamed or min(fold.functions, default=None)


def _asked(fix: Fix) -> int:
    match = re.fullmatch(r"ulimit -s (?P<kib>\d+)|threading\.stack_size\((?P<mib>\d+) << 20\)", fix.command or "")
    if match is None:
        return 0
    return int(match["kib"]) << 10 if match["kib"] else int(match["mib"]) << 20


def _with(experiment: Experiment, means: str) -> Experiment:
    return msgspec.structs.replace(experiment, means=means or None)


def _refused(fixes: Sequence[Fix]) -> list[Fix]:
    return [msgspec.structs.replace(fix, verified=False) for fix in fixes]
