"""Functions that report and end the program; being exported, they name the cause even in stripped libraries."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import bare_name, frames_of
from necropsy.rule import Found

FATAL_LOG = (
    r".*LogMessageFatal.*|.*LogMessageQuietlyFatal.*|.*LogMessage::(?:Fail|SendToLog|FailWithoutStackTrace|Die)|"
    r".*CheckFailed.*|.*torchCheckFail"
)
"""What ends a program after a failed CHECK."""
CHECK = rf"{FATAL_LOG}|.*\b(?:CheckNotNull|CheckOpMessageBuilder|MakeCheckOpString|MakeCheckOpValueString).*"
"""The same, and what puts the message of a CHECK together."""
ASSERTION = r"(?:__GI_)?__assert\w*|std::(?:__cxx11::)?__glibcxx_assert_fail|_assert|_wassert"
TERMINATE = (
    r"std::_*terminate|__cxxabiv1::__terminate|__gnu_cxx::__verbose_terminate_handler|__clang_call_terminate|terminate|"
    r"__std_terminate|__cxa_call_terminate|__cxa_call_unexpected|demangling_terminate_handler"
)
UNWINDER_TERMINATES = r"__gxx_personality_v0|__gxx_personality_seh0|__gcc_personality_v0"
"""It looks for a handler of the exception; above ``abort`` it found that a ``noexcept`` forbids to look further."""


@dataclass(frozen=True)
class Reporter:
    """``name`` is how the bare name of the function begins; ``says`` what its call means; ``fix`` what to do."""

    name: str
    says: str
    fix: str


_REPORTERS = (
    Reporter(
        # Qt: src/corelib/global/qlogging.cpp (qt_message_fatal)
        "QMessageLogger::fatal",
        "Qt reported a fatal error (qFatal)",
        "Read Qt's message on stderr; for the platform plugin, QT_DEBUG_PLUGINS=1 shows what was tried.",
    ),
    Reporter(
        # Tcl: generic/tclPanic.c
        "Tcl_Panic",
        "Tcl detected an inconsistent state (Tcl_Panic)",
        "Touch tkinter on the main thread only; a garbage collection on another thread frees its objects there.",
    ),
    Reporter(
        # Rust: library/std/src/panicking.rs
        "rust_panic",
        "code written in Rust panicked",
        "Run it with RUST_BACKTRACE=1, and look at what the panicking function expects of its input.",
    ),
    Reporter(
        # Rust: library/alloc/src/alloc.rs, library/std/src/alloc.rs
        "alloc::alloc::handle_alloc_error",
        "an allocation of memory failed in code written in Rust",
        "Look at how large the allocation is that its caller asked for, and at the limits (ulimit -v, the container's).",
    ),
    Reporter(
        # Rust: library/core/src/panicking.rs
        "core::panicking::panic_cannot_unwind",
        "code written in Rust panicked, and the panic came to a function that must not be left so",
        "Run it with RUST_BACKTRACE=1; catch the panic (std::panic::catch_unwind) before it leaves Rust.",
    ),
    Reporter(
        # Go: src/runtime/panic.go
        "runtime.gopanic",
        "code written in Go panicked",
        "Recover from the panic in the exported Go function, and look at what it expects of its input.",
    ),
    Reporter(
        "runtime.goPanicIndex",
        "code written in Go panicked (index out of range)",
        "Check the index in the Go function below it against the length.",
    ),
    Reporter(
        "runtime.goPanicSlice",
        "code written in Go panicked (slice bounds out of range)",
        "Check the bounds in the Go function below it against the length and the capacity.",
    ),
    Reporter(
        "runtime.panicdivide",
        "code written in Go panicked (integer divide by zero)",
        "Check the divisor in the Go function below it.",
    ),
    Reporter(
        # MPICH: src/mpi/errhan/errutil.c, src/mpi/init/initthread.c
        "MPIR_Handle_fatal_error",
        "MPI reported an error that its error handler treats as fatal",
        "Read MPI's error stack on stderr: it names the call and the argument.",
    ),
    Reporter("MPIR_Err_return_comm", "MPI reported an error in one of its calls", "Read MPI's error stack on stderr."),
    Reporter(
        # Open MPI: ompi/runtime/ompi_mpi_abort.c
        "ompi_mpi_abort",
        "MPI ended the program (MPI_Abort, or an error in one of its calls)",
        "Read the lines that Open MPI wrote to stderr: they name the rank and the call.",
    ),
    Reporter(
        # LLVM's OpenMP runtime: openmp/runtime/src/kmp_i18n.cpp
        "__kmp_fatal",
        "the OpenMP runtime reported a fatal error",
        "Read the line on stderr that begins with OMP: Error; its number is in the runtime's message catalogue.",
    ),
    Reporter(
        # jemalloc: src/safety_check.c
        "je_safety_check_fail",
        "jemalloc found its heap damaged",
        "Run it once with AddressSanitizer: it names the guilty write.",
    ),
    Reporter(
        # LLVM: lib/Support/ErrorHandling.cpp
        "llvm::report_fatal_error",
        "LLVM reported a fatal error",
        "Read the line on stderr that begins with LLVM ERROR.",
    ),
    Reporter(
        # V8: src/base/logging.cc, src/api/api.cc
        "V8_Fatal",
        "V8 detected an inconsistent state",
        "Read the lines on stderr that begin with #.",
    ),
    Reporter(
        "v8::internal::V8::FatalProcessOutOfMemory",
        "V8 was out of memory",
        "Set a larger heap (--max-old-space-size), or find what keeps the objects alive.",
    ),
    Reporter(
        # V8: src/heap/heap.cc
        "v8::internal::Heap::FatalProcessOutOfMemory",
        "the heap of V8 (JavaScript) was full",
        "Give it a larger heap (--max-old-space-size), or find what keeps the objects alive.",
    ),
    Reporter(
        # HotSpot: src/hotspot/share/utilities/debug.cpp; -XX:+CrashOnOutOfMemoryError
        "report_java_out_of_memory",
        "the Java virtual machine met an OutOfMemoryError, at which it was told to crash",
        "Give it a larger heap (-Xmx), or find what keeps the objects alive.",
    ),
    Reporter(
        # HotSpot: src/hotspot/share/utilities/vmError.cpp
        "VMError::report_and_die",
        "the Java virtual machine reported a fatal error",
        "Read the file hs_err_pid*.log in the working directory: it names the signal and the problematic frame.",
    ),
    Reporter(
        # R: src/main/errors.c
        "R_Suicide",
        "R ended itself (R_Suicide)",
        "Read the line on stderr that begins with Fatal error.",
    ),
    Reporter(
        # GLib: glib/gmessages.c
        "g_log",
        "GLib logged an error, which ends the program",
        "Read the line on stderr with ERROR or CRITICAL in it.",
    ),
    Reporter(
        # libX11: src/xcb_io.c
        "xcb_io_error",
        "the connection to the X server broke",
        "Use the display from one thread, or call XInitThreads first.",
    ),
)
_FIRST = 16


def reporter(crash: Crash) -> tuple[Reporter | None, Found]:
    """The outermost of the functions above the end of the program that is known to report one, and it as evidence."""
    for frame in reversed(frames_of(crash)[:_FIRST]):
        name = bare_name(frame.function).removeprefix("__rustc::") if frame.function else ""
        known = next((one for one in _REPORTERS if name and _is_called(one.name, name)), None)
        if known is not None:
            seen = Evidence(claim=known.says, seen=f"{frame.function}", where=f"frame {frame.index}")
            return known, (seen,)
    return None, ()


def _is_called(known: str, name: str) -> bool:
    return name == known or (name.startswith(known) and not name[len(known)].islower())


def fix_of(one: Reporter) -> Fix:
    """What to do about it."""
    return Fix(text=one.fix)
