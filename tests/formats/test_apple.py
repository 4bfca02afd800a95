"""macOS' crash reports in both forms, its loader's and its malloc's lines: read whole, cut, and judged."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats import loose_json
from necropsy.formats.readers import apple_crash_text, apple_ips, apple_lines
from necropsy.formats.text_reports import TextReader
from necropsy.model import Crash
from reading import only, pieces, survive, verdict

IPS, TEXT, LINES = apple_ips.READER, apple_crash_text.READER, apple_lines.READER

# Fields and values as in https://github.com/AloneLiberty/FlipperNestedRecovery/issues/13, an extension on a thread.
HEAD = '{"app_name":"Python","timestamp":"2023-08-14 20:31:08.00 +0200","app_version":"3.10.10","bug_type":"309","os_version":"macOS 13.5 (22G74)","name":"Python"}'
IMAGES = r"""  "usedImages" : [
  {"source":"P","arch":"arm64","base":4421148672,"size":49152,"path":"\/Users\/USER\/*\/_op.cpython-311-darwin.so","name":"_op.cpython-311-darwin.so"},
  {"source":"P","arch":"arm64","base":6931700000,"size":237568,"path":"\/usr\/lib\/system\/libsystem_kernel.dylib","name":"libsystem_kernel.dylib"},
  {"source":"P","arch":"arm64","base":4400000000,"size":49152,"path":"\/opt\/homebrew\/*\/Python","name":"Python"}
  ]"""
STATE = '"threadState":{"x":[{"value":0},{"value":16}],"flavor":"ARM_THREAD_STATE64","lr":{"value":6932000924},"sp":{"value":6132979792},"esr":{"value":2449473542,"description":"(Data Abort) byte read Translation fault"},"pc":{"value":4421149000},"far":{"value":16}}'
FRAMES = '[{"imageOffset":328,"symbol":"Node::weight() const","symbolLocation":8,"sourceFile":"op.cc","sourceLine":31,"imageIndex":0},{"imageOffset":1139676,"symbol":"_PyEval_EvalFrameDefault","symbolLocation":96,"imageIndex":2}]'
NULL = f"""{HEAD}
{{
  "uptime" : 31000,
  "procName" : "Python",
  "procPath" : "\\/opt\\/homebrew\\/*\\/Python",
  "cpuType" : "ARM-64",
  "pid" : 4711,
  "exception" : {{"codes":"0x0000000000000001, 0x0000000000000010","rawCodes":[1,16],"type":"EXC_BAD_ACCESS","signal":"SIGSEGV","subtype":"KERN_INVALID_ADDRESS at 0x0000000000000010"}},
  "termination" : {{"flags":0,"code":11,"namespace":"SIGNAL","indicator":"Segmentation fault: 11","byProc":"exc handler","byPid":4711}},
  "vmRegionInfo" : "0x10 is not in any region.  Bytes before following region: 4342398960\\n      REGION TYPE                 START - END      [ VSIZE] PRT\\/MAX SHRMOD  REGION DETAIL\\n      UNUSED SPACE AT START\\n--->  \\n      __TEXT                   102d3c000-102d40000 [   16K] r-x\\/r-x SM=COW  ...python3.11",
  "faultingThread" : 0,
  "threads" : [{{"triggered":true,"id":1199553,{STATE},"queue":"com.apple.main-thread","frames":{FRAMES}}},{{"id":1199571,"name":"worker","frames":[{{"imageOffset":14522,"symbol":"__psynch_cvwait","symbolLocation":8,"imageIndex":1}}]}}],
{IMAGES}
}}"""
RECURSION = (
    NULL.replace("KERN_INVALID_ADDRESS at 0x0000000000000010", "KERN_PROTECTION_FAILURE at 0x000000016f65bf80")
    .replace(
        '"signal":"SIGSEGV"', '"signal":"SIGBUS","message":"Thread stack size exceeded due to excessive recursion"'
    )
    .replace(
        f'"frames":{FRAMES}}},{{"id"',
        '"frames":[{"imageOffset":40,"symbol":"visit(Node*)","imageIndex":0},{"imageOffset":40,"symbol":"visit(Node*)","imageIndex":0},'
        '{"imageOffset":60,"symbol":"main","imageIndex":2}],"recursionInfoArray":[{"hottestElided":2,"coldestElided":58037,"depth":58036,'
        '"keyFrame":{"imageOffset":40,"symbol":"visit(Node*)","symbolLocation":8,"imageIndex":0}}],"originalLength":58039},{"id"',
    )
    .replace(
        "0x10 is not in any region.  Bytes before following region: 4342398960",
        "0x16f65bf80 is in 0x16f658000-0x16f65c000;  bytes after start: 16256  bytes before end: 127",
    )
    .replace(
        "--->  \\n      __TEXT                   102d3c000-102d40000 [   16K] r-x\\/r-x SM=COW  ...python3.11",
        "--->  STACK GUARD                 16f658000-16f65c000    [   16K] ---\\/rwx SM=NUL  stack guard for thread 0\\n"
        "      Stack                       16f65c000-16fe5c000    [ 8192K] rw-\\/rwx SM=PRV  thread 0",
    )
)
ABORT = NULL.replace(
    '"type":"EXC_BAD_ACCESS","signal":"SIGSEGV","subtype":"KERN_INVALID_ADDRESS at 0x0000000000000010"',
    '"type":"EXC_CRASH","signal":"SIGABRT"',
).replace('"faultingThread"', '"asi" : {"libsystem_c.dylib":["abort() called"]},\n  "faultingThread"')
THROWN = ABORT.replace(
    '{"libsystem_c.dylib":["abort() called"]}',
    '{"libc++abi.dylib":["terminating due to uncaught exception of type std::runtime_error: no such table"],"libsystem_c.dylib":["abort() called"]}',
)
SMASHED = ABORT.replace("abort() called", "stack buffer overflow")
TRANSLATED = NULL.replace('"cpuType" : "ARM-64"', '"cpuType" : "X86-64",\n  "translated" : true').replace(
    '"type":"EXC_BAD_ACCESS","signal":"SIGSEGV","subtype":"KERN_INVALID_ADDRESS at 0x0000000000000010"',
    '"type":"EXC_BAD_INSTRUCTION","signal":"SIGILL"',
)
# The termination of a published report of an app without libvips; the program's name is Python here.
MISSING = r"""{"app_name":"python3.12","timestamp":"2026-05-31 19:44:14.00 -0700","bug_type":"309","os_version":"macOS 14.5"}
{
  "procName" : "python3.12",
  "pid" : 812,
  "fatalDyldError" : 1,
  "exception" : {"codes":"0x0000000000000000, 0x0000000000000000","rawCodes":[0,0],"type":"EXC_CRASH","signal":"SIGABRT"},
  "termination" : {"code":1,"flags":518,"namespace":"DYLD","indicator":"Library missing","details":["(terminated at launch; ignore backtrace)"],"reasons":["Library not loaded: @rpath\/libpython3.12.dylib","Referenced from: <B204EE5D-725A-3B87-99F9-E94F726023EC> \/opt\/app\/bin\/python3.12","Reason: tried: '\/opt\/app\/lib\/libpython3.12.dylib' (no such file)"]},
  "faultingThread" : 0,
  "threads" : [{"triggered":true,"id":77,"frames":[{"imageOffset":1,"symbol":"__abort_with_payload","imageIndex":0}]}]
}"""
CODESIGNING = (
    re.sub(r',"details".*?\]\}', "}", MISSING)
    .replace('"namespace":"DYLD","indicator":"Library missing"', '"namespace":"CODESIGNING","indicator":"Invalid Page"')
    .replace(
        '"type":"EXC_CRASH","signal":"SIGABRT"', '"type":"EXC_BAD_ACCESS","signal":"SIGKILL (Code Signature Invalid)"'
    )
)
JETSAM = '{"bug_type":"309"}\n{\n  "pid" : 99,\n  "exception" : {"type":"EXC_CRASH","signal":"SIGKILL"},\n  "termination" : {"namespace":"JETSAM","code":4,"indicator":"per-process-limit"}\n}'
# https://github.com/apache/arrow/issues/43339
CRASH = """Process:               Python [44247]
Path:                  /usr/local/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Python
Identifier:            Python
Version:               3.12.4 (3.12.4)
Code Type:             X86-64 (Native)
Parent Process:        bash [15832]

