"""The stacks that handlers, libraries and runtimes print when the process dies around them: one form for each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace, sanitizers
from necropsy.formats.demangle_msvc import qualified_name
from necropsy.formats.frame_lines import at_line, symbols_line
from necropsy.formats.lines import Line
from necropsy.formats.stack_forms import SIGNAL_NAME, StackForm, frame_of
from necropsy.lazy_re import regex
from necropsy.model import Crash, Fault, Frame

_FAR = 0x10000
"""Bytes behind its beginning at which hardly a function goes on."""
_LLVM = regex(
    r"(?P<index>\d{1,4}) {1,6}(?P<module>\S+) {1,40}(?P<address>0x[0-9a-f]{8,16}) (?P<function>\S.*?)(?: \+ \d+)?$"
)
_RAISED = regex(r"(?:raise|abort|gsignal|__pthread_kill\w*|pthread_kill)$")
_WINDOWS = (
    regex(
        r"\s{0,8}(?:#\d{1,4} )?0x(?P<address>[0-9A-Fa-f]{8,16}),? (?P<module>[^,(]{1,300}?)\(0x[0-9A-Fa-f]{8,16}\) \+ "
        r"0x(?P<offset>[0-9A-Fa-f]{1,16}) byte\(s\)"
        r"(?:, (?P<function>\S.{0,1000}?) ?\+ ?0x(?P<into>[0-9A-Fa-f]{1,16}) byte\(s\))?"
        r"(?:, (?P<source>[^,]{1,300}), line (?P<line>\d{1,7}))?"
    ),
    regex(
        r"\s{0,8}#\d{1,4} 0x(?P<address>[0-9A-Fa-f]{8,16}) "
        r"(?:\((?P<module>[A-Za-z]:[\\/].{1,400})\+0x(?P<offset>[0-9A-Fa-f]{1,16})\)"
        r"|(?P<function>[^\s(].{0,1000}?) (?P<source>[A-Za-z]:[\\/].{1,300}?):(?P<line>\d{1,7})(?::\d{1,7})?)\s*$"
    ),
)


def _llvm_frame(text: str, count: int) -> Frame | None:
    text = backtrace.bare(text)
    if text.startswith("#"):
        return sanitizers.read_frame(text)
    match = _LLVM.match(text)
    return frame_of(match.groupdict(), count) if match else None


def _raised(crash: Crash, lines: Sequence[Line], last: int) -> tuple[Crash, int]:
    """LLVM does not print the signal; if the process raised it itself, it was abort()."""
    del lines
    frames = crash.threads[0].frames if crash.threads else None
    name = frames[0].function if frames else None
    if name is None or not _RAISED.match(name.split("(", 1)[0]):
        return crash, last
    fault = Fault(signal="SIGABRT", code="SI_TKILL", sent_by_itself=True, handled_first=True)
    return msgspec.structs.replace(crash, fault=fault), last


def _windows_frame(text: str, count: int) -> Frame | None:
    """A frame; without debug information its name is the nearest exported one: far behind it, it is another's."""
    match = next((match for one in _WINDOWS if (match := one.match(text))), None)
    if match is None:
        return None
    said = match.groupdict()
    name, module = said["function"], said["module"]
    is_near = name is not None and int(said.get("into") or "0", 16) < _FAR
    said["function"] = qualified_name(name) if name and is_near else None
    said["module"] = re.split(r"[/\\]", module)[-1] if module else None
    return frame_of(said, count)


