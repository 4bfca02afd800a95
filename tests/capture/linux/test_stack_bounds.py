"""Where a thread's stack ends, by its control block and the mappings around it."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from harness import build

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.unwind import stack_bounds
from necropsy.capture.process.memory import Memory, Registers

_BLOCK, _SIZE, _GUARD = 0x7F0000000000, 0x100000, 0x1000
_FS = _BLOCK + _SIZE - 0x1000
_FIELDS = 0x690


class _ControlBlock(Memory):
    """Memory that holds ``stackblock``, its size and its guard in glibc's ``struct pthread``, and nothing else."""

    def some(self, address: int, size: int) -> bytes:
        fields = b"\0" * _FIELDS + struct.pack("<QQQ", _BLOCK, _SIZE, _GUARD)
        return fields[address - _FS :].ljust(size, b"\0")[:size] if _FS <= address < _FS + _FIELDS else b""


@pytest.mark.parametrize("zone", [0, 0x4000])
def test_pages_that_a_runtime_protects_at_the_end_of_a_stack_are_its_guard(zone: int) -> None:
    """HotSpot takes its yellow and red zones out of the stack that the thread was given."""
    low = _BLOCK + _GUARD
    maps = [MapEntry(_BLOCK, low, "---p"), MapEntry(low + zone, _BLOCK + _SIZE, "rw-p")]
    if zone:
        maps.append(MapEntry(low, low + zone, "---p"))
    sp = low + zone + 0x10
    registers = Registers({"rsp": sp, "rbp": 0, "rip": 0, "fs_base": _FS})
    stack = stack_bounds.of_thread(MemoryMap(maps), _ControlBlock(), registers, is_main=False, limit=None)
    assert stack is not None
    assert (stack.low, stack.guard) == (low + zone, _GUARD + zone)
    assert stack.size == _SIZE - _GUARD - zone
    full = msgspec.structs.replace(stack, pointer=stack.low)
    assert stack_bounds.exhausted(full, low + zone - 8) is True
    assert stack_bounds.exhausted(stack, sp) is False


DEEPER = "int deeper(volatile int *up) { volatile int here[64]; here[0] = *up; return deeper(here) + here[1]; }"


def test_a_stack_that_grows_while_it_is_read_was_full_all_the_same(tmp_path: Path) -> None:
    """Whoever reads below a stack lets it grow, and has a larger limit than the program that died."""
    program = build(tmp_path, DEEPER + " int main(void) { int none = 0; return deeper(&none); }")
    words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(tmp_path / "x.json")]
    words += ["sh", "-c", f"ulimit -S -s 128; exec {program}"]
    assert subprocess.run(words, check=False, timeout=60).returncode == -signal.SIGSEGV
    document = json.loads((tmp_path / "x.json").read_bytes())
    verdict = document["reports"][0]["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("stack-overflow-recursion", "certain")
