"""The experiments that several rules bring: one thread, no GPU, no oneDNN, an allocator that checks.

Each changes one thing of the run from outside. What the variables do is said in the documentation of those who read
them: TensorFlow's environment variables, OpenMP 5.2 section 21 (OMP_NUM_THREADS), mallopt(3) and the glibc manual's
"Memory Allocation Tunables", Python's command line (PYTHONMALLOC), CUDA's "CUDA Environment Variables".
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from necropsy.model import Change, Crash, Fix, Outcome, Proposal
from necropsy.rules import xla
from necropsy.rules.shutdown import of_ending

HEAP = ("heap-corruption", "double-free", "heap-buffer-overflow", "use-after-free")
"""The verdicts on a damaged heap: which of them it is depends on where the damage is noticed."""

DAMAGE = (*HEAP, "python-fatal-error")
"""The verdicts of checks on Python's own objects and blocks."""

ONE_THREAD: dict[str, str | None] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}


def one_thread(*predicts: Outcome, proves: bool, refutes: bool, otherwise: str | None = None) -> Proposal:
    """All pools that can be set from outside have one thread."""
    return Proposal(
        name="one-thread",
        change=Change(environment=ONE_THREAD),
        text="one thread in each pool (OMP_NUM_THREADS=1, TF_NUM_INTRAOP_THREADS=1, ...)",
        predicts=predicts,
        proves=proves,
        refutes=refutes,
        fix=Fix(
            text="As a workaround, run it with one thread in each pool. It is slower, and hides what threads do to each other.",
            command="export OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1",
        ),
        otherwise=otherwise,
    )