Date/Time:             2024-09-09 18:17:35.557 +0800
OS Version:            macOS 11.7.10 (20G1427)
Report Version:        12

Crashed Thread:        4

Exception Type:        EXC_BAD_ACCESS (SIGSEGV)
Exception Codes:       KERN_INVALID_ADDRESS at 0x00000000020a9b54
Exception Note:        EXC_CORPSE_NOTIFY

Termination Signal:    Segmentation fault: 11
Termination Reason:    Namespace SIGNAL, Code 0xb
Terminating Process:   exc handler [44247]

Thread 0:: Dispatch queue: com.apple.main-thread
0   libsystem_kernel.dylib        \t0x00007fff204c0cce __psynch_cvwait + 10

Thread 4 Crashed:
0   libarrow.1700.dylib           \t0x000000011a3b2c14 arrow::internal::ThreadPool::LaunchWorkersUnlocked(int) + 212
1   libarrow.1700.dylib           \t0x000000011a3b36aa arrow::internal::ThreadPool::SpawnReal(arrow::StopToken) + 138 (pool.cc:88)
2   libsystem_pthread.dylib       \t0x00007fff204f18fc _pthread_start + 224

Thread 4 crashed with X86 Thread State (64-bit):
  rax: 0x0000000000000000  rbx: 0x00007ff8a1b2c3d0  rcx: 0x00007ff8a1b2c3d0
  rip: 0x000000011a3b2c14  rfl: 0x0000000000010206  cr2: 0x00000000020a9b54
  rsp: 0x000070000d2b5e40

