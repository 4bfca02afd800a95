"""The stacks that Open MPI and UCX print when a rank gets a signal that kills it.

::

    [gpu39:32804] *** Process received signal ***
    [gpu39:32804] Signal: Segmentation fault (11)
    [gpu39:32804] Signal code: Address not mapped (1)
    [gpu39:32804] Failing at address: 0x12
    [gpu39:32804] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3ef20)[0x15222b72ef20]

    [8d6bf97c3bf4:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)
    ==== backtrace (tid:   3095) ====
     0 0x0000000000043090 killpg()  ???:0

opal/util/stacktrace.c of Open MPI 1.4 to 5; src/ucs/debug/debug.c of UCX 1.2 to 1.18.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.signal_codes import SENT, WITH_ADDRESS, code_in, code_name
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Frame

REACH = 1200
_HEAD_LINES = 60
_OWNER = re.compile(r"[\s>]{0,16}\[(?P<host>[^\[\]:\s]{1,255}):(?P<pid>\d{1,10})\] ?(?P<rest>.*)$")
_SIGNAL = re.compile(r"Signal: (?P<words>[^(]{0,80}?) ?\((?P<number>\d{1,2})\)")
_CODE = re.compile(r"Signal code: (?P<words>[^(]{0,80}?) ?\((?P<number>-?\d{1,3})\)")
_ADDRESS = re.compile(r"Failing at address: (?P<address>0x[0-9a-f]+|\(nil\))")
_RECEIVED = "*** Process received signal ***"
_END = "*** End of error message ***"
_CAUGHT = re.compile(
    r"\[(?P<host>[^\[\]:\s]{1,255}):(?P<pid>\d{1,10}) ?:\d+(?::(?P<tid>\d{1,10}))?\] Caught signal (?P<number>\d{1,2}) "
    r"\((?P<name>[^:()]{1,80})(?:: (?P<words>[^()]{1,120}?)(?: at address (?P<address>0x[0-9a-f]+|\(nil\)))?)?\)"
)
_BACKTRACE = re.compile(r"==== backtrace(?: \(tid: *(?P<tid>\d+)\))? ====")
_NUMBERED = re.compile(
    r"[\s>]{0,8}(?P<index>\d{1,4}) {1,2}(?P<address>0x[0-9a-f]{4,16}) (?P<function>\S.*?)  "
    r"(?P<source>\S.*):(?P<line>\d{1,9})$"
)


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    text = lines[index].text[: backtrace.LONGEST]
    if _RECEIVED in text:
        return _open_mpi(lines, index)
    caught = _CAUGHT.search(text)
    if caught is not None or _BACKTRACE.search(text):
        return _ucx(lines, index, caught)
    return None


# ---------------------------------------------------------------- Open MPI


def _open_mpi(lines: Sequence[Line], index: int) -> TextReport | None:
    head = _OWNER.match(lines[index].text[: backtrace.LONGEST])
    if head is None:
        return None
    signal = code = None
    address: int | None = None
    frames: list[Frame] = []
    last = index
    for at in range(index + 1, min(len(lines), index + REACH)):
        own = _OWNER.match(lines[at].text[: backtrace.LONGEST])
        if own is None or own["pid"] != head["pid"] or own["host"] != head["host"]:
            if at - last > _HEAD_LINES:
                break
            continue  # several ranks write at once
        rest = own["rest"]
        last = at
        if _END in rest or _RECEIVED in rest:
            last = at if _END in rest else at - 1
            break
        if match := _SIGNAL.match(rest):
            signal = signal_name(int(match["number"]))
        elif match := _CODE.match(rest):
            code = _code(signal, match["words"], int(match["number"]))
        elif match := _ADDRESS.match(rest):
            address = backtrace.number(match["address"])
        elif (frame := frame_lines.symbols_line(rest, len(frames))) is not None:
            frames.append(frame)
    if signal is None:
        return None
    crash = frame_lines.crash(
        frame_lines.without_handler(frames),
        fault=frame_lines.fault(
            signal, code=code, address=address if signal in WITH_ADDRESS and code not in SENT else None
        ),
        pid=int(head["pid"]),
    )
    return TextReport("open-mpi", lines[index].number, lines[last].number, crash)


def _code(signal: str | None, words: str, number: int) -> str | None:
    return code_in(words) or (code_name(signal, number) if signal else None)


# ---------------------------------------------------------------- UCX


def _ucx(lines: Sequence[Line], index: int, caught: re.Match[str] | None) -> TextReport | None:
    tid: str | None = caught["tid"] if caught else None
    start = index
    for at in range(index, min(len(lines), index + _HEAD_LINES)):
        match = _BACKTRACE.search(lines[at].text[: backtrace.LONGEST])
        if match is not None:
            tid, start = match["tid"] or tid, at
            break
        if at > index and _CAUGHT.search(lines[at].text[: backtrace.LONGEST]):
            break
    frames, end, _ = frame_lines.block(lines, start + 1, (_ucx_frame, frame_lines.symbols_line))
    if caught is None and not frames:
        return None
    fault = None
    if caught is not None:
        signal = signal_name(int(caught["number"]))
        address = backtrace.number(caught["address"]) if caught["address"] else None
        fault = frame_lines.fault(signal, code=code_in(caught["words"] or ""), address=address)
    crash = frame_lines.crash(
        frame_lines.without_handler(frames),
        fault=fault,
        pid=int(caught["pid"]) if caught else None,
        tid=int(tid) if tid else None,
    )
    last = end - 1 if frames else start
    return TextReport("open-mpi", lines[index].number, lines[last].number, crash)


def _ucx_frame(text: str, count: int) -> Frame | None:
    """`` 2 0x000000000007587d ncclGroupEnd()  ???:0``; the number is the place in its library."""
    match = _NUMBERED.match(text)
    if match is None:
        return None
    source, line = match["source"], int(match["line"])
    module = source if line == 0 and "?" not in source else None
    known = module is None and "?" not in source
    return backtrace.native(
        count,
        match["function"].removesuffix("()"),
        module=module,
        source=source if known else None,
        line=line if known else None,
        offset=backtrace.hexadecimal(match["address"]),
    )


READER = TextReader(
    kind="open-mpi",
    triggers=(_RECEIVED, "] Caught signal ", "==== backtrace"),
    read=_read,
    reach=REACH,
)
