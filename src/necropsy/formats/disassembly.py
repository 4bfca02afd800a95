"""What one disassembled instruction reads and writes, from a debugger's text.

AT&T syntax (gdb's and lldb's default: ``mov %eax,-0x8(%rbp)``), Intel's (``mov DWORD PTR [rbp-0x8],eax``, WinDbg's too)
and AArch64's (``ldr w8, [x8, #0x10]``). The bytes are not printed, so the operands are parsed: which one is memory, and
whether it is the target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from necropsy.lazy_re import regex
from necropsy.model import Access, Address, Instruction, MemoryOperand

LONGEST = 200
"""Characters of an instruction; x86's longest have about 90."""

_MASK = (1 << 64) - 1
_PREFIXES = {
    "lock",
    "rep",
    "repz",
    "repnz",
    "repe",
    "repne",
    "bnd",
    "notrack",
    "data16",
    "addr32",
    "xacquire",
    "xrelease",
}
_ATT = regex(
    r"(?P<segment>%[fg]s:)?(?P<offset>-?(?:0x[0-9a-f]+|\d+))?"
    r"\((?P<base>%\w+)?(?:,(?P<index>%\w+)(?:,(?P<scale>[1248]))?)?\)|(?P<far>%[fg]s:0x[0-9a-f]+)"
)
_INTEL = regex(r"(?P<segment>[fg]s:)?\[(?P<inside>[^\[\]]{1,80})\]")
_TERM = regex(r"(?P<sign>[-+]?)\s*(?:(?P<register>[a-z]\w*)(?:\*(?P<scale>[1248]))?|#?(?P<number>-?0x[0-9a-f]+|-?\d+))")
_ONLY_READS = regex(
    r"(?:cmp|test|push|call|jmp|i?div|i?mul|u?comis[sd]|vu?comis[sd]|bt|ptest|vptest|fld|fild|cmpxchg16b)[bwlqst]?$|cmps[bwdq]$"
)
_NO_ACCESS = regex(r"(?:lea|nop|prefetch\w*|endbr64|adrp?)[bwlq]?$")
_WRITES_STACK = regex(r"(?:push|call|pushf)[bwlq]?$")
_READS_STACK = regex(r"(?:pop|ret|popf|iret)[bwlq]?$")
_PLAIN = {"idivl": "idiv", "idivq": "idiv", "idivw": "idiv", "divl": "div", "divq": "div", "divw": "div"} | {
    f"{name}q": name for name in ("ret", "call", "jmp", "push", "pop")
}
_ARM_STORES = regex(r"(?:st(?:r|p|ur|lr|xr|trb?|rb|rh|urb|urh|lrb|nt?p?)\w*|cas\w*|swp\w*)$")
_ARM_LOADS = regex(r"ld\w+$")


def instruction(address: int, text: str, registers: Mapping[str, int] | None = None) -> Instruction:
    """The instruction at ``address`` with its memory operand; ``registers`` gives the values that it worked on."""
    text = " ".join(text[:LONGEST].split())
    words = [word for word in text.split(" ", 3) if word not in _PREFIXES]
    name = words[0].lower() if words else ""
    rest = text[text.find(words[0]) + len(words[0]) :].strip() if words else ""
    values = {name.lower(): value for name, value in (registers or {}).items()}
    operands = _operands(name, rest.split(" <", 1)[0].split(" #", 1)[0] if "%" in rest else rest, values)
    return Instruction(
        address=Address(address),
        text=text,
        mnemonic=_PLAIN.get(name, name),
        operands=operands,
        registers=_named(rest, values),
    )


def _operands(name: str, rest: str, values: Mapping[str, int]) -> tuple[MemoryOperand, ...]:
    if _NO_ACCESS.match(name):
        return ()
    found = _att(name, rest, values) if "%" in rest or "$" in rest else _intel(name, rest, values)
    pointer = values.get("rsp")
    used = {} if pointer is None else {"rsp": Address(pointer)}
    if _WRITES_STACK.match(name):
        at = None if pointer is None else Address((pointer - 8) & _MASK)
        found += (MemoryOperand(text="[rsp - 8]", access="write", address=at, size=8, registers=used),)
    elif _READS_STACK.match(name):
        at = None if pointer is None else Address(pointer)
        found += (MemoryOperand(text="[rsp]", access="read", address=at, size=8, registers=used),)
    return found


