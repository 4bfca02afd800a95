"""Programs made of dice are run one instruction at a time, and wherever they stand, their callers are known.

What is right is known without any table: a call pushes a return address, and it is there until the stack pointer has gone
beyond it, be it by a return, a jump or an exception.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import chains
import harness
import pytest

from necropsy.capture.linux.inspect import memory_map, modules, registers
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.unwind import unwinder as native
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.process.memory import Registers
from necropsy.capture.process.native_stack import NativeStack

pytest.importorskip("drgn", reason="native stacks take drgn where rows are not simple")
_SINGLESTEP = 9
_MOST_STEPS = 8_000
"""The way of a C++ exception is longer: it is left where it ends."""
_PREFIXES = frozenset({0x2E, 0x3E, 0x66, 0xF2, 0xF3, *range(0x40, 0x50)})


def is_call(code: bytes) -> bool:
    start = next(index for index, one in enumerate(code) if one not in _PREFIXES)
    return code[start] == 0xE8 or (code[start] == 0xFF and code[start + 1] >> 3 & 7 == 2)


def steps(pid: int, memory: ProcessMemory) -> Iterator[tuple[Registers, list[int]]]:
    """After each instruction: the registers, and where the return addresses lie, innermost first."""
    slots: list[int] = []
    now = registers.read(pid)
    for _ in range(_MOST_STEPS):
        code = memory.some(now.pc, 12)
        harness._ptrace(_SINGLESTEP, pid)
        _, status = harness._wait(pid)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGTRAP
        before, now = now, registers.read(pid)
        if code.startswith(b"\xcc"):
            return
        slots = [slot for slot in slots if slot >= now.sp]
        if now.sp == before.sp - 8 and is_call(code):
            slots.append(now.sp)
        yield now, slots[::-1]


def unwound(
    pid: int, memory: ProcessMemory, files: modules.MappedFiles, names: SymbolTables, now: Registers
) -> NativeStack:
    """``names``, which are those of ``files``, are shared: to look each up anew took most of the time."""
    unwinder = native.Unwinder(memory_map.read(pid), memory, files, names)
    try:
        return unwinder.unwind(now, None, time.monotonic() + 30)
    finally:
        unwinder.close()


def callers(found: NativeStack) -> list[int]:
    return [place.pc for place in found.places if not place.inline][1:]


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("words", ["gcc", "g++", "clang", "clang++"])
def test_callers_are_right_at_each_instruction(words: str, level: str, tmp_path: Path) -> None:
    """The program's own at their first three times, others now and then."""
    seed = sum(map(ord, words + level))
    source = chains.returning(seed, cpp=words.endswith("++"))
    program = chains.build(tmp_path, source, words, level, seed)
    dice, times, checked = random.Random(seed), dict[int, int](), 0
    with harness.dying([program]) as death, ProcessMemory(death.pid) as memory:
        mapped = memory_map.read(death.pid)
        files = modules.find(death.pid, mapped, memory)
        names = SymbolTables(mapped, memory, files)
        main = unwound(death.pid, memory, files, names, registers.read(death.pid))
        assert main.complete
        for now, slots in steps(death.pid, memory):
            file = files.at(now.pc)
            seen = times[now.pc] = times.get(now.pc, 0) + 1
            own = file is not None and file.name == program.name
            # While an exception leaps, the stack is both that of the unwinder and the one that it leaps to.
            leaps = file is not None and file.name.startswith("libgcc_s")
            if leaps or (seen > 3 if own else dice.random() > 0.01):
                continue
            checked += 1
            expected = [memory.u64(slot) for slot in slots] + callers(main)
            found = unwound(death.pid, memory, files, names, now)
            assert callers(found) == expected, (hex(now.pc), found.places[0])
            assert found.complete
    assert checked > 30
