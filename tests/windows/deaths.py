"""What Windows programs die of, and what is right to say of it: the table that dumps and live runs are held against.

It was written from the mechanism of each crasher (tests/crashers/windows), before the tool was asked. The codes are what
wine gives; where Windows gives another, ``docs/explanation/tried-on.md`` says so, and a sketch in ``tests/cases`` holds
what Windows does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent.parent / "crashers" / "windows"


@dataclass(frozen=True)
class Death:
    """``verb`` with its number: one way in which crash.exe dies, by the exception ``code``.

    ``rules``: the verdicts that are right. ``culprit``: the function that did it, one of these; empty: nobody's, because
    none that is seen did it. ``line``: what stands in the source at the line that is named. ``first``: the exception is
    seen at its first chance only, and then the process ends with ``ends``. ``native``: the walk gets to the thread's start.
    """

    verb: str
    code: int
    rules: tuple[str, ...]
    culprit: tuple[str, ...] = ()
    line: str = ""
    ends: int | None = None
    first: bool = False
    says: str = ""
    complete: bool = True

    @property
    def words(self) -> list[str]:
        """The arguments of crash.exe."""
        return self.verb.split()

    @property
    def end(self) -> int:
        """The exit code, without anybody who looks."""
        return self.code if self.ends is None else self.ends


def death(verb: str, code: int, *rules: str, line: str = "", **more: Any) -> Death:
    """One whose culprit is the function of that name, unless told."""
    more.setdefault("culprit", (verb.split(maxsplit=1)[0],))
    return Death(verb, code, rules, line=line, **more)


AV, FULL, FAST, GNU = 0xC0000005, 0xC00000FD, 0xC0000409, 0x20474343

DEATHS = (
    # Pointers
    death("null_read", AV, "null-dereference", line="*(volatile int *)(number * 0)"),
    death("null_write", AV, "null-dereference", line="= 1"),
    death("null_member", AV, "null-dereference", culprit=("weight_of",), line="node->weight", says="96 bytes (0x60)"),
    death("null_copy", AV, "null-dereference", line="copy(here"),
    death("null_call", AV, "bad-jump", line="((Function)(number * 0))()"),
    death("wild_read", AV, "invalid-read", line="0x123456789000ull"),
    death("wild_write", AV, "invalid-write", line="0x123456789000ull"),
    death("non_canonical_read", AV, "invalid-read", line="0x4141414141414141ull"),
    death("non_canonical_write", AV, "invalid-write", line="0x4141414141414141ull"),
    death("read_reserved", AV, "invalid-read", line="MEM_RESERVE"),
    death("read_freed_page", AV, "invalid-read", line="seen = page[number]"),
    death("write_constant", AV, "write-to-readonly", line="&TABLE[number]", says="crash.exe"),
    death("write_code", AV, "write-to-readonly", line="(size_t)write_constant", says="crash.exe"),
    # A small dump of wine's does not say what is mapped at an address that is in no image.
    death("write_readonly", AV, "write-to-readonly", "invalid-write", line="[number] = 1"),
    death("touch_guard", 0x80000001, "invalid-read", line="PAGE_GUARD"),
    death("call_data", AV, "bad-jump", line="DATA + number"),
    death("call_heap", AV, "bad-jump", line="block + number"),
    death("call_unmapped", AV, "bad-jump", line="0x123456789000ull"),
    death("call_non_canonical", AV, "bad-jump", line="0x4141414141414141ull"),
    death("misaligned_load", AV, "misaligned-access", line="movaps"),
    death("callback", AV, "null-dereference", culprit=("weight_of",), line="node->weight"),
    death("return_to_garbage", AV, "bad-jump", "stack-smash", culprit=("overrun_unseen",), complete=False),
    # Stack
    death("recursion", FULL, "stack-overflow-recursion", culprit=("endless",), ends=0, first=True),
    death("mutual_recursion", FULL, "stack-overflow-recursion", culprit=("ping", "pong"), ends=0, first=True),
    death("recursion_with_malloc", FULL, "stack-overflow-recursion", culprit=("allocating",), ends=0, first=True),
    death("recursion_in_thread", FULL, "stack-overflow-recursion", culprit=("endless",), ends=0, first=True),
    # A million bytes for 20,000 levels: they fit into the 2 MiB of the first thread, and nobody knows if they had ended.
    death("recursion_in_small_thread", FULL, "stack-overflow-recursion", culprit=("bounded",), ends=0, first=True),
    death("huge_frame", FULL, "stack-overflow-large-frame", line="static void huge_frame", says="16 MiB"),
    death("huge_alloca", FULL, "stack-overflow-large-frame", line="alloca(", says="16 MiB"),
    death("small_thread", FULL, "stack-overflow-small-stack", "stack-overflow-recursion", culprit=("nested",)),
    # Wine's own smashed stacks: MinGW's protector ends by ud2, Microsoft's by a fast-fail.
    death("smash", 0xC000001D, "stack-smash", culprit=("overrun",)),
    death("fast_fail 0", FAST, "stack-smash"),
    death("fast_fail 2", FAST, "stack-smash"),
    # Fast-fails
    death("fast_fail 5", FAST, "fast-fail", line="int $0x29"),
    death("fast_fail 8", FAST, "fast-fail"),
    death("fast_fail 10", FAST, "fast-fail"),
    death("fast_fail 64", FAST, "fast-fail"),
    death("fast_fail 999", FAST, "fast-fail", says="subcode 999"),
    death("check_index", FAST, "fast-fail", line="__fastfail(number"),
    death("invalid_parameter", 0xC0000417, "fast-fail", line="refuse()"),
    # Heap: who noticed it is not who did it, so that no function is named.
    death("fast_fail 3", FAST, "heap-corruption", culprit=()),
    death("fast_fail 50", FAST, "heap-corruption", culprit=()),
    death("raise_corruption", 0xC0000374, "heap-corruption", culprit=()),
    death("overflow", AV, "heap-corruption", "invalid-write", "invalid-read", culprit=("overflow", "")),
    # Abort, C++
    death("fast_fail 7", FAST, "abort"),
    death(
        "throw_in_thread", GNU, "uncaught-cpp-exception", culprit=("throw_runtime_error",), line="throw std::runtime"
    ),
    death("throw_as_msvc", 0xE06D7363, "uncaught-cpp-exception", says="std::runtime_error", line="RaiseException"),
    death("terminate_as_msvc", FAST, "uncaught-cpp-exception", culprit=("throw_as_msvc",), says="std::runtime_error"),
    # Arithmetic, instructions
    death("divide_by_zero", 0xC0000094, "integer-divide-by-zero", line="10 / "),
    death("modulo_by_zero", 0xC0000094, "integer-divide-by-zero", line="10 % "),
    # Windows gives 0xC0000095 where the result does not fit.
    death(
        "divide_int_min", 0xC0000094, "integer-divide-by-zero", line="smallest / minus_one", says="smallest one by -1"
    ),
    death("trap", 0xC000001D, "deliberate-trap", line="__builtin_trap"),
    death("breakpoint", 0x80000003, "deliberate-trap", line="int3"),
    death("debug_break", 0x80000003, "deliberate-trap", line="DebugBreak()"),
    death("float_by_zero", 0xC000008E, "exit-status-only", line="1.0 / divisor", says="_controlfp"),
    death("privileged", 0xC0000096, "illegal-instruction", line="hlt", says="`hlt`"),
    death("invalid_opcode", 0xC000001D, "illegal-instruction"),
    # Files
    death("in_page_error", 0xC0000006, "bus-error", line="RaiseException"),
    # Loading: the helper that raises the exception did nothing wrong.
    death("delayed_module", 0xC06D007E, "cuda-library-missing", says="cudnn_ops_infer64_8.dll"),
    death("delayed_own_module", 0xC06D007E, "missing-library", says="ops_helper.dll"),
    death("delayed_procedure", 0xC06D007F, "undefined-symbol", says="cublasLtMatmulAlgoGetHeuristic"),
    # Threads, and an exception of the program's own
    death("two_threads", AV, "null-dereference", culprit=("write_null",), line="(number * 0) = 1"),
    death("beside_sleepers", AV, "null-dereference", culprit=("read_null_here",)),
    death("in_thread", AV, "null-dereference", culprit=("read_null_here",)),
    death("raise", 0xE0000001, "exit-status-only", line="RaiseException", says="0xE0000001"),
    death("raise 4660", 0x1234, "exit-status-only", line="RaiseException", says="0x00001234"),
)

RACE = "two_threads"
"""Two threads that crash at the same moment. In about one live run in a hundred, wine returns the registers of neither."""
