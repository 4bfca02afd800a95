"""Reports built from model objects: what the golden files are rendered from."""

from __future__ import annotations

from typing import Any

import msgspec

from necropsy.model import (
    Address,
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fault,
    Fix,
    Fold,
    Frame,
    Gap,
    Instruction,
    LockWait,
    NotTried,
    Process,
    PythonPlace,
    Report,
    Stack,
    StackUse,
    Subject,
    Thread,
    Tool,
    Wait,
)

PYTHON = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"
OP = "/home/u/ops/deep.so"


def native(index: int, function: str | None, module: str | None = OP, **more: Any) -> Frame:
    return Frame(index=index, kind="native", function=function, module=module, **more)


def thread_of(*octets: int, used: int, folds: tuple[Fold, ...] = (), guard: bool = False) -> Thread:
    return Thread(
        tid=1,
        crashed=True,
        complete=True,
        frames=tuple(native(index, f"f{index}", stack_bytes=size) for index, size in enumerate(octets)),
        folds=folds,
        stack=Stack(size=1 << 20, used=used, guard_hit=guard),
    )


def with_thread(thread: Thread) -> Report:
    crash = Crash(pid=1, fault=Fault(signal="SIGSEGV"), threads=(thread,))
    return Report(pid=1, crash=crash)


RECURSION = Report(
    pid=4711,
    took_s=0.634,
    signature="stack-overflow-recursion|Walk|0123456789ab",
    crash=Crash(
        pid=4711,
        exit=Exit(kind="signaled", signal="SIGSEGV"),
        fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0x7FFC9F8FEFF8), access="write"),
        instruction=Instruction(address=Address(0x7F0000001000), text="call 0x7f0000001000"),
        threads=(
            Thread(
                tid=4711,
                name="python3",
                crashed=True,
                frames_total=104_690,
                complete=True,
                frames=(
                    native(0, "malloc", "/lib/libc.so.6"),
                    *(native(n, "Walk(Node const*, int)", source="/home/u/ops/deep.cc", line=12) for n in range(1, 20)),
                    *(native(n, "Walk(Node const*, int)") for n in range(104_640, 104_653)),
                    native(
                        104_653,
                        "tensorflow::(anonymous namespace)::DeepOp<Eigen::ThreadPoolDevice, float>::Compute"
                        "(tensorflow::OpKernelContext*)",
                        source="/home/u/ops/deep.cc",
                        line=31,
                    ),
                    native(104_654, "_PyEval_EvalFrameDefault", PYTHON),
                    native(104_655, "_PyFunction_Vectorcall", PYTHON),
                    native(104_656, "_PyEval_EvalFrameDefault", PYTHON),
                    native(104_657, "Py_RunMain", PYTHON),
                    native(104_658, "__libc_start_main", "/lib/libc.so.6"),
                    native(104_659, "_start", "/usr/bin/python3.11"),
                ),
                folds=(
                    Fold(
                        period=1,
                        times=104_652,
                        functions=("Walk(Node const*, int)",),
                        modules=(OP,),
                        bytes_per_period=80.0,
                        start=1,
                    ),
                ),
                python=(
                    Frame(
                        index=0,
                        kind="python",
                        function="step",
                        source="/home/u/train.py",
                        line=41,
                        evaluated_by=104_654,
                    ),
                    Frame(
                        index=1,
                        kind="python",
                        function="<module>",
                        source="/home/u/train.py",
                        line=60,
                        evaluated_by=104_656,
                        locals={"depth": "100000", "name": "'walk'"},
                    ),
                ),
                stack=Stack(
                    low=Address(0x7FFC9F8FF000),
                    high=Address(0x7FFCA00FF000),
                    size=8 << 20,
                    used=(8 << 20) + 8,
                    guard_hit=True,
                    is_main=True,
                ),
            ),
        ),
    ),
    verdict=Diagnosis(
        rule="stack-overflow-recursion",
        title="A recursion used up the stack",
        summary="`Walk` in deep.so called itself 104,652 times until the 8 MiB stack of the main thread was used up.",
        severity="error",
        confidence="certain",
        evidence=(
            Evidence(
                claim="the stack is full",
                seen="the fault address 0x7ffc9f8feff8 lies 8 bytes below the stack of the main thread",
                where="signal information, memory map of the process",
            ),
            Evidence(claim="the same calls repeat", seen="Walk repeats 104,652 times, 80 bytes of stack each time"),
        ),
        culprit=Culprit(
            function="Walk(Node const*, int)",
            module="deep.so",
            source="/home/u/ops/deep.cc",
            line=12,
            python=PythonPlace(function="step", file="/home/u/train.py", line=41),
            op="Deep",
            kernel="DeepOp",
        ),
        fixes=(
            Fix(text="Turn the recursion in `Walk` into a loop with a stack of its own (std::vector)."),
            Fix(
                text="As a workaround, start the program from a shell with a stack of 64 MiB.",
                command="ulimit -s 65536",
            ),
            Fix(text="Check the input for cycles.", verified=False),
        ),
    ),
    alternatives=(
        Diagnosis(
            rule="stack-overflow-small-stack",
            title="t",
            summary="The stack of 8 MiB is smaller than the program needs.",
            severity="error",
            confidence="possible",
            evidence=(Evidence(claim="c", seen="s"),),
        ),
    ),
    not_tried=(
        NotTried(rule="check-failed", reason="messages not captured: stderr is a socket"),
        NotTried(rule="abort", reason="messages not captured: stderr is a socket"),
    ),
    gaps=(Gap(part="log_tail", why="stderr is a socket"), Gap(part="log_tail", why="stderr is a socket")),
)

