"""Message boxes of Windows and Microsoft's C runtime (Ctrl+C copies a box's text).

Texts: the message table of ntdll.dll (``FormatMessage`` of the statuses), Microsoft Learn's *C runtime errors R6002 to
R6035*, *assert*, *_CrtDbgReport*, *Run-time error checks*. Hard errors in other languages keep the numbers and the
words *read* and *written*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import ACCESS_VIOLATION, access_named, crashed_thread, end_of, fault_of, is_status
from necropsy.lazy_re import regex
from necropsy.model import Crash, Environment, Message

KIND = "windows-dialog"
_BOX = 14
"""Lines of one box."""
_WIDEST = 2000

_REFERENCED = regex(
    r"0x(?P<at>[0-9A-Fa-f]{8,16})[\"”»]?\W?.{1,60}?[\"“«]?0x(?P<address>[0-9A-Fa-f]{8,16})[\"”»]?.{1,80}?"
    r"\b(?P<access>read|written|write|executed)\b"
)
_OCCURRED = regex(
    r"\(0x(?P<code>[0-9A-Fa-f]{8})\) occurred in the application at location (?:0x)?(?P<at>[0-9A-Fa-f]{8,16})"
)
_NOT_STARTED = regex(r"\(0x(?P<code>[cC]0[0-9A-Fa-f]{6})\)")
_ENTRY = regex(
    r"(?:The procedure entry point|The ordinal) (?P<symbol>\S{1,400}) could not be located in the dynamic link "
    r"library\s(?P<library>[^\n]{1,300}?)\.?\s*$"
)
_LIBRARY = regex(r"(?P<library>[\w.+-]{1,120}\.(?:dll|pyd|DLL))\b")
_IMAGE = regex(
    r"(?P<library>\S[^\n]{0,300}?\.(?:dll|pyd|exe)) is either not designed to run on Windows or it contains an error"
)
_STATUS = regex(r"(?:[Ee]rror status|Fehlerstatus) (?:0x)?(?P<code>[0-9A-Fa-f]{8})")
_MISSING = (
    "The code execution cannot proceed because ",
    "The program can't start because ",
    "This application has failed to start because ",
    "Die Ausführung des Codes kann nicht fortgesetzt werden, da ",
    "Das Programm kann nicht gestartet werden, da ",
    "exécution de code ne peut pas continuer car ",
    "exécution du code ne peut pas continuer, car ",
    "La ejecución de código no puede continuar porque ",
    "No se puede iniciar el programa porque falta ",
    "A execução do código não pode continuar porque ",
    "由于找不到 ",
    "由于找不到",
    "因为计算机中丢失 ",
    "が見つからないため、コードの実行を続行できません",
    "продолжить выполнение кода, поскольку система ",
    "Запуск программы невозможен, так как на компьютере отсутствует ",
)
_ASSERTION_LINE = regex(
    r"Assertion failed: (?P<expression>.{1,500}?), file (?P<file>.{1,300}?), line (?P<line>\d{1,7})"
)
_PROGRAM = regex(r"\s{0,8}Program: (?P<program>.{1,300})")
_FILE = regex(r"\s{0,8}File: (?P<file>.{1,300})")
_LINE = regex(r"\s{0,8}Line: (?P<line>\d{1,7})")
_EXPRESSION = regex(r"\s{0,8}Expression: (?P<expression>.{1,500})")
_VARIABLE = regex(r"Stack around the variable '(?P<variable>[^']{1,200})' was corrupted")
_HEAP = regex(r"HEAP CORRUPTION DETECTED: (?P<what>(?:after|before) .{1,200})")
_REASONS = {
    0xC000007B: "a DLL is for the other word size (32 or 64 bits), or it is damaged",
    0xC0000142: "the initialization of a DLL failed",
    0xC0000135: "a DLL was not found",
    0xC0000139: "a DLL lacks a procedure that is needed from it",
    0xC0000138: "a DLL lacks an ordinal that is needed from it",
    0xC0000018: "a DLL could not be placed in memory",
    0xC0000022: "a DLL may not be read",
}


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The box around a line that holds a trigger."""
    text = lines[index].text[:_WIDEST]
    for literals, reader in _FORMS:
        if any(literal in text for literal in literals) and (piece := reader(lines, index, text)) is not None:
            return piece
    return None


