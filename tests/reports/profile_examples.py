"""Profiles of runs that never were, for tests of their pages."""

from __future__ import annotations

from necropsy.model import (
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fix,
    Gap,
    HeapFrame,
    HeapStack,
    HeapUse,
    HeldArray,
    Limit,
    Process,
    ProfileMark,
    PythonPlace,
    ResourceUse,
    StackFunction,
    StackUse,
    Subject,
    Tool,
)

KIB, MIB = 1 << 10, 1 << 20

PARSE = StackFunction(function="parse", module="/lib/json.so", frame_bytes=128, times=40_000, bytes=40_000 * 128)
EVAL = StackFunction(function="<eval>&", module="/lib/python", frame_bytes=64 * KIB, times=1, bytes=64 * KIB)
MAIN = StackUse(tid=1, name="main", size=8 * MIB, peak=6 * MIB, exact=True, set_by="ulimit -s", functions=(PARSE, EVAL))
POOL = tuple(
    StackUse(tid=tid, name="tf_Compute", size=8 * MIB, peak=(40 - tid) * KIB, exact=False, set_by="ulimit -s")
    for tid in range(2, 12)
)
LOOKS = tuple(
    ResourceUse(
        at=0.1 * number,
        rss=(100 + 10 * number) * MIB,
        anonymous=(60 + 10 * number) * MIB,
        file=40 * MIB,
        shared=0,
        group=(200 + 10 * number) * MIB,
    )
    for number in range(1, 21)
)
NEAR = Diagnosis(
    rule="near-stack-overflow",
    title="t",
    summary="main used 6 MiB of its stack of 8 MiB: 2 MiB left.",
    severity="note",
    confidence="certain",
    evidence=(Evidence(claim="main used 75.0% of its stack", seen="6,291,456 bytes", where="page map"),),
    fixes=(Fix(text="Give main a stack of 9 MiB.", command="ulimit -s 9216"),),
)


def process(*stacks: StackUse, pid: int = 1, **more: object) -> Process:
    values = {"command": ("python", "train.py"), "exit": Exit(kind="exited", code=0), "wall_s": 2.0, **more}
    return Process(pid=pid, stacks=stacks, **values)  # type: ignore[arg-type] # fields of several types


def profiled(*processes: Process, findings: tuple[Diagnosis, ...] = (), gaps: tuple[Gap, ...] = ()) -> Document:
    return Document(
        kind="profile",
        id="20261124T021128Z-ea422660",
        tool=Tool(name="necropsy", version="1"),
        complete=True,
        subject=Subject(kind="process", command=("python", "train.py")),
        processes=processes,
        findings=findings,
        gaps=gaps,
    )


MODULE = HeapFrame(function="<module>", file="/srv/train.py", line=40)
LOAD = HeapFrame(function="load", file="/srv/train.py", line=17)
ONES = HeapFrame(function="ones", file="/lib/numpy/numeric.py", line=191)
ALLOCATE = HeapFrame(function="PyArray_NewFromDescr")
HEAP = HeapUse(
    how="memray",
    peak=300 * MIB,
    peak_at=1.9,
    allocated=900 * MIB,
    count=12_345,
    left_out=3 * MIB,
    stacks=(
        HeapStack(bytes=200 * MIB, count=2, frames=(MODULE, LOAD, ONES, ALLOCATE)),
        HeapStack(bytes=90 * MIB, count=9, frames=(MODULE, LOAD, ALLOCATE)),
        HeapStack(bytes=1 * MIB, count=70, frames=(MODULE, LOAD)),
    ),
    lines=(HeapStack(bytes=500 * MIB, count=11, frames=(LOAD,)),),
)
IMAGES = HeldArray(
    name="images", type="numpy.ndarray", dtype="float32", shape=(64, 224, 224, 3), bytes=64 * 224 * 224 * 3 * 4
)
LABELS = HeldArray(name="labels", type="numpy.ndarray", dtype="int64", shape=(64,), bytes=512)
NAMES = HeldArray(name="names", type="numpy.ndarray", dtype="str", shape=(64,))
MARKS = (
    ProfileMark(at=0.5, kind="threads", count=9),
    ProfileMark(at=0.6, kind="child", pid=20),
    ProfileMark(at=0.7, kind="step", bytes=1 * MIB),
    ProfileMark(
        at=1.2,
        kind="step",
        bytes=90 * MIB,
        python=PythonPlace(function="load", file="/srv/train.py", line=17),
        arrays=(IMAGES, LABELS, NAMES),
    ),
    ProfileMark(at=2.0, kind="peak", bytes=300 * MIB),
)

TRAINING = profiled(
    process(
        MAIN,
        *POOL,
        memory=LOOKS,
        marks=MARKS,
        heap=HEAP,
        peaks=ResourceUse(at=2.0, rss=300 * MIB, threads=11),
        limits=(Limit(name="memory.max", limit=512 * MIB), Limit(name="RLIMIT_AS", limit=1 << 40)),
    ),
    process(POOL[0], pid=20, memory=LOOKS[:3]),
    findings=(NEAR,),
    gaps=(Gap(part="stack", why="one thread was late"),),
)
