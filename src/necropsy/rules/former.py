"""What the rules say of an address that was mapped once: the library, the block, or the file that it belonged to."""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.model import Change, Crash, Evidence, Fix, Former, Proposal
from necropsy.rule import NOTHING, Found

_CLAIMS = {
    "library": "the address belonged to a library that has been unloaded",
    "mmap": "the address belonged to a mapping that has been closed",
    "heap-block": "the address is in a large block of malloc that has been freed",
}


def former_of(crash: Crash) -> Former | None:
    """What the fault address belonged to, where that is known."""
    return crash.fault.former if crash.fault is not None else None


def evidence_of_former(crash: Crash) -> Found:
    """The record or the pointer that shows it."""
    former = former_of(crash)
    if former is None:
        return NOTHING
    return (Evidence(claim=_CLAIMS[former.kind], seen=former.seen, where=former.where),)


def in_words(former: Former) -> str:
    """The memory that was used, as the end of a sentence."""
    if former.kind == "library":
        return f"memory of `{file_name(former.name or '?')}`, a library that had been unloaded"
    if former.kind == "heap-block":
        return f"a large block of memory that had been freed ({_leading(former)})"
    if former.name is not None:
        return f"memory of {former.name}, which had been closed"
    if former.high is not None:
        return "memory of a mapped file or of shared memory that had been closed"
    return f"memory that had been unmapped, usually a mapped file or shared memory that was closed ({_leading(former)})"


def _leading(former: Former) -> str:
    holder = former.holder or "a pointer"
    return f"{holder if holder.startswith('the ') else f'register {holder}'} still points there"


def fixes_of(former: Former) -> tuple[Fix, ...]:
    """How to keep it mapped as long as it is used."""
    if former.kind == "library":
        name = file_name(former.name or "the library")
        return (
            Fix(
                text=f"Keep {name} loaded for as long as its functions and data are used: take its callbacks back before "
                "dlclose() is called, or do not call dlclose().",
            ),
        )
    if former.kind == "heap-block":
        text = (
            "Keep the object that owns the memory referenced until the last use: the array itself, not only its address "
            "(`a.ctypes.data`, `from_buffer`, a pointer that native code keeps)."
        )
        return (
            Fix(text=text),
            Fix(text="Or work on a copy that is taken while the owner exists.", command="a = a.copy()"),
        )
    closed = former.name.split("`")[1] if former.name is not None and former.name.count("`") > 1 else None
    text = f"Close {f'`{closed}`' if closed else 'the file or the shared memory'} only after the last use of the memory"
    return (
        Fix(text=f"{text}, and keep a reference to it until then."),
        Fix(text="Or copy the array before it is closed.", command="a = a.copy()"),
    )


def trials_of_former(crash: Crash) -> tuple[Proposal, ...]:
    """The same run, where that memory stays mapped: if it then lives, the address did belong to it."""
    former = former_of(crash)
    if former is not None and former.kind == "heap-block":
        return (
            Proposal(
                name="freed-blocks-stay-mapped",
                change=Change(environment={"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}),
                text="large blocks that are freed stay mapped (MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_)",
                predicts=("survives", "another"),
                refutes=False,
            ),
        )
    if former is not None and former.kind == "library" and (former.name or "").startswith("/"):
        return (
            Proposal(
                name="library-stays-loaded",
                change=Change(preload=(former.name or "",)),
                text=f"{file_name(former.name or '')} stays loaded (LD_PRELOAD)",
                predicts=("survives",),
                refutes=False,
                fix=Fix(text="As a workaround, keep the library loaded.", command=f"export LD_PRELOAD={former.name}"),
            ),
        )
    return ()
