"""Goes through the steps of a pass: one after the other, or some at the same time.

With lanes, the next candidates run before the first is decided, as if that was refused: most are. Where it is accepted
instead, they are given up, and the pass is begun anew with the answers so far. So the result is the same as without.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from necropsy.reduce.lanes import Lanes, Running
from necropsy.reduce.program import Pass, Program, Steps
from necropsy.reduce.trials import Trials


def accepted_programs(
    make: Pass, program: Program, trials: Trials, lanes: Lanes | None, remembered: set[object]
) -> Iterator[Program]:
    """Each program of a pass that is accepted. ``remembered``: what passes note of candidates that were refused."""
    if lanes is None:
        return _one_by_one(make, program, trials)
    return _ahead(make, program, trials, lanes, remembered)


def _one_by_one(make: Pass, program: Program, trials: Trials) -> Iterator[Program]:
    steps = make(program)
    with contextlib.suppress(StopIteration):
        candidate = next(steps)
        while True:
            accepted = trials.accepts(candidate, program)
            if accepted:
                program = candidate
                yield program
            candidate = steps.send(accepted)


def _ahead(make: Pass, program: Program, trials: Trials, lanes: Lanes, remembered: set[object]) -> Iterator[Program]:
    begin, before = program, set(remembered)
    steps = make(program)
    answers: list[bool] = []
    pending: deque[tuple[Program, Running | None]] = deque()
    next_answer: bool | None = None
    has_ended = False
    try:
        while True:
            # After one that was accepted the next one often is, too.
            wanted = 1 if answers and answers[-1] else lanes.count
            while not has_ended and len(pending) < wanted:
                try:
                    candidate = next(steps) if next_answer is None else steps.send(next_answer)
                except StopIteration:
                    has_ended = True
                    break
                next_answer = False
                pending.append((candidate, trials.started(candidate, program, lanes)))
            if not pending:
                return
            candidate, running = pending.popleft()
            answers.append(trials.decided(candidate, program, running))
            if not answers[-1]:
                continue
            program = candidate
            yield program
            if pending or has_ended:
                _give_up(pending)
                remembered.clear()
                remembered.update(before)
                steps = _repeated(make(begin), answers[:-1])
                has_ended = False
            next_answer = True
    finally:
        _give_up(pending)


def _repeated(steps: Steps, answers: Sequence[bool]) -> Steps:
    """The pass after these answers."""
    next(steps)
    for answer in answers:
        steps.send(answer)
    return steps


def _give_up(pending: deque[tuple[Program, Running | None]]) -> None:
    while pending:
        _, running = pending.popleft()
        if running is not None:
            running.give_up()
