"""Real processes die, a hundred of them in known ways, and what necropsy says is held against what is true.

The table was written from the mechanism of each crasher and from plain runs, before the tool was asked. A case that
fails is a defect of the tool until the mechanism says otherwise.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import shared_runs
import warm
from crashers import build

HERE = Path(__file__).parent / "crashers"
SECONDS = 60

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="the crashers need gcc and g++"),
]


@dataclass(frozen=True)
class Case:
    """``command``: a script of crashers/, where a name such as ``stack.c`` stands for its compiled library.

    ``rules``: the verdicts that are right; None among them: to be silent is right too; empty: there must be none.
    ``culprit``: one of these is in the name of the culprit; empty: not asked, because no function seen did it.
    ``line``: True: the line marked ``# the line`` is named; None: that line or none; False: not asked.
    """

    name: str
    command: str
    ends: int
    rules: tuple[str | None, ...] = ()
    culprit: tuple[str, ...] = ()
    line: bool | None = True
    log: str = "auto"
    """How necropsy reads the log; ``off``: the words of the dead must come from its memory."""
    without_log: str | None = None
    """The weaker verdict of a user without capabilities whose stderr is a pipe (docs/how-to/log-modes.md says why)."""


def call(function: str, source: str, ends: int, *rules: str | None, **more: Any) -> Case:
    """A function of a library, called through ctypes. The function's own name is the culprit's unless told."""
    name, *arguments = function.split()
    options = more.pop("options", "")
    more.setdefault("culprit", (name,) if rules else ())
    silent = ["unheard"] if more.get("log") == "off" else []
    label = "-".join([name, *arguments, *options.replace("--", "").split(), *silent])
    return Case(label, " ".join(["call.py", options, source, name, *arguments]), ends, rules, **more)


ABRT, ALRM, BUS, FPE, ILL, KILL, SEGV, SYS, TERM, TRAP = -6, -14, -7, -8, -4, -9, -11, -31, -15, -5
NOBODY = "nobody"
"""The culprit where the function that did it has no name: to name its caller would be wrong."""

CASES = [
    # Pointers
    call("null_read", "pointers.c", SEGV, "null-dereference"),
    call("null_write", "pointers.c", SEGV, "null-dereference"),
    call("null_member", "pointers.c", SEGV, "null-dereference"),
    call("null_memcpy", "pointers.c", SEGV, "null-dereference"),
    call("null_call", "pointers.c", SEGV, "bad-jump", "null-dereference"),
    call("null_read", "pointers.c", SEGV, "null-dereference", options="--thread"),
    call("null_read", "pointers.c", SEGV, "null-dereference", options="--faulthandler"),
    call("wild_read", "pointers.c", SEGV, "invalid-read"),
    call("wild_write", "pointers.c", SEGV, "invalid-write"),
    call("non_canonical_read", "pointers.c", SEGV, "invalid-read"),
    call("non_canonical_write", "pointers.c", SEGV, "invalid-write"),
    call("write_constant", "pointers.c", SEGV, "write-to-readonly", "invalid-write"),
    call("read_unmapped", "pointers.c", SEGV, "invalid-read"),
    call("call_data", "pointers.c", SEGV, "bad-jump"),
    call("call_heap", "pointers.c", SEGV, "bad-jump"),
    call("call_unmapped", "pointers.c", SEGV, "bad-jump"),
    call("return_to_garbage 64", "bare.c", SEGV, "bad-jump", "stack-smash"),
    # Stack
    call("infinite_recursion 1", "stack.c", SEGV, "stack-overflow-recursion"),
    call("infinite_recursion 1", "stack.c", SEGV, "stack-overflow-recursion", options="--thread"),
    call("infinite_recursion 1", "stack.c", SEGV, "stack-overflow-recursion", options="--faulthandler"),
    call("mutual_recursion 1", "stack.c", SEGV, "stack-overflow-recursion", culprit=("ping", "pong")),
    call("recursion_with_malloc 1", "stack.c", SEGV, "stack-overflow-recursion"),
    call("bounded_recursion 1000", "stack.c", 0),
    call(
        # 10,000 frames of 32 bytes: too many for 64 KiB, and a thirtieth of what a thread has by default.
        "recursion_in_small_thread",
        "stack.c",
        SEGV,
        "stack-overflow-recursion",
        "stack-overflow-small-stack",
        culprit=("bounded",),
        line=None,
    ),
    call("big_local", "stack.c", SEGV, "stack-overflow-large-frame"),
    call("big_alloca 16777216", "stack.c", SEGV, "stack-overflow-large-frame"),
    call(
        "large_in_small_thread",
        "stack.c",
        SEGV,
        "stack-overflow-small-stack",
        culprit=("half_a_megabyte",),
        line=None,
    ),
    call(
        "recursion_in_handler",
        "moved_stacks.c",
        SEGV,
        "stack-overflow-recursion",
        "stack-overflow-small-stack",
        culprit=("visit",),
    ),
    call(
        "large_local_in_handler",
        "moved_stacks.c",
        SEGV,
        "stack-overflow-small-stack",
        culprit=("one_large_local",),
    ),
    call("lost_stack", "moved_stacks.c", SEGV, "invalid-write", line=None),
    call("null_read_in_handler", "moved_stacks.c", SEGV, "null-dereference", culprit=("null_handler",)),
    call(
        "recursion_in_coroutine",
        "moved_stacks.c",
        SEGV,
        "stack-overflow-recursion",
        "stack-overflow-small-stack",
        culprit=("visit",),
    ),
    call(
        "recursion_below_variables",
        "moved_stacks.c",
        SEGV,
        "stack-overflow-recursion",
        "stack-overflow-small-stack",
        culprit=("visit",),
    ),
    call("long_list 1000000", "exceptions.cc", SEGV, "stack-overflow-recursion", culprit=("Link",)),
    # Which of its lines Python stands on when the stack ends is chance.
    Case("bounce", "bounce.py stack.c", SEGV, ("stack-overflow-recursion",), ("bounce", "again"), line=False),
    Case("map-chain", "map_chain.py", SEGV, ("stack-overflow-recursion",), ("map_next",)),
    call("stack_smash 64", "smash.c", ABRT, "stack-smash"),
    call("stack_smash 16", "smash.c", 0),
    call("fortified_memcpy 64", "fortify.c", ABRT, "buffer-overflow-fortify"),
    call("fortified_sprintf 7", "fortify.c", ABRT, "buffer-overflow-fortify"),
    # Heap: where an overrun is noticed is not where it was done, so no culprit is asked for.
    call("double_free_tcache", "heap.c", ABRT, "double-free"),
    call("double_free_fasttop", "heap.c", ABRT, "double-free"),
    call("free_of_local", "heap.c", ABRT, "heap-corruption", culprit=()),
    call("free_inside", "heap.c", ABRT, "heap-corruption", culprit=()),
    call("overflow_next_size", "heap.c", ABRT, "heap-corruption", culprit=()),
    call("overflow_into_freed", "heap.c", ABRT, "heap-corruption", culprit=()),
    call("overflow_top", "heap.c", ABRT, "heap-corruption", culprit=()),
    call("write_after_free", "heap.c", ABRT, "heap-corruption", "use-after-free", culprit=()),
    Case(
        # The collector met it: what was read is certain, who had overwritten it is not.
        "overwritten-object",
        "overwritten_object.py",
        SEGV,
        ("damaged-object", None),
        line=False,
    ),
    # Abort
    call("failed_assert 3", "aborts.c", ABRT, "assertion-failed"),
    call("plain_abort", "aborts.c", ABRT, "abort"),
    call("failed_check 1 2", "check.cc", ABRT, "check-failed"),
    call("said_something_then_abort", "aborts.c", ABRT, "abort"),
    Case("os-abort", "signals.py abort 6", ABRT, ("ended-by-its-own-call",)),
    call("throw_runtime_error 7", "exceptions.cc", ABRT, "uncaught-cpp-exception"),
    call("throw_own_error", "exceptions.cc", ABRT, "uncaught-cpp-exception"),
    call("throw_int", "exceptions.cc", ABRT, "uncaught-cpp-exception"),
    call("vector_at", "exceptions.cc", ABRT, "uncaught-cpp-exception", culprit=("vector",)),
    call("throw_in_thread", "exceptions.cc", ABRT, "uncaught-cpp-exception", line=None),
    call("throw_in_noexcept", "exceptions.cc", ABRT, "uncaught-cpp-exception"),
    call("empty_function", "exceptions.cc", ABRT, "uncaught-cpp-exception", culprit=()),
    call("out_of_memory", "exceptions.cc", ABRT, "uncaught-cpp-exception", "allocation-failed", culprit=()),
    # No exception was there: std::terminate was called by the destructor of a thread that nobody joined.
    call("forgotten_join", "exceptions.cc", ABRT, "abort", culprit=("forgotten_join", "~thread")),
    call("pure_virtual", "exceptions.cc", ABRT, "pure-virtual-call", "abort", culprit=("Base::hello", "pure_virtual")),
    # Arithmetic, instructions
    call("divide_by_zero 0", "arithmetic.c", FPE, "integer-divide-by-zero"),
    call("modulo_by_zero 0", "arithmetic.c", FPE, "integer-divide-by-zero"),
    call("divide_int_min -1", "arithmetic.c", FPE, "integer-divide-by-zero"),
    call("trap", "arithmetic.c", ILL, "deliberate-trap"),
    call("breakpoint", "arithmetic.c", TRAP, "deliberate-trap"),
    call("invalid_opcode", "arithmetic.c", ILL, "illegal-instruction"),
    call("xop_instruction", "arithmetic.c", ILL, "illegal-instruction"),
    # `hlt` is a valid instruction that only the kernel may execute; it touches no memory.
    call("privileged", "arithmetic.c", SEGV, "illegal-instruction", None),
    # Files, signals
    call("truncated_file", "memory_map.c", BUS, "bus-error"),
    call("mended_fault", "memory_map.c", 0),
    Case("kill-itself", "signals.py self 9", KILL, ("killed-by-signal",), line=False),
    Case("sent-segv", "signals.py self 11", SEGV, ("ended-by-its-own-call",), line=False),
    Case("sent-fpe", "signals.py self 8", FPE, ("ended-by-its-own-call",), line=False),
    Case("sent-term", "signals.py child 15", TERM, ("killed-by-signal",), line=False),
    # Threads, processes
    call("two_threads_crash", "threads.c", SEGV, "null-dereference", culprit=("write_null",), line=None),
    call("crash_beside_sleepers", "threads.c", SEGV, "null-dereference"),
    Case("forked", "forked.py pointers.c", 0, ("null-dereference",), ("null_read",)),
    Case("alarm", "signals.py alarm 14", ALRM, ("killed-by-signal",), line=False),
    # What makes it hard: no names, no file, no log, a misleading log, a fault that is caught, an end after the end
    call("visible 0", "hidden.c", SEGV, "null-dereference", culprit=(NOBODY,)),
    call("generated_code", "jit.c", SEGV, "null-dereference", culprit=(NOBODY,)),
    call("generated_recursion", "jit.c", SEGV, "stack-overflow-recursion", culprit=("generated-code",)),
    Case("talker", "talker.py pointers.c", SEGV, ("null-dereference",), ("null_read",)),
    call("handled_by_exit", "handlers.c", 7, "null-dereference"),
    call("rethrow_nothing", "exceptions.cc", ABRT, "uncaught-cpp-exception"),
    call("throw_into_a_trap", "exceptions.cc", ILL, "uncaught-cpp-exception", culprit=("throw_into_a_trap",)),
    call("forbidden_call", "filters.c", SYS, "killed-by-signal", culprit=("getppid", "forbidden_call")),
    call(
        "forbidden_call",
        "filters.c",
        SYS,
        "killed-by-signal",
        options="--thread",
        culprit=("getppid", "forbidden_call"),
    ),
    call("null_read_after_a_thread", "filters.c", SEGV, "null-dereference"),
    call("throw_at_exit", "exceptions.cc", ABRT, "uncaught-cpp-exception", line=None),
    call("failed_check 1 2", "check.cc", ABRT, "check-failed", log="off"),
    call("failed_assert 3", "aborts.c", ABRT, "assertion-failed", log="off"),
    call("throw_own_error", "exceptions.cc", ABRT, "uncaught-cpp-exception", log="off"),
    call("stack_smash 64", "smash.c", ABRT, "stack-smash", log="off"),
    call("fortified_memcpy 64", "fortify.c", ABRT, "buffer-overflow-fortify", log="off"),
    call("double_free_tcache", "heap.c", ABRT, "double-free", log="off"),
    call("overflow_next_size", "heap.c", ABRT, "heap-corruption", culprit=(), log="off"),
    call("fatal_error", "interpreter.c", ABRT, "python-fatal-error", options="--gil", log="off"),
    Case("subprocess", "parent.py pointers.c", 0, ("null-dereference",), ("null_read",), line=False),
    # Interpreter
    call("fatal_error", "interpreter.c", ABRT, "python-fatal-error", options="--gil"),
    call(
        "error_without_gil",
        "interpreter.c",
        SEGV,
        "python-without-gil",
        "null-dereference",
        culprit=("error_without_gil", "PyErr_Occurred"),
    ),
    Case("exception", "endings.py exception", 1, ("python-exception",), without_log="exit-status-only"),
    Case(
        "recursion-error", "endings.py recursion", 1, ("python-exception",), line=False, without_log="exit-status-only"
    ),
    # Nothing to find
    Case("healthy", "endings.py healthy", 0),
    Case("handled", "endings.py handled", 0),
    Case("exit", "endings.py exit", 1, (None, "exit-status-only"), line=False),
    Case("quiet-exit", "endings.py quiet-exit", 3, (None, "exit-status-only"), line=False),
]
if sys.version_info < (3, 12):  # later ones count the depth of C code, and raise
    CASES.append(Case("deep-repr", "deep_repr.py", SEGV, ("stack-overflow-recursion",), ("repr", "Repr")))

NAMES = [case.name for case in CASES]


def command_of(case: Case) -> list[str]:
    """The case's command line, with everything compiled that it needs."""
    script, *words = case.command.split()
    return [sys.executable, str(HERE / script), *(str(build.library(w)) if w in build.FLAGS else w for w in words)]


