"""The frames of gdb's ``bt``, as pstack, gstack and crash reporters print them too.

::

    #0  0x00007ffff75d88a8 in null_write (p=0x0, v=3) at op.cc:21
    #1  op::Even(int) () from ./libop.so
    #6  _ctypes_callproc (pProc=0x7ffff75d8833 <null_member(int)>, flags=<optimized out>)
        at Modules/_ctypes/callproc.c:1262
    #7  <signal handler called>

gdb breaks long frames into lines that are indented by four; ``bt full`` indents local variables by eight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.lazy_re import regex
from necropsy.model import Frame

_FRAME = regex(
    r"(?P<indent>[\s>|]{0,16})#(?P<index>\d{1,9})\s{1,4}(?:(?P<address>0x[0-9a-fA-F]{1,16}) in )?(?P<rest>[^\s#].*)"
)
_HANDLER = regex(r"[\s>|]{0,16}#(?P<index>\d{1,9})\s{1,4}<signal handler called>")
_PLACE = regex(r"at (?P<source>.+):(?P<line>\d{1,9})$")
_OBJECT = regex(r"from (?P<module>\S.*)$")
_PYTHON = regex(
    r"Frame 0x[0-9a-f]+, for file (?P<file>[^,\n]{1,500}), line (?P<line>\d{1,9}), in (?P<function>[^\s(]{1,200})"
)
_TEXTS = regex(r'(?P<name>\w+)=(?:\w+@entry=)?(?:0x[0-9a-f]+ )?(?:<[^<>]{0,200}> )?"(?P<text>(?:[^"\\]|\\.){0,400})')
_UNREADABLE = regex(r"=<error reading variable[^>]{0,80}Cannot access memory at address (?P<address>0x[0-9a-f]+)>")
_NUMBER = regex(r"(?P<name>\w+)=(?:\w+@entry=)?(?P<value>\d{1,9})(?=[,)])")
_MORE_LINES = 24
"""Lines over which one frame may be broken."""


@dataclass(frozen=True)
class Printed:
    """One frame, the other facts of its line, and the position of its last line.

    ``sure``: only gdb prints such a line. ``handler``: a signal handler was called here. ``unreadable``: the address of
    a local variable at which there is no memory.
    """

    frame: Frame
    last: int
    sure: bool
    handler: bool = False
    python: Frame | None = None
    texts: dict[str, str] | None = None
    numbers: dict[str, int] | None = None
    unreadable: int | None = None


def frame_at(lines: Sequence[Line], at: int) -> Printed | None:
    """The frame whose first line is ``lines[at]``, with the lines on which it goes on."""
    text = lines[at].text[: backtrace.LONGEST]
    if "#" not in text:
        return None
    if match := _HANDLER.match(text):
        frame = backtrace.native(int(match["index"]), "<signal handler called>")
        return Printed(frame, at, sure=True, handler=True)
    match = _FRAME.match(text)
    if match is None:
        return None
    rest, last = _whole(lines, at, match["rest"], len(match["indent"]))
    return parsed(int(match["index"]), match["address"], rest, last)


def parsed(index: int, address: str | None, rest: str, last: int) -> Printed | None:
    """The frame of ``f (x=1) at file.cc:12``; None where it is nobody's call."""
    head, source, line, module = _tail(rest)
    called = backtrace.call(head)
    if called.arguments is None and address is None:
        return None
    in_python = _PYTHON.search(rest)
    unreadable = _UNREADABLE.search(rest)
    return Printed(
        frame=backtrace.native(
            index,
            called.function,
            module=module,
            source=source,
            line=line,
            address=backtrace.hexadecimal(address),
            arguments=backtrace.pointers(called.arguments),
        ),
        last=last,
        sure=address is not None or source is not None or module is not None,
        python=None
        if in_python is None
        else backtrace.python(index, in_python["function"], in_python["file"], int(in_python["line"])),
        texts={one["name"]: one["text"] for one in _TEXTS.finditer(called.arguments or "")},
        numbers={one["name"]: int(one["value"]) for one in _NUMBER.finditer(called.arguments or "")},
        unreadable=backtrace.hexadecimal(unreadable["address"]) if unreadable else None,
    )


def _whole(lines: Sequence[Line], at: int, rest: str, indent: int) -> tuple[str, int]:
    text, last = rest.rstrip(), at
    for position in range(at + 1, min(len(lines), at + 1 + _MORE_LINES)):
        row = lines[position].text
        bare = backtrace.bare(row)
        deeper = len(row) - len(row.lstrip(" \t>|")) - indent
        wrapped = deeper == 4 and not bare.startswith("#")
        open_call = text.count("(") > text.count(")") and deeper <= 4
        follows = bare.startswith(("at ", "from ")) and _tail(text)[1:] == (None, None, None)
        if not bare or bare.startswith("#") or not (wrapped or open_call or follows) or len(text) > backtrace.LONGEST:
            break
        text, last = f"{text} {bare}", position
    return text, last


def _tail(text: str) -> tuple[str, str | None, int | None, str | None]:
    """The call, its source file and line, and its object."""
    at, of = text.rfind(") at "), text.rfind(") from ")
    if at > of and (match := _PLACE.match(text, at + 2)):
        return text[: at + 1], match["source"], int(match["line"]), None
    if of >= 0 and (match := _OBJECT.match(text, of + 2)):
        return text[: of + 1], None, None, match["module"]
    return text, None, None, None