Logical CPU:     2
Error Code:      0x00000006 (no mapping for user data write)
Trap Number:     14

Binary Images:
       0x10a6e9000 -        0x10a6ecfff +org.python.python (3.12.4 - 3.12.4) <AAE0A7F5-1B0E-3E6B-8C3C-0F3F7E2D9C11> /usr/local/python3.12
       0x11a2f4000 -        0x11c0a3fff +libarrow.1700.dylib (0) <8A2B6F10-2D4C-3E55-B1F0-9C7E33AA0D42> /usr/local/lib/python3.12/site-packages/pyarrow/libarrow.1700.dylib
    0x7fff204bc000 -     0x7fff204eafff  libsystem_kernel.dylib (7195.141.49) <5EA7D58D-7C52-3F36-B5B8-0E2B8F4B8E5A> /usr/lib/system/libsystem_kernel.dylib
       0x200000000 -                ??? unknown
External Modification Summary:"""
# https://github.com/ViennaRSS/vienna-rss/issues/2002
EXCESSIVE = """Process:             Python [10334]
Path:                /opt/homebrew/Python
Code Type:           ARM-64 (Native)

OS Version:          macOS 26.0 (25A5346a)

Triggered by Thread: 8

Exception Type:    EXC_BAD_ACCESS (SIGBUS)
Exception Subtype: KERN_PROTECTION_FAILURE at 0x000000016f65bf80
Exception Message: Thread stack size exceeded due to excessive recursion
Exception Codes:   0x0000000000000002, 0x000000016f65bf80

Termination Reason:  Namespace SIGNAL, Code 10, Bus error: 10
Terminating Process: exc handler [10334]

VM Region Info: 0x16f65bf80 is in 0x16f658000-0x16f65c000;  bytes after start: 16256  bytes before end: 127
      REGION TYPE                    START - END         [ VSIZE] PRT/MAX SHRMOD  REGION DETAIL
      Stack                       16f5cc000-16f658000    [  560K] rw-/rwx SM=PRV  thread 7
--->  STACK GUARD                 16f658000-16f65c000    [   16K] ---/rwx SM=NUL  stack guard for thread 8
      Stack                       16f65c000-16f6e4000    [  544K] rw-/rwx SM=PRV  thread 8