LIMITS = {
    resource.RLIMIT_CORE: (0, 0),
    resource.RLIMIT_STACK: (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]),
}
"""The usual stack, and no core."""


def limits() -> None:
    """In the child."""
    for number, limit in LIMITS.items():
        resource.setrlimit(number, limit)


def run(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=limits,
        env=environment,
    )


def marked_line(case: Case) -> int | None:
    lines = (HERE / case.command.split()[0]).read_text().splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.endswith("# the line")), None)


def examine(
    case: Case, folder: Path, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The document of one run, and how the command ended. ``before`` is put in front of necropsy itself."""
    report = folder / f"{case.name}.json"
    words = ["run", "--log", case.log, "--json", str(report), "--", *command_of(case)]
    done = warm.run(*words, cwd=folder, env=environment, limits=LIMITS, before=before)
    assert report.exists(), f"no document; stderr: {done.stderr[-2000:]}"
    document: dict[str, Any] = json.loads(report.read_text())
    document["returncode"] = done.returncode
    document["stderr"] = done.stderr
    return document


def verdict_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict on the first death, which is the command's own unless only a child died."""
    return document["reports"][0]["verdict"] if document["reports"] else None


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every run leaves its document for the count at the end, whichever worker ran it."""
    return kept_in(tmp_path_factory.getbasetemp())


def kept_in(base: Path) -> Path:
    """The folder of these documents, below the temporary folder of a worker or of the only process."""
    return shared_runs.folder_of(base, "crashers-seen")


def examined(case: Case, seen: Path, folder: Path) -> dict[str, Any]:
    """The document of the case's one run."""
    result: dict[str, Any] = shared_runs.once(seen, case.name, lambda: examine(case, folder))
    return result


def test_names_differ() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_crasher(case: Case, tmp_path: Path, seen: Path) -> None:
    plain = run(command_of(case), tmp_path)
    assert plain.returncode == case.ends, f"the crasher does not do what it is for: {plain.stderr[-2000:]}"

    document = examined(case, seen, tmp_path)
    assert document["returncode"] == plain.returncode
    assert document["complete"]
    hold(case, document)


def hold(case: Case, document: dict[str, Any], rules: tuple[str | None, ...] = ()) -> None:
    """The document says what is true of the case; ``rules``: weaker verdicts that are right here, without a line."""
    found = verdict_of(document)
    told = f"{found and found['rule']}: {found and found['summary']}\n{document['gaps']}\n{document['stderr'][-3000:]}"
    if found is None:
        assert not case.rules or None in case.rules, told
        return
    if found["rule"] in rules:
        return
    assert found["rule"] in case.rules, told
    culprit = found["culprit"] or {}
    if case.culprit:
        assert any(name in (culprit.get("function") or NOBODY) for name in case.culprit), told
    if case.line is not False:
        place = (culprit.get("python") or {}).get("line")
        assert place == marked_line(case) or (case.line is None and place is None), (place, told)


def test_no_certain_verdict_is_wrong_and_most_right_ones_are_certain(seen: Path, tmp_path: Path) -> None:
    """A quick reader trusts the word *certain*: it must not lie, and it must not be too rare to be of use."""
    right, certain = 0, 0
    for case in CASES:
        found = verdict_of(examined(case, seen, tmp_path))
        if found is None:
            continue
        if found["rule"] in case.rules:
            right += 1
            certain += found["confidence"] == "certain"
        else:
            assert found["confidence"] != "certain", f"{case.name}: certain of {found['rule']}"
    assert right >= 25
    assert certain / right >= 0.6, f"{certain} certain of {right} right"
