"""Visual Studio: the exception at which the debugger stopped, and its call stack window.

Formats: Microsoft Learn, *Use the Call Stack window*, *Exception Helper*; python/cpython and PTVS threads
(microsoft/PTVS#4947, explosion/spaCy#2129, mhammond/pywin32#401). Process Explorer writes its stacks the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace, disassembly
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import (
    ABORTED,
    CPP_EXCEPTION,
    FAST_FAIL,
    HEAP_CORRUPTION,
    STACK_OVERFLOW,
    crashed_thread,
    end_of,
    ends_in_abort,
    fault_of,
    is_status,
)
from necropsy.lazy_re import regex
from necropsy.model import Address, CppException, Crash, Environment, Frame, Instruction, Message, Stack

KIND = "visual-studio"
_REACH = 1500
_WIDEST = 2000
_GAP = 40

_STOPPED = regex(
    r"0x(?P<at>[0-9A-Fa-f]{8,16}) ?(?:\((?P<module>[^()]{1,120})\))?(?P<between>.{0,100}?)"
    r"(?:0x(?P<code>[0-9A-Fa-f]{8})\b|(?P<cpp>Microsoft C\+\+ exception: (?P<type>[^:\s]+(?:::[^:\s]+)*))|"
    r"(?P<words>Fatal program exit|Stack cookie instrumentation|An invalid parameter was passed|"
    r"RangeChecks instrumentation|Indirect call guard check))(?P<rest>.{0,300})"
)
_PROGRAM = regex(r"(?P<program>[\w.+-]{1,80}\.exe)")
_LOCATION = regex(r"0x(?P<address>[0-9A-Fa-f]{8,16})")
_ROW = regex(
    r"\s{0,8}(?:>|&gt;)?\s{0,8}(?:\[Inline Frame\] )?(?P<module>[\w.+ -]{1,120}?\.(?:dll|exe|pyd|ocx|drv|sys))\\?!"
    r"(?P<rest>\S.{0,1500})$"
)
_TAIL = regex(
    r"(?:\s{1,4}(?:Line|Zeile|Ligne|L[ií]nea|Linha|Riga|Строка|行) ?(?P<line>\d{1,7}))?"
    r"(?: ?\+ ?0x(?P<offset>[0-9a-f]{1,8})(?: bytes)?)?"
    r"(?:\s{1,40}(?:C\+\+|C#|C|Unknown|Unbekannt|Inconnu|Desconocido|未知|不明|Python|Cython|Rust|Assembly))?\s{0,10}$"
)
_NAMELESS = regex(r"\[?(?:Frames below|[0-9a-fA-F]{8,16})\]?(?:\(\))?")
_DISASSEMBLY = regex(r"\s{0,4}(?:->)?(?P<address>[0-9A-F]{8,16})  (?P<text>[a-z][a-z0-9]{1,15}(?:\s.{1,120})?)$")
_REGISTER = regex(r"\b(?P<name>R(?:AX|BX|CX|DX|SI|DI|SP|BP|IP|\d{1,2})) = (?P<value>[0-9A-F]{16})\b")
_ENDED = regex(
    r"The program '\[(?P<pid>\d{1,10})\] (?P<program>[^']{1,100})' has exited with code -?\d{1,10} "
    r"\(0x(?P<code>[0-9a-f]{1,8})\)"
)
_SUBCODES = {
    "Fatal program exit": 7,
    "Stack cookie instrumentation": 2,
    "An invalid parameter was passed": 5,
    "RangeChecks instrumentation": 8,
    "Indirect call guard check": 10,
}
"""What the debugger writes instead of 0xC0000409: the meaning of its subcode."""
_READING = regex(r"reading|Lesen|lecture|lectura|leitura|lettura|чтени|读取|讀取|読み", re.IGNORECASE)
_WRITING = regex(r"writing|Schreiben|.criture|escritura|grava|scrittura|запис|写入|寫入|書き込", re.IGNORECASE)
_EXECUTING = regex(r"executing|Ausf.hren|ex.cution|ejecu|execu|esecuzione|выполнен|执行|執行|実行", re.IGNORECASE)
_THROWN_ONLY = ("Exception thrown at", "First-chance exception", "Ausnahme ausgelöst", "Exception levée", "引发的异常")
_WORDS = regex(
    r"nhandled exception|Exception thrown at|First-chance exception|Ausnahme|[Ee]xception (?:non g|lev)|[Ee]xcepci|"
    r"异常|例外|[Ии]сключени"
)


@dataclass
class _Stop:
    first: int
    last: int
    code: int | None = None
    subcode: int | None = None
    said: str = ""
    parameters: tuple[int, ...] = ()
    address: int | None = None
    module: str | None = None
    program: str | None = None
    pid: int | None = None
    type: str | None = None
    frames: list[Frame] = field(default_factory=list)
    instruction: str | None = None
    registers: dict[str, int] = field(default_factory=dict)
    message: Message | None = None


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The stop around a line that holds a trigger."""
    stop = _Stop(index, index)
    for at in range(index, min(len(lines), index + _REACH)):
        text = lines[at].text[:_WIDEST]
        if at > index and stop.code is not None and _WORDS.search(text) and _STOPPED.search(text):
            break
        if _take(stop, lines[at], text, at):
            stop.last = at
        elif at - stop.last > _GAP:
            break
    crash = _crash(stop)
    return TextReport(KIND, lines[stop.first].number, lines[stop.last].number, crash) if crash is not None else None