def _att(name: str, rest: str, values: Mapping[str, int]) -> tuple[MemoryOperand, ...]:
    found = list(_ATT.finditer(rest))
    operands = []
    for match in found:
        behind = rest[match.end() :].strip()
        access: Access = (
            "write" if not behind.startswith(",") and not _reads(name, alone=len(rest) == len(match[0])) else "read"
        )
        parts = [(match["base"], 1), (match["index"], int(match["scale"] or 1))]
        terms = [(register.lstrip("%"), scale) for register, scale in parts if register]
        offset = int(match["offset"] or "0", 0) if match["far"] is None else 0
        known = match["segment"] is None and match["far"] is None
        operands.append(
            _operand(
                _spelled(terms, offset) if match["far"] is None else match["far"],
                access,
                terms,
                offset,
                values if known else {},
            )
        )
    return tuple(operands)


def _intel(name: str, rest: str, values: Mapping[str, int]) -> tuple[MemoryOperand, ...]:
    arm = _ARM_STORES.match(name) or _ARM_LOADS.match(name)
    operands = []
    for match in _INTEL.finditer(rest):
        terms: list[tuple[str, int]] = []
        offset = 0
        for term in _TERM.finditer(match["inside"].lower()):
            sign = -1 if term["sign"] == "-" else 1
            if term["number"] is not None:
                offset += sign * int(term["number"], 0)
            elif term["register"] not in {"lsl", "sxtw", "uxtw", "ptr"}:
                terms.append((term["register"], int(term["scale"] or 1)))
        access: Access
        if arm:
            access = "write" if _ARM_STORES.match(name) else "read"
        else:
            first = "," not in rest[: match.start()]
            access = "write" if first and not _reads(name, alone="," not in rest) else "read"
        scaled = "lsl" in match["inside"] or "sxtw" in match["inside"] or "uxtw" in match["inside"]
        known = match["segment"] is None and not scaled
        operands.append(_operand(_spelled(terms, offset), access, terms, offset, values if known else {}))
    return tuple(operands)


def _reads(name: str, *, alone: bool) -> bool:
    """The instruction only reads the memory in the place of a target; ``alone``: it has no other operand."""
    return bool(_ONLY_READS.match(name)) or (alone and name.startswith("j"))


def _operand(
    text: str, access: Access, terms: list[tuple[str, int]], offset: int, values: Mapping[str, int]
) -> MemoryOperand:
    used = {name: Address(values[name]) for name, _ in terms if name in values}
    known = (
        bool(terms)
        and all(name in values for name, _ in terms)
        and not any(name in {"rip", "eip"} for name, _ in terms)
    )
    address = offset + sum(values[name] * scale for name, scale in terms) if known else None
    return MemoryOperand(
        text=text, access=access, address=None if address is None else Address(address & _MASK), registers=used
    )


def _spelled(terms: list[tuple[str, int]], offset: int) -> str:
    """``[rbp - 0x8]``, as instructions of live processes are shown."""
    text = " + ".join(name + (f"*{scale}" if scale != 1 else "") for name, scale in terms)
    if not text:
        return f"[{offset:#x}]"
    return f"[{text}{' - ' if offset < 0 else ' + '}{abs(offset):#x}]" if offset else f"[{text}]"


def _named(rest: str, values: Mapping[str, int]) -> dict[str, Address]:
    names = (_full(name) for name in re.findall(r"[a-z]\w*", rest.lower()))
    return {name: Address(values[name]) for name in dict.fromkeys(names) if name in values and name != "rip"}


def _full(name: str) -> str:
    return f"r{name[1:]}" if re.fullmatch(r"e(?:[abcd]x|[sd]i|[bs]p)", name) else name