Thread 8 Crashed:
0   CoreFoundation                	       0x18bd1a2b4 CFStringGetLength + 4
1   _op.cpython-311-darwin.so     	       0x1005a6e10 visit(Node*) + 300 (op.cc:31)
-------- RECURSION LEVEL 58038
2   _op.cpython-311-darwin.so     	       0x1005a6e10 visit(Node*) + 300 (op.cc:31)"""
# https://github.com/apple/tensorflow_macos/issues/253
RAISED = """Process:               Python [17165]
Version:               3.8.2 (3.8.2)
Code Type:             ARM-64 (Native)

Crashed Thread:        14

Exception Type:        EXC_CRASH (SIGABRT)
Exception Codes:       0x0000000000000000, 0x0000000000000000

Application Specific Information:
*** Terminating app due to uncaught exception 'NSRangeException', reason: '*** -[__NSArrayM objectAtIndexedSubscript:]: index 0 beyond bounds for empty array'
terminating with uncaught exception of type NSException
abort() called"""
OLD_DYLD = """Process:         Python [77]
Exception Type:        EXC_CRASH (SIGABRT)
Exception Codes:       0x0000000000000000, 0x0000000000000000

Termination Reason:    DYLD, [0x1] Library missing

Application Specific Information:
dyld: launch, loading dependent libraries