UNKNOWN = Report(
    pid=12,
    crash=Crash(
        pid=12,
        exit=Exit(kind="signaled", signal="SIGUSR1"),
        gaps=(Gap(part="threads", why="ptrace is not permitted here"),),
    ),
    gaps=(Gap(part="threads", why="ptrace is not permitted here"),),
)


def python_frame(index: int, function: str, line: int, code: str, excerpt: tuple[str, ...] = ()) -> Frame:
    """A line of the user's own script."""
    return Frame(
        index=index,
        kind="python",
        function=function,
        source="/home/u/train.py",
        line=line,
        code=code,
        excerpt=excerpt,
        owner="script",
    )


def waiting(tid: int, name: str, lock: str, owner: int | None, line: int) -> Thread:
    """A thread that waits for a lock in a line of the user's."""
    return Thread(
        tid=tid,
        name=name,
        frames=(native(0, "futex_wait", "/lib/libc.so.6"), native(1, f"work_{line}")),
        python=(python_frame(0, "work", line, f"lock_{line}.acquire()", ("def work():", "    lock.acquire()", "")),),
        waits=Wait(call="futex", on=lock, owner=owner),
    )


def with_lock_circle() -> Report:
    """Two threads that wait for each other, and one that waits for them."""
    first, second = "the mutex at 0x7f0000001000", "the mutex at 0x7f0000002000"
    threads = (
        waiting(1, "python", "the lock at 0x7f0000003000", None, 30),
        waiting(2, "loader", second, 3, 10),
        waiting(3, "writer", first, 2, 20),
    )
    place = Culprit(python=PythonPlace(function="work", file="/home/u/train.py", line=10))
    verdict = Diagnosis(
        rule="hang",
        title="t",
        summary="The program is deadlocked: thread 2 (loader) waits for a lock that thread 3 (writer) holds.",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="thread 2 (loader) waits for a lock", seen=f"{second}: owner 3", where="the lock"),),
        deadlock=(
            LockWait(thread=2, name="thread 2 (loader)", lock=second, holder=3, where=place),
            LockWait(thread=3, name="thread 3 (writer)", lock=first, holder=2, where=place),
        ),
    )
    return Report(pid=1, crash=Crash(pid=1, exit=Exit(kind="timeout"), threads=threads), verdict=verdict)


def with_many_threads(count: int, calls: int = 60) -> Report:
    """A hang in which each thread is at a place of its own, with calls that have long names."""
    threads = tuple(
        msgspec.structs.replace(
            waiting(tid, f"pool-{tid}", f"the lock at {0x7F0000000000 + tid:#x}", None, tid),
            frames=tuple(
                native(index, f"tensorflow::{'Longish' * 20}<{tid}>::call_{index}(tensorflow::OpKernelContext*)")
                for index in range(calls)
            ),
        )
        for tid in range(1, count + 1)
    )
    return Report(pid=1, crash=Crash(pid=1, exit=Exit(kind="timeout"), threads=threads))


def document(*reports: Report, processes: tuple[Process, ...] = ()) -> Document:
    return Document(
        kind="run",
        id="20261121T004512Z-9f86d081",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process", command=("python", "train.py")),
        processes=processes,
        reports=reports,
    )


COMMAND = Process(
    pid=4711,
    role="command",
    command=("python", "train.py"),
    exit=Exit(kind="exited", code=0),
    wall_s=5.24,
    peak_rss=612_000_000,
    stacks=(
        StackUse(tid=4711, name="python3", size=8 << 20, peak=3_250_000),
        StackUse(tid=4712, name="tf_Compute", size=8 << 20, peak=20_480),
        StackUse(tid=4713, name="tf_Compute", size=8 << 20, peak=645_120),
        StackUse(tid=4714, name="tf_graph_runner", size=8 << 20, peak=None),
    ),
)

WORKER = Process(pid=12, parent=4711, role="worker", command=("python", "-c", "from multiprocessing.spawn import x"))

CASES = {
    "recursion": document(RECURSION, processes=(COMMAND,)),
    "unknown-in-a-worker": document(UNKNOWN, processes=(COMMAND, WORKER)),
    "healthy": document(processes=(COMMAND,)),
}
