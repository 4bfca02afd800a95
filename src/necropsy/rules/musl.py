"""What is musl's own: where its malloc stops the program, and how small its threads' stacks are."""

from __future__ import annotations

import re

from necropsy.frame_filter import file_name, noise
from necropsy.model import Crash, Evidence
from necropsy.predicates import bare_name, died_by, frames_of, instruction_at_fault, on_aarch64
from necropsy.rule import NOTHING, Found

THREAD = 128 << 10
"""Bytes of stack that a thread gets which asks for nothing (since musl 1.1.21)."""
_AND_ITS_OWN = 32 << 10
"""What musl puts above it, at most: the thread's own structure and its variables."""
_WRITES_ZERO = re.compile(r"strb wzr, \[x\d+\]")
_ONLY_THERE = frozenset({"libc_start_main_stage2", "__restore_sigs", "get_meta", "start_c11", "__libc_malloc_impl"})


def is_used(crash: Crash) -> bool:
    """The C library is musl, as far as that is known."""
    libc = crash.environment.libc if crash.environment is not None else None
    if libc is not None:
        return libc.startswith("musl")
    frames = (frame for thread in crash.threads or () for frame in thread.frames or ())
    return any(bare_name(frame.function) in _ONLY_THERE for frame in frames if frame.function)


def gave_up(crash: Crash) -> bool:
    """A check of the library ended the program (``a_crash``): by ``hlt``, or on AArch64 by a write to 0."""
    fault, instruction = crash.fault, crash.instruction
    if fault is None or fault.signal != "SIGSEGV" or instruction is None:
        return False
    halted = fault.code == "SI_KERNEL" and instruction.mnemonic == "hlt"
    return halted or (fault.address == 0 and on_aarch64(crash) and bool(_WRITES_ZERO.fullmatch(instruction.text or "")))


def trapped_in_malloc(crash: Crash) -> Found:
    """Malloc's own check failed."""
    instruction = crash.instruction
    if instruction is None or not is_used(crash) or not gave_up(crash):
        return NOTHING
    frame = next(iter(frames_of(crash)), None)
    if frame is None or not (is_of_malloc(crash) or _is_nameless(frame.function, frame.module)):
        return NOTHING
    where = f"frame {frame.index}"
    seen = f"`{instruction.text}` in {frame.function or file_name(frame.module or '')}"
    return (
        *died_by(crash, "SIGSEGV"),
        *instruction_at_fault(crash),
        Evidence(claim="musl's malloc stops the program so where its bookkeeping is destroyed", seen=seen, where=where),
    )


def is_of_malloc(crash: Crash) -> bool:
    """The innermost function is one of malloc's, by its name."""
    frame = next(iter(frames_of(crash)), None)
    return frame is not None and noise(frame) in {"allocator", "musl's allocator"}


def _is_nameless(function: str | None, module: str | None) -> bool:
    """It is in musl, which is stripped mostly; of its other checks, that of the stack protector has a name."""
    name = file_name(module or "")
    return function is None and (name == "libc.so" or name.startswith(("ld-musl", "libc.musl")))


def default_stack(crash: Crash, size: int | None, *, main: bool) -> Found:
    """The stack is as small as musl makes them for threads that ask for nothing."""
    if main or size is None or not THREAD <= size <= THREAD + _AND_ITS_OWN or not is_used(crash):
        return NOTHING
    return (
        Evidence(
            claim="the program uses musl, whose threads get a stack of 128 KiB unless they ask for more (glibc: 8 MiB)",
            seen=f"{size:,} bytes",
            where="mapping of the stack",
        ),
    )