def no_gpu(*predicts: Outcome, proves: bool = True, refutes: bool = True) -> Proposal:
    """The program sees no GPU."""
    return Proposal(
        name="no-gpu",
        change=Change(environment={"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}),
        text="the GPU is hidden (CUDA_VISIBLE_DEVICES=-1)",
        predicts=predicts,
        proves=proves,
        refutes=refutes,
        fix=Fix(text="As a workaround, run it without the GPU.", command="export CUDA_VISIBLE_DEVICES=-1"),
    )


def no_onednn(*predicts: Outcome, proves: bool = False, refutes: bool = False) -> Proposal:
    """TensorFlow's own kernels instead of oneDNN's."""
    return Proposal(
        name="no-onednn",
        change=Change(environment={"TF_ENABLE_ONEDNN_OPTS": "0"}),
        text="TensorFlow's own kernels instead of oneDNN's (TF_ENABLE_ONEDNN_OPTS=0)",
        predicts=predicts,
        proves=proves,
        refutes=refutes,
        fix=Fix(
            text="As a workaround, run it without oneDNN's kernels. It is slower.",
            command="export TF_ENABLE_ONEDNN_OPTS=0",
        ),
    )


def heap_is_checked() -> Proposal:
    """Glibc's checking allocator: damage to the heap is noticed at the next free or malloc of the same block."""
    return Proposal(
        name="malloc-check",
        change=Change(
            environment={"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}, preload=("libc_malloc_debug.so.0",)
        ),
        text="the C library's allocator checks each block (MALLOC_CHECK_=3, MALLOC_PERTURB_=165)",
        predicts=("another", "same"),
        proves=False,
        refutes=False,
        finds=HEAP,
    )


def heap_is_guarded() -> Proposal:
    """The guard allocator of ``run --guard``: the access beyond a block dies where it is made."""
    return Proposal(
        name="guard",
        change=Change(preload=("{GUARD}",)),
        text="buffers end at pages that may not be used (necropsy run --guard)",
        predicts=("another", "same"),
        proves=False,
        refutes=False,
        finds=HEAP,
    )


def tcache_is_off() -> Proposal:
    """No cache of freed blocks per thread: blocks lie elsewhere, and are checked when they are freed."""
    return Proposal(
        name="no-tcache",
        change=Change(environment={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}),
        text="freed blocks are not kept by each thread (GLIBC_TUNABLES=glibc.malloc.tcache_count=0)",
        predicts=("another", "same", "survives"),
        proves=False,
        refutes=False,
    )


def python_heap_is_checked() -> Proposal:
    """Python's debug allocator: guard bytes around each of Python's own blocks."""
    return Proposal(
        name="pythonmalloc-debug",
        change=Change(environment={"PYTHONMALLOC": "debug"}),
        text="Python's own allocator puts guards around each block (PYTHONMALLOC=debug)",
        predicts=("another", "same"),
        proves=False,
        refutes=False,
        finds=HEAP,
    )


def python_checks_itself() -> Proposal:
    """Python's development mode: its allocator checks as with PYTHONMALLOC=debug, and faults are told by line."""
    return Proposal(
        name="python-dev-mode",
        change=Change(environment={"PYTHONDEVMODE": "1"}),
        text="Python checks its own state (python -X dev)",
        predicts=("another", "same"),
        proves=False,
        refutes=False,
        finds=DAMAGE,
    )


def of_objects(crash: Crash) -> tuple[Proposal, ...]:
    """What finds a write to an object, or a freed one in use, nearer to where it is done; at the end, what skips it."""
    found = (python_heap_is_checked(), python_checks_itself(), heap_is_checked())
    return (*(msgspec.structs.replace(one, finds=DAMAGE) for one in found), *of_ending(crash))


def of_heap(crash: Crash) -> tuple[Proposal, ...]:
    """Experiments for a damaged heap: other checks, another layout; stack faults and null pointers ignore them.

    Several threads may have damaged it together, but one thread also changes the layout: survival may only mean that
    the damage goes unnoticed, so it is not a fix.
    """
    checks = heap_is_guarded(), heap_is_checked(), tcache_is_off(), python_heap_is_checked()
    alone = (msgspec.structs.replace(one, fix=None) for one in of_threads(crash))
    return (*checks, *alone)


def one_processor(*predicts: Outcome, otherwise: str) -> Proposal:
    """Pools that no variable reaches are made for as many processors as the process may use (sched_setaffinity(2))."""
    return Proposal(
        name="one-processor",
        change=Change(wrapper=("taskset", "-c", "{CPU}")),
        text="one processor, for which pools are created too (taskset -c 0)",
        predicts=predicts,
        proves=False,
        refutes=True,
        fix=Fix(
            text="As a workaround, let it use one processor. It is slower, and hides what threads do to each other.",
            command="taskset -c 0 COMMAND",
        ),
        otherwise=otherwise,
    )


def of_pointer(crash: Crash) -> tuple[Proposal, ...]:
    """A wrong pointer that the code itself makes is as wrong with one thread, wherever it strikes then."""
    pools = one_thread("same", "another", proves=False, refutes=True, otherwise="data-race")
    if crash.threads is not None and len(crash.threads) < 2:
        return (pools,)
    return pools, one_processor("same", "another", otherwise="data-race")


def of_threads(crash: Crash) -> tuple[Proposal, ...]:
    """What was checked and did not hold may hold with one thread: then it is what several of them do that is wrong."""
    if crash.threads is not None and len(crash.threads) < _SEVERAL:
        return ()
    return (one_thread("same", "another", proves=False, refutes=False),)


_SEVERAL = 2


def of_race(_crash: Crash) -> tuple[Proposal, ...]:
    """What only several threads can do, one cannot; but a program can have threads that no variable reaches."""
    return (one_thread("survives", proves=True, refutes=False),)


def of_gpu(_crash: Crash) -> tuple[Proposal, ...]:
    """What the GPU or its libraries do wrong cannot happen without them."""
    return (no_gpu("survives"),)


def of_surroundings(crash: Crash) -> tuple[Proposal, ...]:
    """Without a wrong library that came from a folder in LD_LIBRARY_PATH or by LD_PRELOAD.

    A function of another version than the program was built for may return pointers to something else.
    """
    variables = (crash.environment.variables if crash.environment is not None else None) or {}
    folders = {PurePosixPath(one) for one in variables.get("LD_LIBRARY_PATH", "").split(":") if one}
    loaded = [PurePosixPath(module.path) for module in crash.modules or () if module.path]
    forced = [PurePosixPath(one) for one in variables.get("LD_PRELOAD", "").replace(":", " ").split() if one]
    named = sorted({path.name for path in loaded if path.parent in folders} | {path.name for path in forced})
    if not named:
        return ()
    said = ", ".join(named[:4]) + (", ..." if len(named) > 4 else "")
    (proposal,) = of_library_path(crash)
    text = f"no LD_LIBRARY_PATH and no LD_PRELOAD (they brought {said})"
    otherwise = "conflicting-libraries"
    return (
        msgspec.structs.replace(
            proposal, text=text, predicts=("same", "another"), proves=False, refutes=True, otherwise=otherwise
        ),
    )


def of_library_path(_crash: Crash) -> tuple[Proposal, ...]:
    """A library that LD_LIBRARY_PATH puts before the right one is not found without it."""
    return (
        Proposal(
            name="no-library-path",
            change=Change(environment={"LD_LIBRARY_PATH": None, "LD_PRELOAD": None}),
            text="libraries are looked for without LD_LIBRARY_PATH and LD_PRELOAD",
            predicts=("survives",),
            # Where the wrong one lies in the environment itself, it is found all the same.
            refutes=False,
            fix=Fix(
                text="Start it without LD_LIBRARY_PATH: a library in there is taken for the right one.",
                command="unset LD_LIBRARY_PATH LD_PRELOAD",
            ),
        ),
    )


def of_openmp(_crash: Crash) -> tuple[Proposal, ...]:
    """The check for a second OpenMP runtime can be switched off: what then lives died of that check."""
    return (
        Proposal(
            name="two-openmp-allowed",
            change=Change(environment={"KMP_DUPLICATE_LIB_OK": "TRUE"}),
            text="a second OpenMP runtime is let pass (KMP_DUPLICATE_LIB_OK=TRUE)",
            predicts=("survives",),
            fix=Fix(
                text="As a workaround, let the second runtime pass. Intel calls that unsafe: results may be wrong.",
                command="export KMP_DUPLICATE_LIB_OK=TRUE",
            ),
        ),
    )


def of_threads_wanted(_crash: Crash) -> tuple[Proposal, ...]:
    """Fewer threads fit into a limit that all of them do not."""
    return (one_thread("survives", proves=True, refutes=False),)


def of_instruction(_crash: Crash) -> tuple[Proposal, ...]:
    """OneDNN chooses its instructions by what the processor says it has; without it TensorFlow's own are used."""
    return (no_onednn("survives", proves=False, refutes=False),)


DEPTH = 2_000_000
"""The limit on recursion that is tried: beyond it, Python's own frames would take gigabytes."""


def of_recursion_limit() -> tuple[Proposal, ...]:
    """Python counts levels and raises a RecursionError, whether or not there is stack left; beyond it there is none."""
    raised = ("import sys", f"sys.setrecursionlimit({DEPTH})")
    return (
        Proposal(
            name="recursion-limit",
            change=Change(at_start=raised),
            text=f"Python counts up to {DEPTH:,} levels before it raises (sys.setrecursionlimit)",
            predicts=("survives", "another"),
            refutes=False,
            fix=Fix(text="Raise Python's limit on recursion.", command=f"sys.setrecursionlimit({DEPTH})"),
        ),
        Proposal(
            name="recursion-limit-and-stack",
            change=Change(at_start=raised, stack_limit=1 << 30),
            text=f"the same, and the main thread has 1 GiB of stack (ulimit -s {1 << 20})",
            predicts=("survives",),
            refutes=False,
            fix=Fix(
                text="As a workaround, raise Python's limit, and start it with the stack that this many levels take in native code. A loop with its own list as the stack needs neither.",
                command=f"ulimit -s {1 << 20}  # and sys.setrecursionlimit({DEPTH}) in the program",
            ),
        ),
    )


def without_v2_behaviour(fix: Fix) -> Proposal:
    """TensorFlow builds graphs as TensorFlow 1 did: what a Session is handed then is a node of one."""
    return Proposal(
        name="tf2-behaviour-off",
        change=Change(at_start=("import tensorflow.compat.v1 as tf", "tf.disable_v2_behavior()")),
        text="TensorFlow 2's behaviour is switched off before anything else (tf.disable_v2_behavior())",
        predicts=("survives",),
        # Code that uses names of TensorFlow 1 fails all the same.
        refutes=False,
        fix=fix,
    )


def of_frames(crash: Crash) -> tuple[Proposal, ...]:
    """What may be left out because it is on the stack of the thread that died, whatever the verdict is."""
    thread = crash.crashed_thread
    frames = (thread.frames if thread is not None else None) or ()
    found = list(of_ending(crash))
    if xla.is_in(crash):
        found.append(xla.without_xla())
    if any("dnnl::" in (frame.function or "") or "dnnl_" in (frame.function or "") for frame in frames):
        found.append(no_onednn("survives"))
    return tuple(found)