def _take(stop: _Stop, line: Line, text: str, at: int) -> bool:
    if "!" in text and (match := _ROW.match(text)):
        stop.frames.append(_frame(match, len(stop.frames)))
        return True
    if "0x" in text and _WORDS.search(text) and (match := _STOPPED.search(text)):
        return _stopped(stop, line, text, match)
    if "has exited with code" in text and (match := _ENDED.search(text)):
        stop.pid, stop.program = int(match["pid"]), match["program"]
        code = int(match["code"], 16)
        if stop.code is None and is_status(code):
            stop.code, stop.said = code, match[0]
        return True
    if stop.address is not None and (match := _DISASSEMBLY.match(text)):
        if int(match["address"], 16) == stop.address:
            stop.instruction = match["text"]
        return True
    if " = " in text and (found := _REGISTER.findall(text)):
        stop.registers |= {name.lower(): int(value, 16) for name, value in found}
        return True
    return text.strip() == "[External Code]" and at > stop.first


def _stopped(stop: _Stop, line: Line, text: str, match: re.Match[str]) -> bool:
    """The line of the exception; one that C++ only threw may have been caught."""
    thrown = any(word in text for word in _THROWN_ONLY)
    code, subcode = (int(match["code"], 16) if match["code"] else None), None
    if match["words"]:
        code, subcode = FAST_FAIL, _SUBCODES[match["words"]]
    elif match["cpp"]:
        code = CPP_EXCEPTION
    if code is None or not is_status(code) or (thrown and fault_of(code) is None and code != HEAP_CORRUPTION):
        return False
    if code == FAST_FAIL and subcode is None:
        subcode = next((value for words, value in _SUBCODES.items() if words in match["rest"]), None)
    rest = match["rest"]
    access = next(
        (value for value, words in ((8, _EXECUTING), (0, _READING), (1, _WRITING)) if words.search(rest)), None
    )
    location = _LOCATION.search(rest)
    program = _PROGRAM.search(match["between"]) or _PROGRAM.search(text[match.end("at") :])
    stop.code, stop.subcode, stop.said = code, subcode, match[0].strip()[:300]
    stop.parameters = (access, int(location["address"], 16)) if access is not None and location else ()
    stop.address, stop.module = int(match["at"], 16), match["module"]
    stop.program = program["program"] if program else stop.program
    stop.type = match["type"]
    if stop.type is not None:
        where = f"log line {line.number}"
        fields = {"type": stop.type}
        stop.message = Message(kind="cpp-terminate", text=stop.said, where=where, line=line.number, fields=fields)
    return True


def _frame(match: re.Match[str], place: int) -> Frame:
    text = match["rest"].replace("\\_", "_").rstrip()
    tail = next((found for found in _TAIL.finditer(text) if found.end() == len(text)), None)
    function = text[: tail.start()].strip() if tail is not None else text
    nameless = _NAMELESS.fullmatch(function)
    address = backtrace.hexadecimal(function.removesuffix("()")) if nameless else None
    return backtrace.native(
        place,
        None if nameless else function,
        module=match["module"].strip(),
        line=backtrace.number(tail["line"]) if tail is not None else None,
        address=address,
    )


# ---------------------------------------------------------------- stop -> crash


def _crash(stop: _Stop) -> Crash | None:
    environment = Environment(platform="Windows", executable=stop.program)
    if stop.code is None:
        if len(stop.frames) < 3:
            return None
        ended = ends_in_abort(stop.frames)
        return Crash(
            exit=end_of(FAST_FAIL, "the stack ends in abort()", ABORTED) if ended else None,
            threads=(backtrace.thread(stop.frames, crashed=ended),),
            environment=environment,
        )
    frames = stop.frames or _place(stop)
    stack = Stack(guard_hit=True) if stop.code == STACK_OVERFLOW else None
    thread = backtrace.thread(frames, crashed=True, stack=stack) if stop.frames else crashed_thread(stop.code, frames)
    return Crash(
        pid=stop.pid,
        exit=end_of(stop.code, stop.said, stop.subcode),
        fault=fault_of(stop.code, stop.parameters),
        threads=(thread,) if thread is not None else None,
        registers={name: Address(value) for name, value in stop.registers.items()} or None,
        instruction=_instruction(stop),
        messages=(stop.message,) if stop.message is not None else None,
        cpp_exception=CppException(type=stop.type, where="the debugger") if stop.type is not None else None,
        environment=environment,
    )


def _place(stop: _Stop) -> list[Frame]:
    if stop.address is None:
        return []
    module = stop.module if stop.module and "." in stop.module else None
    return [backtrace.native(0, None, module=module, address=stop.address)]


def _instruction(stop: _Stop) -> Instruction | None:
    if stop.instruction is None or stop.address is None:
        return None
    text = re.sub(r"\b([0-9][0-9A-Fa-f]{0,15})h\b", r"0x\1", stop.instruction)
    return disassembly.instruction(stop.address, text, stop.registers)


READER = TextReader(
    kind=KIND,
    triggers=(
        "nhandled exception at 0x",
        "xception thrown at 0x",
        "irst-chance exception at 0x",
        ".dll!",
        ".pyd!",
        ".exe!",
        ".dll\\!",
        ".pyd\\!",
        "' has exited with code ",
        "0xC0000005: ",
        "0xC0000005:",
        "0xC0000005 :",
        "0xC0000409:",
        "0xC00000FD:",
        "0xC0000374:",
        "0xC0000094:",
        "0xC000001D:",
    ),
    read=read,
    reach=_REACH,
)
