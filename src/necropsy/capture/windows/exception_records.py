"""What an exception's record points to, besides C++'s: a missing delay-loaded DLL, a heap that is damaged.

Layouts: delayimp.h of Visual C++ (``DelayLoadInfo``; codes ``VcppException(ERROR_SEVERITY_ERROR, ERROR_MOD_NOT_FOUND)``
and ``ERROR_PROC_NOT_FOUND``); ``HEAP_FAILURE_INFORMATION`` from ntdll's public symbols.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from necropsy.capture.process.memory import Memory
from necropsy.formats.minidump_records import Assertion, ExceptionRecord
from necropsy.formats.windows_exits import HEAP_CORRUPTION
from necropsy.model import Message

MODULE_NOT_FOUND, PROCEDURE_NOT_FOUND = 0xC06D007E, 0xC06D007F
_WHERE = "exception record"
_DELAYED = struct.Struct("<I4xQQQI4xQQQI4x")
"""cb, pidd, ppfn, szDll, dlp (fImportByName, szProcName or dwOrdinal), hmodCur, pfnCur, dwLastError."""
_DELAYED_OF_32_BITS = struct.Struct("<9I")
_FAILURE = struct.Struct("<III4xQQ")
"""Version, Size, FailureType, HeapAddress, Address."""
_FAILURES = {
    3: "the head of a block was overwritten",
    4: "the heads of several blocks were overwritten",
    5: "the head of a large block was overwritten",
    6: "it was written behind the end of a block",
    7: "it was written before the beginning of a block",
    8: "a block was freed that is not in use: freed twice, or overwritten",
    9: "what was given back is no block of this heap",
}
"""Those that mean the same in every Windows since 7."""
_32_BITS = (1 << 32) - 1
_LONGEST = 1024
_DEEPEST = 8


def messages(exception: ExceptionRecord, memory: Memory) -> Iterator[Message]:
    """What the record says in so many words."""
    code, parameters = exception.code, exception.parameters
    if code in {MODULE_NOT_FOUND, PROCEDURE_NOT_FOUND} and parameters:
        found = _delayed(code, parameters[0], memory)
        if found is not None:
            yield found
    if code == HEAP_CORRUPTION and parameters:
        failed = _heap(parameters[0], memory)
        if failed is not None:
            yield failed


def _delayed(code: int, at: int, memory: Memory) -> Message | None:
    at &= _32_BITS if memory.u32(at & _32_BITS) == _DELAYED_OF_32_BITS.size else (1 << 64) - 1
    layout = _DELAYED_OF_32_BITS if memory.u32(at) == _DELAYED_OF_32_BITS.size else _DELAYED
    data = memory.exactly(at, layout.size)
    if data is None:
        return None
    size, _, _, name_at, by_name, procedure_at, _, _, error = layout.unpack(data)
    name = memory.c_string(name_at, _LONGEST) if size >= 32 else None
    if not name or not name.isprintable():
        return None
    fields = {"dll": name}
    if error:
        fields["error"] = str(error)
    if code == MODULE_NOT_FOUND:
        return Message(kind="delay-load-module", text=f"{name} could not be loaded", where=_WHERE, fields=fields)
    procedure = memory.c_string(procedure_at, _LONGEST) if by_name else f"ordinal {procedure_at & 0xFFFF}"
    if procedure:
        fields["procedure"] = procedure
    text = f"{name} has no {procedure or 'procedure that is needed from it'}"
    return Message(kind="delay-load-procedure", text=text, where=_WHERE, fields=fields)


def _heap(at: int, memory: Memory) -> Message | None:
    data = memory.exactly(at, _FAILURE.size)
    if data is None:
        return None
    _, size, kind, heap, block = _FAILURE.unpack(data)
    if kind not in _FAILURES or not _FAILURE.size <= size < 1 << 16:
        return None
    fields = {"what": _FAILURES[kind], "failure": str(kind), "heap": hex(heap), "block": hex(block)}
    return Message(kind="heap-failure", text=_FAILURES[kind], where=_WHERE, fields=fields)


def of_assertion(one: Assertion) -> Message | None:
    """What Breakpad's handlers were told by the C runtime."""
    if one.kind == 2:
        text = "pure virtual function called"
        return Message(kind="pure-virtual", text=text, where="the dump", fields={"what": "function"})
    place = {"expression": one.expression, "function": one.function, "file": one.file}
    fields = {name: value for name, value in place.items() if value} | ({"line": str(one.line)} if one.line else {})
    if one.kind != 1:
        return None
    text = f"invalid parameter given to {one.function or 'a function of the C runtime'}"
    return Message(kind="crt-invalid-parameter", text=text, where="the dump", fields=fields)


def chain(exception: ExceptionRecord, memory: Memory) -> Sequence[ExceptionRecord]:
    """The exception, and those that came before it: each record points to the one that it was raised in."""
    found = [exception]
    seen: set[int] = set()
    at = exception.record
    while at and at not in seen and len(found) < _DEEPEST:
        seen.add(at)
        data = memory.exactly(at, _RECORD.size)
        if data is None:
            break
        code, flags, at, address, count, *parameters = _RECORD.unpack(data)
        kept = tuple(parameters[:count]) if count <= len(parameters) else ()
        found.append(ExceptionRecord(code, flags, address, kept, exception.tid, b"", at))
    return found


_RECORD = struct.Struct("<IIQQI4x15Q")