FORMS = (
    # *** SIGABRT (@0x30) received by PID 48 (TID 0x7f317b7fe700) from PID 48; stack trace: ***
    #     @     0x7f31cadd54b0 (unknown)
    # glog's src/signalhandler.cc, absl/debugging/failure_signal_handler.cc, folly/debugging/symbolizer/
    # SignalHandler.cpp. The number behind @ is si_addr, and where a process sent the signal its id and user.
    StackForm(
        kind="glog",
        triggers=("*** Aborted at ", "PC: @ ", " received by PID ", " received at time="),
        facts=(
            regex(
                r"\*\*\* (?P<signal>SIG\w+) \(@(?P<address>0x[0-9a-f]+|\(nil\))\) received by PID (?P<pid>\d+) "
                r"\(TID (?P<tid>0x[0-9a-f]+|\d+)\)(?: from PID (?P<sender>-?\d+))?"
            ),
            regex(r"\*\*\* (?P<signal>SIG\w+) received at time=(?P<time>\d{1,11})(?: on cpu \d+)?"),
            regex(r"\*\*\* (?P<signal>SIG\w+) \(see [^)]*\) received by PID (?P<pid>\d+) \(TID (?P<tid>\d+)\)"),
            regex(
                r"\*\*\* Signal \d+ \((?P<signal>SIG\w+)\) \((?P<address>0x[0-9a-f]+)\) received by PID (?P<pid>\d+) "
                r"\(pthread TID 0x[0-9a-f]+\) \(linux TID (?P<tid>\d+)\)"
                r"(?: \((?:maybe )?from PID (?P<sender>\d+)[^)]*\))?(?: \(code: (?P<words>[^)]*)\))?"
            ),
            regex(r"\*\*\* Aborted at (?P<time>\d{9,11}) \([Uu]nix time"),
            regex(
                r"PC: @ {1,20}(?:0x)?(?P<pc>[0-9a-f]{1,16})(?: {1,12}(?:\d{1,9}|\(unknown\))(?= ))? {1,4}"
                r"(?P<pc_function>\S.*)$"
            ),
        ),
        frames=(at_line,),
        needs="signal",
        least=0,
        reach=1200,
    ),
    # What failed stands above as a message of the log.
    StackForm(
        kind="glog",
        triggers=("*** Check failure stack trace: ***",),
        frames=(at_line,),
        end=regex(r"\*\*\* Aborted at |PC: @|\*\*\* SIG"),
        head=5,
        reach=1200,
        with_handler=False,
    ),
    # [gpu39:32804] Signal code: Address not mapped (1)
    # [gpu39:32804] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3ef20)[0x15222b72ef20]
    # opal/util/stacktrace.c of Open MPI 1.4 to 5; several ranks write at once.
    StackForm(
        kind="open-mpi",
        triggers=("*** Process received signal ***",),
        facts=(
            regex(r"(?P<begin>\*\*\* Process received signal \*\*\*)"),
            regex(r"^Signal: [^(]{0,80}?\((?P<number>\d{1,2})\)"),
            regex(r"^Signal code: (?P<words>[^(]{0,80}?) ?\((?P<code>-?\d{1,3})\)"),
            regex(r"^Failing at address: (?P<address>0x[0-9a-f]+|\(nil\))"),
        ),
        frames=(symbols_line,),
        needs="signal",
        least=0,
        owner=regex(r"[\s>]{0,16}\[([^\[\]:\s]{1,255}):(?P<pid>\d{1,10})\] ?(?P<rest>.*)$"),
        end=regex(r"\*\*\* End of error message \*\*\*"),
        head=60,
        skip=60,
        reach=1200,
    ),
    # [8d6bf97c3bf4:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)
    # ==== backtrace (tid:   3095) ====
    #  0 0x0000000000043090 killpg()  ???:0
    # src/ucs/debug/debug.c of UCX 1.2 to 1.18; the number is the place in its library.
    StackForm(
        kind="open-mpi",
        triggers=("] Caught signal ", "==== backtrace"),
        facts=(
            regex(
                r"\[[^\[\]:\s]{1,255}:(?P<pid>\d{1,10}) ?:\d+(?::(?P<tid>\d{1,10}))?\] Caught signal "
                r"(?P<number>\d{1,2}) \([^:()]{1,80}"
                r"(?:: (?P<words>[^()]{1,120}?)(?: at address (?P<address>0x[0-9a-f]+|\(nil\)))?)?\)"
            ),
            regex(r"(?P<begin>==== backtrace)(?: \(tid: *(?P<tid>\d+)\))? ===="),
        ),
        frames=(
            regex(
                r"\d{1,4} {1,2}(?P<offset>0x[0-9a-f]{4,16}) (?P<function>\S.*?)(?:\(\))?  "
                r"(?P<place>\S.*):(?P<line>\d{1,9})$"
            ),
            symbols_line,
        ),
        needs="signal",
        head=60,
        reach=1200,
    ),
    # frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f8d in /torch/lib/libc10.so)
    # c10/util/Backtrace.cpp, Exception.cpp, signal_handler.cpp (PyTorch 1.0 to 2.9); since 2.4 frames may be
    # symbolized. Python shows it with an exception; only one that nobody caught ends the program from here.
    StackForm(
        kind="c10",
        triggers=("frame #0: c10::", "frame #0: ", ", PID: ", "C++ CapturedTraceback:", "#4 c10::Error::Error"),
        facts=(regex(r"(?P<signal>SIG[A-Z]+)\(\d+\), PID: (?P<pid>\d+), Thread (?P<tid>\d+):"),),
        frames=(
            regex(
                r"frame #\d{1,5}: (?:<unknown function>|(?P<function>\S.*?))(?: \+ 0x[0-9a-f]+)? "
                r"\((?P<address>0x[0-9a-f]{1,16}) in (?P<module>[^()]{1,500})\)$"
            ),
            regex(r"#\d{1,5} (?P<function>\S.*?) from (?P<place>\S+?):(?P<line>\d{1,9})$"),
        ),
        needs="signal",
        dies=False,
        above=(regex(r"(?P<died>terminate called )"),),
        reach_above=40,
        head=5,
        skip=4,
    ),
    # 0   paddle::AnalysisPredictor::ZeroCopyRun()
    # FatalError: `Segmentation fault` is detected by the operating system.
    # paddle/phi/core/enforce.cc, paddle/fluid/platform/init.cc (Paddle 2.0 to 3.1); glog's form has the signal's line.
    # Without a signal it is the C++ half of a Python exception.
    StackForm(
        kind="paddle",
        triggers=("C++ Traceback (most recent call last):",),
        facts=(
            regex(r"(?P<begin>C\+\+ Traceback \(most recent call last\):)"),
            regex(r"(?P<died>is detected by the operating system)"),
        ),
        frames=(regex(r"\d{1,4}   (?P<function>\S.*)$"),),
        needs="died",
        dies=False,
        outermost_first=True,
        head=8,
        reach=400,
    ),
    # #0    Source "/src/op.cc", line 12, in op::Fill [0x7f3e]
    # backward.hpp (Printer, SignalHandling); the source lines around each frame may be printed too.
    StackForm(
        kind="backward",
        triggers=("Stack trace (most recent call ",),
        facts=(
            regex(r"(?P<begin>Stack trace \(most recent call )(?:last|(?P<first>first))\)"),
            regex(
                rf"^{SIGNAL_NAME} \((?P<words>[^()\[\]]{{3,80}}?)(?: \[(?P<address>0x[0-9a-f]+|\(nil\))\])?\)",
            ),
        ),
        frames=(
            regex(
                r"#\d{1,4}\s+Object \"(?P<module>[^\"]*)\", at (?P<address>0x[0-9a-f]+|\(nil\)|0)"
                r"(?:, in (?P<function>\S.*))?"
            ),
            regex(
                r"#\d{1,4}\s+(?:\| )?Source \"(?P<source>[^\"]*)\", line (?P<line>\d+), in (?P<function>\S.*?)"
                r"(?: \[(?P<address>0x[0-9a-f]+)\])?$"
            ),
        ),
        outermost_first=True,
        head=25,
        skip=24,
    ),
    # boost/stacktrace/detail/frame_unwind.ipp; who prints it, and whether it dies of it, it does not say.
    StackForm(
        kind="backward",
        triggers=(" 0# ",),
        frames=(
            regex(
                r"(?P<index>\d{1,4})# (?P<function>\S.*?)(?: at (?P<source>\S.*):(?P<line>\d{1,9})"
                r"| in (?P<module>\S.*))?$"
            ),
        ),
        dies=False,
        least=2,
        head=1,
        skip=0,
    ),
    #  #0 0x00007f5f llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) (/lib/libtriton.so+0x123)
    # 0  libtriton.so 0x00007f5f llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) + 41
    # llvm/lib/Support/Signals.cpp, Unix/Signals.inc (LLVM 3 to 21): MLIR, XLA's tools, Triton, numba, compilers.
    StackForm(
        kind="llvm",
        triggers=(
            *("Stack dump:", "Stack dump without symbol names", "PLEASE submit a bug report to"),
            "llvm::sys::PrintStackTrace",
        ),
        frames=(_llvm_frame,),
        head=40,
        around=_raised,
    ),
    # llvm/lib/Support/Windows/Signals.inc (PrintStackTrace, LLVMUnhandledExceptionFilter); both forms of frames in
    # https://github.com/ROCm/legacy-rocm-build/issues/5440 and
    # https://github.com/lshqqytiger/stable-diffusion-webui-amdgpu/issues/645.
    StackForm(
        kind="llvm-windows",
        triggers=("Exception Code: 0x",),
        facts=(regex(r"(?:^|\s)Exception Code: 0x(?P<status>[0-9A-Fa-f]{8})\s*$"),),
        frames=(_windows_frame,),
        needs="status",
        head=4,
        skip=0,
        with_handler=False,
    ),
    # R's src/main/main.c (sigactionSegv).
    StackForm(
        kind="r",
        triggers=("*** caught segfault ***", "*** caught bus error ***", "*** caught illegal"),
        facts=(
            regex(r"\*\*\* caught (?P<name>segfault|bus error|illegal operation) \*\*\*"),
            regex(r"address (?P<address>0x[0-9a-f]+|\(nil\)), cause '(?P<words>[^']{1,80})'"),
        ),
        needs="signal",
        least=0,
        head=3,
        reach=8,
    ),
    # jl_array_ptr_copy at /usr/lib/libjulia-internal.so.1 (unknown line)
    # Julia's src/signal-handling.c (jl_critical_error).
    StackForm(
        kind="julia",
        triggers=("signal (", "signal 11 (", "signal 6 (", "signal 4 (", "signal 8 ("),
        facts=(
            regex(
                r"(?:\[(?P<pid>\d{1,10})\] )?signal \(?(?P<number>\d{1,2})(?:\.\d{1,9})?(?:\)| \(-?\d{1,9}\)): [A-Z]\w+"
            ),
            regex(r"(?P<begin>in expression starting at )"),
        ),
        frames=(
            regex(r"unknown function \(ip: (?P<address>0x[0-9a-f]+|\(nil\))\)"),
            regex(
                r"(?P<function>\S[^ ]*(?: (?!at )[^ ]*)*) at (?P<place>\S.*?)(?: \(unknown line\)|:(?P<line>\d{1,9}))"
                r"(?: \[inlined\])?$"
            ),
        ),
        needs="signal",
        least=0,
        head=1,
        skip=0,
        reach=400,
        with_handler=False,
    ),
    # Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x10 in tid 4730 (SDLThread), pid 4711 (org.test.app)
    #       #00 pc 000000000001f3a4  /data/app/lib/arm64/libop.so (Walk(Node*)+16)
    # Android's debuggerd (system/core/debuggerd), its log_signal_summary and tombstones.
    StackForm(
        kind="runtime",
        triggers=(", fault addr ",),
        facts=(
            regex(
                r"(?:Fatal )?signal (?P<number>\d{1,2}) \((?P<signal>SIG[A-Z]{2,6})\), code (?P<code>-?\d{1,3})"
                r"(?: \((?P<why>[A-Z_]{2,20})[^)]{0,60}\))?"
                r", fault addr (?P<address>0x[0-9a-f]{1,16}|[0-9a-f]{8,16}|-{6,16})?"
                r"(?: (?:in|from) tid (?P<tid>\d{1,8}) \((?P<thread>[^()]{0,40})\))?(?:, pid (?P<pid>\d{1,8}))?"
            ),
        ),
        frames=(
            regex(
                r"(?:[^#]{0,200}\s)?#(?P<index>\d{1,3}) +pc (?P<offset>[0-9a-f]{4,16}) +(?P<module>\S{1,300})"
                r"(?: \((?P<function>.{1,400}?)(?:\+\d{1,8})?\))?(?: \(BuildId.{0,80})?$"
            ),
        ),
        needs="signal",
        least=0,
        above=(regex(r"pid: (?P<pid>\d{1,8}), tid: (?P<tid>\d{1,8}), name: (?P<thread>\S{1,40})"),),
        reach_above=6,
        head=60,
        skip=0,
        reach=240,
        with_handler=False,
        handled=False,
        ends=True,
    ),
    # Rust's library/std/src/sys/pal/unix/stack_overflow.rs: its handler saw a fault in the guard page of the thread's
    # stack; it then ends the process by abort().
    StackForm(
        kind="runtime",
        triggers=(" has overflowed its stack",),
        facts=(regex(r"thread '(?P<thread>[^']{0,80})'(?: \(\d{1,10}\))? (?P<overflowed>has overflowed its stack)"),),
        needs="overflowed",
        least=0,
        reach=1,
    ),
    # Go's runtime/signal_unix.go and runtime/panic.go.
    StackForm(
        kind="runtime",
        triggers=("[signal SIG",),
        facts=(
            regex(
                r"\[signal (?P<signal>SIG[A-Z]{2,6}): [a-z ]{3,60}? code=(?P<code>0x[0-9a-f]{1,8}) "
                r"addr=(?P<address>0x[0-9a-f]{1,16}) pc=0x[0-9a-f]{1,16}\]"
            ),
        ),
        needs="signal",
        least=0,
        reach=1,
        handled=False,
        ends=True,
    ),
)

READERS = tuple(form.reader() for form in FORMS)
