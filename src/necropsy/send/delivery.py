"""Sends items in batches, waits where the receiver asks for it, and says what is left.

Retried are 429 and 503, never another answer of 4xx. After 413 the batches are made smaller, down to one item in its
smallest form. Any other failure ends the delivery: what has not been sent stays for the next time.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from necropsy.send.http_post import Answer, NotSentError, post
from necropsy.send.items import Item
from necropsy.send.receivers import Receiver

_LATER = frozenset({429, 503})
_TOO_LARGE = 413


@dataclass(frozen=True)
class Patience:
    """How long a receiver is waited for, in seconds: for a step, for a request, before it is asked again."""

    step_s: float = 5.0
    request_s: float = 15.0
    tries: int = 4
    first_wait_s: float = 1.0
    waits_s: float = 60.0
    """Altogether; a receiver that asks for a longer wait is left until the next `necropsy send`."""


@dataclass(frozen=True)
class Outcome:
    """``problem``: why something was not sent, in words; None where all was."""

    sent: tuple[Item, ...]
    unsent: tuple[Item, ...]
    problem: str | None


@dataclass
class _Clock:
    left_s: float
    sleep: Callable[[float], None]

    def wait(self, seconds: float) -> bool:
        """Wait, unless it is too long."""
        if seconds > self.left_s:
            return False
        self.left_s -= seconds
        self.sleep(seconds)
        return True


def deliver(
    items: Sequence[Item],
    receiver: Receiver,
    *,
    patience: Patience = Patience(),
    when_sent: Callable[[Sequence[Item]], None] = lambda _items: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Send all items. ``when_sent`` is called after each batch that the receiver has taken."""
    waiting = [tuple(items[at : at + receiver.most]) for at in range(0, len(items), receiver.most)]
    clock = _Clock(patience.waits_s, sleep)
    sent: list[Item] = []
    too_large: list[Item] = []
    complaints: list[str] = []
    while waiting:
        batch = waiting.pop(0)
        try:
            answer = _tried(batch, receiver, patience, clock)
        except NotSentError as error:
            return Outcome(tuple(sent), _left(too_large, batch, waiting), str(error))
        if 200 <= answer.status < 300:
            sent += batch
            when_sent(batch)
            complaint = receiver.judge(answer.body)
            complaints += [complaint] if complaint is not None else []
        elif answer.status == _TOO_LARGE and len(batch) > 1:
            half = len(batch) // 2
            waiting[:0] = [batch[:half], batch[half:]]
        elif answer.status == _TOO_LARGE:
            too_large += batch
        else:
            return Outcome(tuple(sent), _left(too_large, batch, waiting), _said(answer))
    if too_large:
        complaints.append("too large for it even in the smallest form (413)")
    return Outcome(tuple(sent), tuple(too_large), "; ".join(dict.fromkeys(complaints)) or None)


def _left(too_large: Sequence[Item], batch: Sequence[Item], waiting: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    return (*too_large, *batch, *(one for each in waiting for one in each))


def _tried(batch: Sequence[Item], receiver: Receiver, patience: Patience, clock: _Clock) -> Answer:
    """The last answer: after waits where it said so, and for a single item that is too large, after its lean form."""
    answer = _asked(receiver.write(batch, lean=False), receiver, patience, clock)
    if answer.status == _TOO_LARGE and len(batch) == 1:
        return _asked(receiver.write(batch, lean=True), receiver, patience, clock)
    return answer


def _asked(body: bytes, receiver: Receiver, patience: Patience, clock: _Clock) -> Answer:
    wait = patience.first_wait_s
    for last in [False] * (patience.tries - 1) + [True]:
        answer = post(receiver.url, receiver.headers, body, timeout_s=patience.step_s, whole_s=patience.request_s)
        if answer.status not in _LATER or last:
            break
        asked = seconds_of(answer.retry_after)
        if not clock.wait(wait if asked is None else asked):
            break
        wait *= 2
    return answer


def seconds_of(retry_after: str | None) -> float | None:
    """How long to wait by a ``Retry-After``, in seconds or as a date; None where it does not say."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max((when - datetime.now(timezone.utc)).total_seconds(), 0.0)


def _said(answer: Answer) -> str:
    text = f"it answers {answer.status}" + (f" ({answer.reason})" if answer.reason else "")
    if answer.status in _LATER:
        asked = seconds_of(answer.retry_after)
        return text + (f" and asks to wait {asked:.0f} s" if asked is not None else "")
    if answer.status in {401, 403}:
        return f"{text}: check the key or the headers"
    return f"{text}: check the address" if answer.status in {404, 405} else text
