"""Code generated at run time: the compiler is identified by callers and loaded libraries.

Such frames have no file, and a name only if the compiler registered it for debuggers; otherwise only the mapping and
the first named caller are known.
"""

from __future__ import annotations

import re

from necropsy.lazy_re import regex
from necropsy.model import Crash, Evidence, Frame
from necropsy.predicates import bare_name, frames_of
from necropsy.rule import NOTHING, Found

FIRST = 12
"""Frames within which generated code counts: further out it only called what crashed."""
_CALLERS = (
    ("oneDNN", regex(r"dnnl(?:_graph)?::.*|dnnl_.*")),
    ("XLA", regex(r"xla::.*|tensorflow::XlaLocalLaunch\w*.*|stream_executor::host::.*")),
    ("numba", regex(r"numba_\w+|NRT_\w+|Dispatcher_call\w*|call_cfunc|cpython::.*")),
    ("PyTorch's TorchInductor", regex(r"torch::inductor::.*|at::.*inductor.*")),
    ("PyTorch's fuser (NNC)", regex(r"torch::jit::(?:tensorexpr|fuser)::.*")),
    ("FBGEMM (asmjit)", regex(r"fbgemm\w*::.*|asmjit::.*")),
    ("libffi", regex(r"ffi_closure\w*|closure_fcn")),
    ("PCRE2", regex(r"pcre2_(?:jit_)?match\w*")),
    ("LLVM", regex(r"llvm::.*|LLVM\w+")),
)
_NAMES = (
    ("numba", regex(r".*\[abi:v\d+\].*|.*\bnumba\b.*|.*B2v\d+B.*")),
    ("XLA", regex(r"(?:.*_)?fusion(?:[._]\d+)?(?:\.clone)?|main\.\d+|.*_kernel\.\d+|[a-z-]+(?:\.\d+)?_kernel")),
)
_FILES = (
    ("PyTorch's TorchInductor", regex(r".*/torchinductor_[^/]*/.*")),
    ("numba", regex(r".*/numba\w*cache.*")),
    ("Triton", regex(r".*/\.triton/cache/.*")),
)
_LOADED = (("numba", regex(r"libllvmlite\b.*|_dispatcher\.cpython.*")),)
"""Weaker than a caller: that such a compiler is loaded at all. TensorFlow always holds XLA and oneDNN, so they prove nothing."""


def is_generated(frame: Frame) -> bool:
    """No ELF file is mapped where the frame's code lies, but something that can be executed is."""
    return frame.module is None and frame.mapping is not None and "x" in frame.mapping.permissions


def generated_code(crash: Crash) -> Found:
    """The innermost frame of generated code, and who made it."""
    for place, frame in enumerate(frames_of(crash)[:FIRST]):
        maker, loaded, callers = _makers(crash, place)
        if not is_generated(frame) and _maker((frame.module or "",), _FILES) is None:
            continue
        by = f" by {maker}" if maker else f", perhaps by {loaded}, which is loaded" if loaded else ""
        mapping = frame.mapping
        where = (
            f"{mapping.low}-{mapping.high} {mapping.permissions} {mapping.path or 'anonymous memory'}"
            if mapping
            else frame.module
        )
        caller = f", called from {callers[0]}" if callers else ""
        return (
            Evidence(
                claim=f"code that was generated at run time{by}: it belongs to no library",
                seen=f"{where}{caller}",
                where=f"frame {frame.index}",
            ),
        )
    return NOTHING


def is_of_nobody(crash: Crash) -> bool:
    """It was in such code that has no name, and nobody who makes code is known: what is there may be no code at all."""
    frame = next(iter(frames_of(crash)), None)
    if frame is None or frame.function is not None or not is_generated(frame):
        return False
    maker, loaded, _ = _makers(crash, 0)
    return maker is None and loaded is None


def _makers(crash: Crash, place: int) -> tuple[str | None, str | None, list[str]]:
    """Who made a frame's code by file, name or callers; otherwise which loaded compiler may have; and the callers."""
    frames = frames_of(crash)[:FIRST]
    frame = frames[place]
    callers = [bare_name(one.function) for one in frames[place + 1 :] if one.function]
    own = (frame.function,) if frame.function else ()
    maker = _maker((frame.module or "",), _FILES) or _maker(own, _NAMES) or _maker(callers, _CALLERS)
    files = [module.path.rsplit("/", 1)[-1] for module in crash.modules or ()]
    return maker, None if maker else _maker(files, _LOADED), callers


def _maker(names: tuple[str, ...] | list[str], table: tuple[tuple[str, re.Pattern[str]], ...]) -> str | None:
    for name in names:
        for maker, pattern in table:
            if pattern.fullmatch(name):
                return maker
    return None


MNEMONICS = frozenset({"ud2", "ud1", "ud0", "ud2b", "int3", "int1", "icebp", "brk", "udf"})
"""x86: UD0 to UD2, INT3, INT1 (Intel SDM, volume 2); AArch64: BRK, UDF."""


def is_trap(crash: Crash) -> bool:
    """The instruction at the fault is a trap; after ``int3`` the program counter is one byte further."""
    instruction = crash.instruction
    if instruction is not None and instruction.mnemonic in MNEMONICS:
        return True
    return crash.fault is not None and crash.fault.signal == "SIGTRAP"
