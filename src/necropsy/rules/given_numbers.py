"""A number that the user's own line passed, and that native code then used as an address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Fix

NO_ADDRESS = 4 << 20
"""Bytes: below it neither a program (0x400000 where it is not position-independent) nor its heap is ever mapped."""
_LEAST = 256
"""A smaller number of a Python frame is equal by chance too often. What was passed in the call itself counts from 1."""


@dataclass(frozen=True)
class GivenNumber:
    """``name`` as the user's line has it: ``argument 2`` of a call, or the variable ``x``."""

    name: str
    value: int
    line: str | None
    """``train.py:12``, where it is known."""
    through_ctypes: bool

    @property
    def in_words(self) -> str:
        """The end of a sentence about who used it."""
        what = f"{self.name} of the call" if self.through_ctypes else f"the value of `{self.name}`"
        at = f" in {self.line}" if self.line is not None else ""
        return f"through the number {self.value:,}, which is not an address: it is {what}{at}"

    @property
    def cure(self) -> Fix:
        """What to pass in its place."""
        at = f" in {self.line}" if self.line is not None else ""
        if self.through_ctypes:
            return Fix(
                text=f"Pass an address as {self.name}{at}: ctypes passes a Python int as a plain number. For text pass bytes, "
                "for memory to fill `ctypes.create_string_buffer(n)`, for one variable `ctypes.byref(x)`."
            )
        return Fix(
            text=f"Look at `{self.name}`{at}: it is a number, and was used as an address. Pass the object or the buffer itself."
        )


def given_number(crash: Crash, pointer: int | None) -> GivenNumber | None:
    """The number that was used as a pointer, if the user's line passed it or has it in a variable.

    Only numbers that cannot be an address in any Linux or Windows program count; others may be invalidated pointers.
    """
    if pointer is None or not 0 < pointer < NO_ADDRESS:
        return None
    return next((one for one in _given(crash) if one.value == pointer), None)


def _given(crash: Crash) -> Iterator[GivenNumber]:
    thread = crash.crashed_thread
    own = next((one for one in (thread.python if thread is not None else None) or () if one.owner == "script"), None)
    line = f"{file_name(own.source)}:{own.line}" if own is not None and own.source and own.line else None
    call = crash.call
    if call is not None and call.library == "ctypes":
        for argument in call.arguments:
            if argument.type == "int" and (value := _whole(argument.value)) is not None:
                yield GivenNumber(argument.name, value, line, through_ctypes=True)
    for variable in (own.values if own is not None else None) or ():
        value = _whole(variable.value) if variable.type == "int" else None
        if value is not None and value >= _LEAST:
            yield GivenNumber(variable.name, value, line, through_ctypes=False)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
