"""The string constants that a function loaded just before one of its calls, read from its code. x86-64.

``fprintf(stderr, "cannot open %s", name); abort();`` may leave its text nowhere, but its format is in the library's
read-only data, and the code in front of the call to ``abort`` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from necropsy.capture.process.memory import Mappings, Memory

_BEFORE = 1024
"""Bytes of code in front of a call that are looked at."""
_LONGEST_INSTRUCTION = 15
_LONGEST_STRING = 2048
_MOST = 12
_ENDS = frozenset({"ret", "jmp", "ud2", "hlt", "int3"})
"""What no code runs through."""


_MOST_CODE = 8 << 20
"""Bytes of a library's code that are searched for the one jump to a place."""
Function = Callable[[int], "tuple[int, int] | None"]
"""Where the function begins and ends that holds an address, by the unwind tables; None where they do not say."""


@dataclass(frozen=True)
class Step:
    """One instruction: where it begins and ends, what it is, and an address that it loads, calls or jumps to."""

    low: int
    high: int
    name: str
    loads: int | None
    target: int | None
    pads: bool


@dataclass(frozen=True)
class Code:
    """The code of a process."""

    memory: Memory
    places: Mappings
    function: Function

    def passed_before(self, address: int, *, is_return: bool = True, arguments: bool = False) -> list[str]:
        """The strings that the code in front of ``address`` loads, in the order of the code.

        ``is_return``: the instruction in front of it is the call; else the thread is at ``address`` itself.
        ``arguments``: only those loaded for that call, behind the call before it. Raises ImportError without capstone.
        """
        steps = _straight(self._before(address, behind="call" if is_return else None), arguments=arguments)
        found = self._strings(steps)
        if not found and steps and not arguments:
            # Code that is hardly ever run is moved away: what was loaded for it lies in front of the jump there.
            source = self._only_jump_to(steps[0].low)
            if source is not None:
                found = self._strings(_straight(self._before(source, behind="j"), arguments=False))
        return found[-_MOST:]

    def _strings(self, steps: Sequence[Step]) -> list[str]:
        found: list[str] = []
        for step in steps:
            text = _string(self.memory, self.places, step.loads) if step.loads is not None else None
            if text is not None and text not in found:
                found.append(text)
        return found

    def _before(self, address: int, *, behind: str | None) -> list[Step]:
        """The instructions of the function that end at ``address``; empty where no decoding of the bytes fits.

        ``behind``: what the last one's name begins with; None where ``address`` itself is an instruction.
        """
        function = self.function(address - 1 if behind else address)
        place = self.places.at(address - 1)
        if place is None:
            return []
        low = max(address - _BEFORE, place.low, function[0] if function is not None else 0)
        code = self.memory.some(low, address + 1 - low + _LONGEST_INSTRUCTION)
        is_begin = function is not None and low == function[0]
        # Decoding from anywhere falls into step with the code after a few instructions; that it ends there shows it.
        for skipped in range(1 if is_begin else min(_LONGEST_INSTRUCTION, len(code))):
            steps = _decoded(code[skipped:], low + skipped)
            for at, step in enumerate(steps):
                if behind is None and step.low == address:
                    return steps[:at]
                if behind is not None and step.high in {address, address + 1} and step.name.startswith(behind):
                    return steps[: at + 1]
        return []

    def _only_jump_to(self, address: int) -> int | None:
        """The end of the jump that leads to ``address``; None where there is none, or more than one."""
        place = self.places.at(address)
        if place is None or place.high - place.low > _MOST_CODE:
            return None
        ends = jumps_to(address - place.low, self.memory.some(place.low, place.high - place.low))
        found = [place.low + end for end in islice(ends, 2)]
        return found[0] if len(found) == 1 else None


def jumps_to(target: int, code: bytes) -> Iterator[int]:
    """The ends of what may be jumps to the offset ``target`` of ``code``, by the 32 bits of their distance.

    A library has tens of thousands of jumps. Within 64 KiB all that lead to one place have the same upper half of the
    distance, which few others have: it is looked for instead of a jump's opcode.
    """
    for upper in range((target - len(code)) >> 16, (target >> 16) + 1):
        half = upper.to_bytes(2, "little", signed=True)
        last = target - (upper << 16)
        low, high = max(last - 0xFFFF - 2, 3), max(min(last, len(code)), 0)
        at = code.find(half, low, high)
        while at != -1:
            end = at + 2
            is_jump = code[at - 3] == 0xE9 or (code[at - 3] >> 4 == 8 and code[at - 4 : at - 3] == b"\x0f")
            if is_jump and int.from_bytes(code[at - 2 : end], "little", signed=True) == target - end:
                yield end
            at = code.find(half, at + 1, high)


def _decoded(code: bytes, address: int) -> list[Step]:
    import capstone

    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.skipdata = True
    steps = []
    for low, size, name, operands in disassembler.disasm_lite(code, address):
        bare = name.removeprefix("bnd ").removeprefix("notrack ")
        loaded, target = _loaded(bare, operands, low + size), _target(bare, operands)
        steps.append(Step(low, low + size, bare, loaded, target, bare == "nop" and bool(operands)))
    return steps


def _loaded(name: str, operands: str, after: int) -> int | None:
    """``lea rdi, [rip + 0xe8b]``, or ``mov edi, 0x4006f4`` where the program is at a fixed address."""
    _, _, source = operands.partition(", ")
    if name == "lea" and source.startswith("[rip "):
        sign, _, offset = source.removeprefix("[rip ").removesuffix("]").partition(" ")
        number = _number(offset)
        return None if number is None else after + (-number if sign == "-" else number)
    return _number(source) if name in {"mov", "movabs"} else None


def _target(name: str, operands: str) -> int | None:
    return _number(operands) if name.startswith("j") or name == "call" else None


def _number(text: str) -> int | None:
    try:
        return int(text, 16) if text.startswith("0x") else None
    except ValueError:
        return None


def _straight(steps: Sequence[Step], *, arguments: bool) -> Sequence[Step]:
    """The last of the steps that one run through the code must have taken, in its order.

    A call may never return; then another branch follows it. So it is where the next instruction is jumped to or only
    fills a gap, and where the same function is called as last.
    """
    if not steps:
        return ()
    targets = {step.target for step in steps if step.target is not None and step.name != "call"}
    last = steps[-1]
    begin = len(steps) - 1
    while begin > 0:
        step, following = steps[begin - 1], steps[begin]
        if step.name in _ENDS:
            break
        if step.name == "call":
            again = step.target is not None and last.name == "call" and step.target == last.target
            if arguments or again or step.high in targets or following.pads:
                break
        begin -= 1
    return steps[begin:]


def _string(memory: Memory, places: Mappings, address: int) -> str | None:
    """The text at ``address`` in read-only data of a file, or None."""
    if not 0x1000 <= address < 1 << 47:
        return None
    place = places.at(address)
    if place is None or place.writable or not place.is_file:
        return None
    text = memory.c_string(address, _LONGEST_STRING)
    if not text or not all(char.isprintable() or char in "\n\t\r" for char in text):
        return None
    return text