Dyld Error Message:
  Library not loaded: /usr/local/opt/openssl/lib/libssl.1.0.0.dylib
  Referenced from: /usr/local/bin/python3.7
  Reason: image not found"""
# dyld4 and dyld2 (Loader.cpp, dyld2.cpp), and CPython's words around dlerror().
DYLD = """dyld[67701]: Library not loaded: @rpath/libomp.dylib
  Referenced from: <1D4C196B-2627-3B71-9183-CDBAB8DE5498> /opt/app/lib/libop.dylib
  Reason: tried: '/opt/homebrew/lib/libomp.dylib' (mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64'))"""
DYLD_OLD = """dyld: Symbol not found: _clock_gettime
  Referenced from: /opt/app/libtensorflow_framework.so (which was built for Mac OS X 10.12)
  Expected in: /usr/lib/libSystem.B.dylib"""
IMPORT = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
    import xgboost
ImportError: dlopen(/opt/xgboost.so, 0x0006): Library not loaded: @rpath/libomp.dylib
  Referenced from: <1D4C196B-2627-3B71-9183-CDBAB8DE5498> /opt/xgboost.so
  Reason: tried: '/usr/local/lib/libomp.dylib' (no such file)"""
MALLOC = """Python(4711,0x1f8a3a200) malloc: *** error for object 0x60000253c080: pointer being freed was not allocated
Python(4711,0x1f8a3a200) malloc: *** set a breakpoint in malloc_error_break to debug
Abort trap: 6"""
ALL_IPS = [NULL, RECURSION, ABORT, THROWN, SMASHED, TRANSLATED, MISSING, CODESIGNING, JETSAM]
ALL_TEXT = [CRASH, EXCESSIVE, RAISED, OLD_DYLD]
ALL_LINES = [DYLD, DYLD_OLD, IMPORT, MALLOC, "zsh: foo\nIllegal instruction: 4"]


def fault(crash: Crash) -> tuple[str, str | None, int | None, str | None]:
    assert crash.fault is not None
    return crash.fault.signal, crash.fault.code, crash.fault.address, crash.fault.access


def test_ips() -> None:
    (piece,) = pieces(NULL, IPS)
    crash = piece.crash
    assert (piece.first, piece.last) == (1, NULL.count("\n") + 1)
    assert crash.pid == 4711
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x10, "read")
    assert crash.exit is not None
    assert crash.exit.signal == "SIGSEGV"
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.frames is not None
    first = thread.frames[0]
    assert (first.function, first.module, first.module_offset) == (
        "Node::weight() const",
        "_op.cpython-311-darwin.so",
        328,
    )
    assert (first.source, first.line, first.address) == ("op.cc", 31, 4421149000)
    assert thread.stack is not None
    assert thread.stack.is_main
    assert crash.threads is not None
    assert [one.name for one in crash.threads] == ["com.apple.main-thread", "worker"]
    assert crash.registers is not None
    assert (crash.registers["pc"], crash.registers["x1"]) == (4421149000, 16)
    assert crash.environment is not None
    assert (crash.environment.platform, crash.environment.python) == ("macOS 13.5", "3.10.10")


def test_recursion_as_macos_counts_it() -> None:
    crash = only(RECURSION, IPS)
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.stack is not None
    assert (thread.stack.low, thread.stack.size, thread.stack.guard_hit) == (0x16F65C000, 8 << 20, True)
    assert thread.frames_total == 58039
    assert thread.frames is not None
    assert [frame.index for frame in thread.frames] == [0, 1, 58038]
    assert (thread.folds[0].functions, thread.folds[0].times) == (("visit(Node*)",), 58036)


def test_body_in_one_line() -> None:
    head, body = NULL.split("\n", 1)
    crash = only(f"{head}\n{json.dumps(json.loads(body))}", IPS)
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x10, "read")
    assert crash.threads is not None
    assert len(crash.threads) == 2


def test_threads_cut_off_leave_the_rest() -> None:
    lines = NULL.split("\n")
    place = next(i for i, line in enumerate(lines) if '"threads"' in line)
    lines[place] = lines[place][: lines[place].index("_PyEval")]
    crash = only("\n".join(lines), IPS)
    assert fault(crash)[:3] == ("SIGSEGV", "SEGV_MAPERR", 0x10)
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    assert crash.crashed_thread.frames[0].module == "_op.cpython-311-darwin.so", (
        "the images stand on lines of their own"
    )


def test_a_part_of_a_report() -> None:
    lines = NULL.split("\n")
    part = "\n".join(line for line in lines if '"exception"' in line or '"termination"' in line)
    assert fault(only(part, IPS))[0] == "SIGSEGV"


def test_two_reports() -> None:
    assert [piece.crash.pid for piece in pieces(f"{NULL}\n{MISSING}", IPS)] == [4711, 812]


def test_what_a_system_did_is_no_fault() -> None:
    for text in (MISSING, CODESIGNING, JETSAM):
        crash = only(text, IPS)
        assert crash.fault is None
        assert crash.exit is not None
    assert only(ABORT, IPS).fault is not None


def test_crash_text() -> None:
    (piece,) = pieces(CRASH, TEXT)
    crash = piece.crash
    assert piece.first == 1
    assert crash.pid == 44247
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x20A9B54, "write")
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.frames is not None
    assert thread.frames[0].function == "arrow::internal::ThreadPool::LaunchWorkersUnlocked(int)"
    assert (thread.frames[1].source, thread.frames[1].line) == ("pool.cc", 88)
    assert len(crash.threads or ()) == 2
    assert crash.registers is not None
    assert crash.registers["rsp"] == 0x70000D2B5E40


def test_images_are_modules() -> None:
    (piece,) = pieces(CRASH, TEXT)
    assert piece.last == len(CRASH.splitlines()) - 2
    found = [(str(one.low), str(one.high), one.version, one.path) for one in piece.crash.modules or ()]
    assert found == [
        ("0x10a6e9000", "0x10a6ed000", "3.12.4", "/usr/local/python3.12"),
        ("0x11a2f4000", "0x11c0a4000", None, "/usr/local/lib/python3.12/site-packages/pyarrow/libarrow.1700.dylib"),
        ("0x7fff204bc000", "0x7fff204eb000", "7195.141.49", "/usr/lib/system/libsystem_kernel.dylib"),
    ]
    modules = only(NULL, IPS).modules
    assert modules is not None
    assert [(one.path.rsplit("/", 1)[-1], int(one.high) - int(one.low)) for one in modules] == [
        ("_op.cpython-311-darwin.so", 49152),
        ("libsystem_kernel.dylib", 237568),
        ("Python", 49152),
    ]


def test_levels_of_a_recursion_in_text() -> None:
    thread = only(EXCESSIVE, TEXT).crashed_thread
    assert thread is not None
    assert thread.stack is not None
    assert (thread.stack.size, thread.stack.guard, thread.stack.guard_hit) == (544 * 1024, 16384, True)
    assert thread.folds[0].times == 58038
    assert thread.folds[0].functions == ("visit(Node*)",)


@pytest.mark.parametrize(
    ("text", "reader", "rule", "confidence", "said"),
    [
        (NULL, IPS, "null-dereference", "likely", "16 bytes"),
        (RECURSION, IPS, "stack-overflow-recursion", "certain", "58,0"),
        (ABORT, IPS, "abort", "likely", "abort()"),
        (THROWN, IPS, "uncaught-cpp-exception", "certain", "no such table"),
        (SMASHED, IPS, "stack-smash", "certain", "local arrays"),
        (TRANSLATED, IPS, "illegal-instruction", "likely", "Rosetta 2"),
        (MISSING, IPS, "missing-library", "certain", "libpython3.12.dylib"),
        (CODESIGNING, IPS, "killed-by-signal", "likely", "CODESIGNING"),
        (JETSAM, IPS, "out-of-memory-killed", "certain", "macOS killed"),
        (CRASH, TEXT, "invalid-write", "certain", "LaunchWorkersUnlocked"),
        (EXCESSIVE, TEXT, "stack-overflow-recursion", None, "visit"),
        (RAISED, TEXT, "uncaught-cpp-exception", "certain", "beyond bounds for empty array"),
        (OLD_DYLD, TEXT, "missing-library", "certain", "libssl.1.0.0.dylib"),
        (DYLD, LINES, "missing-library", "likely", "incompatible architecture"),
        (DYLD_OLD, LINES, "undefined-symbol", "likely", "clock_gettime"),
        (IMPORT, LINES, "missing-library", "likely", "libomp.dylib"),
        (MALLOC, LINES, "heap-corruption", "likely", "not a block of malloc"),
    ],
)
def test_verdict(text: str, reader: TextReader, rule: str, confidence: str | None, said: str) -> None:
    found = verdict(text, reader)
    assert (found.rule, found.confidence) == (rule, confidence or found.confidence), found.summary
    assert said in found.summary


def test_culprit_of_an_ips() -> None:
    culprit = verdict(NULL, IPS).culprit
    assert culprit is not None
    assert (culprit.function, culprit.module, culprit.line) == ("Node::weight() const", "_op.cpython-311-darwin.so", 31)


def test_signals_of_bash_have_the_numbers_of_macos() -> None:
    crash = only("Bus error: 10", LINES)
    assert crash.exit is not None
    assert crash.exit.signal == "SIGBUS"
    assert pieces("Bus error: 7", LINES) == []
    assert pieces('"indicator":"Abort trap: 6","byProc":"x"', LINES) == []


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        ('{"exception": "none", "threads": 4}', IPS),
        (NULL.replace('"bug_type":"309"', '"bug_type":"298"'), IPS),
        ("Exception Type:  ValueError", TEXT),
        ("Thread 4 Crashed:", TEXT),
        ("symbol not found in flat namespace is a message of dyld", LINES),
        ("Reason: image not found", LINES),
    ],
)
def test_what_is_no_death(text: str, reader: TextReader) -> None:
    assert pieces(text, reader) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["exception", "termination", "threads", "usedImages", "asi", "faultingThread", "pid"]), values
    )
)
def test_values_of_any_kind(fields: dict[str, object]) -> None:
    survive("{\n" + ",\n".join(f'  "{name}" : {json.dumps(value)}' for name, value in fields.items()) + "\n}", IPS)


@given(values, st.integers(0, 200))
def test_loose_json_reads_a_part(value: object, cut: int) -> None:
    text = json.dumps(value)
    assert loose_json.value_at(text, 0)[0] == value
    loose_json.value_at(text[:cut], 0)


def test_loose_json_keeps_what_was_there() -> None:
    assert loose_json.value_at('{"a": [1, {"b": "c', 0)[0] == {"a": [1, {"b": "c"}]}
    assert loose_json.fields('"pid" : 4, "threads" : [{"pid":5', "threads", "pid") == {
        "pid": 4,
        "threads": [{"pid": 5}],
    }