def _environment(program: str | None = None) -> Environment:
    return Environment(platform="Windows", executable=program)


def _one(lines: Sequence[Line], index: int, crash: Crash, last: int | None = None) -> TextReport:
    return TextReport(KIND, lines[index].number, lines[max(index, last if last is not None else index)].number, crash)


def _message(lines: Sequence[Line], index: int, kind: str, text: str, fields: dict[str, str]) -> Message:
    line = lines[index]
    return Message(kind=kind, text=text.strip()[:600], where=f"log line {line.number}", line=line.number, fields=fields)


# ---------------------------------------------------------------- hard errors


def _referenced(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    joined = "\n".join(line.text[:_WIDEST] for line in lines[index : index + 3]).replace("\n", " ")
    match = _REFERENCED.search(joined)
    if match is None:
        return None
    at, address = int(match["at"], 16), int(match["address"], 16)
    access = 8 if at == address else access_named(match["access"])
    frame = backtrace.native(0, None, address=at)
    thread = crashed_thread(ACCESS_VIOLATION, [frame])
    crash = Crash(
        exit=end_of(ACCESS_VIOLATION, match[0][:300]),
        fault=fault_of(ACCESS_VIOLATION, (access if access is not None else 99, address)),
        threads=(thread,) if thread is not None else None,
        environment=_environment(),
    )
    used = 0 if match.end() <= len(text) else 1 + (match.end() > len(text) + len(lines[index + 1].text) + 1)
    return _one(lines, index, crash, index + used)


def _occurred(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    match = _OCCURRED.search(text)
    code = int(match["code"], 16) if match is not None else 0
    if match is None or not is_status(code):
        return None
    frame = backtrace.native(0, None, address=int(match["at"], 16))
    thread = crashed_thread(code, [frame])
    crash = Crash(
        exit=end_of(code, match[0]),
        fault=fault_of(code),
        threads=(thread,) if thread is not None else None,
        environment=_environment(),
    )
    return _one(lines, index, crash)


def _not_started(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    """``The application was unable to start correctly (0xc000007b)``; in any language the status is in brackets."""
    match = _NOT_STARTED.search(text)
    if match is None:
        return None
    code = int(match["code"], 16)
    reason = _REASONS.get(code)
    if reason is None and "unable to start correctly" not in text:
        return None
    kind = "missing-library" if code == 0xC0000135 else "bad-library-file"
    fields = {"text": f"{reason} (0x{code:08X})", "loader": "windows"} if reason else {}
    messages = (_message(lines, index, kind, text, fields),) if reason else None
    crash = Crash(
        exit=end_of(code, text.strip()[:300]), fault=fault_of(code), messages=messages, environment=_environment()
    )
    return _one(lines, index, crash)


# ---------------------------------------------------------------- the loader


def _entry(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    joined = " ".join(line.text[:_WIDEST].strip() for line in lines[index : index + 3])
    match = _ENTRY.search(text.rstrip()) or _ENTRY.search(joined)
    if match is None:
        return None
    last = index if _ENTRY.search(text.rstrip()) else min(len(lines) - 1, index + 2)
    symbol = f"ordinal {match['symbol']}" if "The ordinal" in match[0] else match["symbol"]
    fields = {"symbol": symbol, "library": match["library"].strip(), "loader": "windows"}
    messages = (_message(lines, index, "undefined-symbol", joined, fields),)
    return _one(lines, index, Crash(messages=messages, environment=_environment()), last)


def _missing(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    match = _LIBRARY.search(text)
    if match is None:
        return None
    fields = {"library": match["library"], "text": "it was not found", "loader": "windows"}
    messages = (_message(lines, index, "missing-library", text, fields),)
    return _one(lines, index, Crash(messages=messages, environment=_environment()))


def _image(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    match = _IMAGE.search(text)
    if match is None:
        return None
    status = _STATUS.search(" ".join(line.text[:_WIDEST] for line in lines[index : index + 3]))
    fields = {
        "library": match["library"].strip(),
        "text": "it is not a DLL for this Windows, or it is damaged",
        "loader": "windows",
    }
    fields |= {"status": f"0x{int(status['code'], 16):08X}"} if status else {}
    messages = (_message(lines, index, "bad-library-file", text, fields),)
    return _one(lines, index, Crash(messages=messages, environment=_environment()))


# ---------------------------------------------------------------- the C runtime


def _assertion_line(lines: Sequence[Line], index: int, text: str) -> TextReport | None:
    match = _ASSERTION_LINE.search(text)
    if match is None:
        return None
    fields = {"expression": match["expression"], "file": match["file"], "source_line": match["line"]}
    messages = (_message(lines, index, "assertion", text, fields),)
    return _one(lines, index, Crash(messages=messages, environment=_environment()))


def _runtime(lines: Sequence[Line], index: int, _text: str) -> TextReport | None:
    """``Microsoft Visual C++ Runtime Library``: the box's lines in any order."""
    fields: dict[str, str] = {}
    program: str | None = None
    found: Message | None = None
    last = index
    for at in range(index, min(len(lines), index + _BOX)):
        text = lines[at].text[:_WIDEST]
        if at > index and text.lstrip().startswith("Microsoft Visual C++"):
            break
        if match := _PROGRAM.match(text):
            program, last = match["program"].strip(), at
        elif match := _FILE.match(text):
            fields["file"], last = match["file"].strip(), at
        elif match := _LINE.match(text):
            fields["source_line"], last = match["line"], at
        elif match := _EXPRESSION.match(text):
            fields["expression"], last = match["expression"].strip(), at
        elif (said := _said(lines, at, text)) is not None:
            found, last = found or said, at
    if found is None and {"file", "source_line", "expression"} <= fields.keys():
        text = f"Assertion failed: {fields['expression']}, file {fields['file']}, line {fields['source_line']}"
        found = _message(lines, index, "assertion", text, fields)
    if found is None:
        return None
    return _one(lines, index, Crash(messages=(found,), environment=_environment(program)), last)


def _said(lines: Sequence[Line], at: int, text: str) -> Message | None:
    if "R6025" in text or "pure virtual function call" in text:
        return _message(lines, at, "pure-virtual", text, {"what": "function"})
    if "requested the Runtime to terminate it in an unusual way" in text or "abort() has been called" in text:
        return _message(lines, at, "crt-abort", text, {})
    if match := _VARIABLE.search(text):
        return _message(lines, at, "stack-smash", text, {"what": match[0], "variable": match["variable"]})
    if match := _HEAP.search(text):
        return _message(lines, at, "malloc-complaint", text, {"what": match[0]})
    return None


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Sequence[Line], int, str], TextReport | None]], ...] = (
    (
        (
            "referenced memory at",
            "verweist auf Speicher",
            "adresse mémoire 0x",
            "referencia a la memoria",
            "指令引用了",
            "指令引用的",
            "のメモリを参照しました",
            "обратилась к памяти",
        ),
        _referenced,
    ),
    (("occurred in the application at location",), _occurred),
    (("could not be located in the dynamic link library", "The procedure entry point "), _entry),
    (_MISSING, _missing),
    (("is either not designed to run on Windows",), _image),
    (("(0xc000007b)", "(0xc0000142)", "(0xc0000135)", "(0xc0000022)", "unable to start correctly (0x"), _not_started),
    (("Assertion failed: ",), _assertion_line),
    (
        (
            "Microsoft Visual C++ ",
            "Debug Error!",
            "Debug Assertion Failed!",
            "Assertion failed!",
            "Runtime Error!",
            "Stack around the variable '",
            "HEAP CORRUPTION DETECTED: ",
            "requested the Runtime to terminate it in an unusual way",
        ),
        _runtime,
    ),
)
READER = TextReader(
    kind=KIND,
    triggers=tuple(dict.fromkeys(literal for literals, _ in _FORMS for literal in literals)),
    read=read,
    reach=_BOX,
)
