"""The program wrote to read-only memory.

What happened
-------------
The program wrote to memory that is mapped without the right to write: a string literal, a table of constants, a file
that was mapped for reading (``np.load(..., mmap_mode="r")``, a ``bytes`` object in a file mapping), or code.

How to be sure
--------------
The kernel says SEGV_ACCERR, the instruction writes, and the mapping at the address is shown with its permissions,
which lack ``w``. The mapping's file says what it is: a ``.so`` means a constant of that library, a data file means a
mapped file.

How to fix it now
-----------------
Copy before you change: ``std::string`` or ``char a[] = "..."`` instead of ``char *a = "..."``; ``np.array(x)`` of a
memory-mapped array, or ``mmap_mode="c"``. Keep ``const``: a cast that removes it often causes this.

How to prevent it
-----------------
``-Wwrite-strings -Wcast-qual``; check ``array.flags.writeable`` before a native function gets the buffer.

What it is often mistaken for
-----------------------------
An ordinary bad write, where nothing is mapped. Setting ``flags.writeable`` on such an array does not help: the kernel
decides.

Sources
-------
- https://man7.org/linux/man-pages/man2/sigaction.2.html (SEGV_ACCERR)
- https://numpy.org/doc/stable/reference/generated/numpy.memmap.html
"""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, on_windows, place_of
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.pointers import BadAccess, bad_access, evidence, near_null
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    mapping = crash.fault.mapping if crash.fault else None
    if access is None or access.kind != "write":
        return None
    if mapping is None:
        return _told(crash, access)
    if "w" in mapping.permissions or "r" not in mapping.permissions:
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    what = f"`{file_name(mapping.path)}`, which is mapped" if mapping.path else "memory that is mapped"
    return Finding(
        evidence=died_by(crash, "SIGSEGV") + evidence(crash, access) + python_line(crash),
        summary=f"{sentence(name)} wrote into {what} for reading only ({mapping.permissions}).",
        confidence="certain",
        culprit=culprit,
        fixes=_fixes(name),
    )


def _told(crash: Crash, access: BadAccess) -> Finding | None:
    """The system reports a mapping that is not writable, of unknown content."""
    if crash.fault is None or crash.fault.code != "SEGV_ACCERR" or access.address is None or near_null(access):
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV"),
            Evidence(
                claim="the memory there is mapped read-only",
                seen=f"a write to {access.address}"
                if on_windows(crash)
                else f"SEGV_ACCERR, a write to {access.address}",
                where=place_of(crash),
            ),
            *evidence(crash, access),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} wrote to {access.address}, which is mapped read-only.",
        confidence="likely",
        culprit=culprit,
        fixes=_fixes(name),
    )


def _fixes(name: str) -> tuple[Fix, ...]:
    return (Fix(text=f"Let {name} write to a copy; look for a cast that removes `const`, or a memory-mapped array."),)


RULE = Rule(
    _match,
    title="Write to read-only memory",
    needs=("fault",),
    beats=("invalid-write",),
    tried=Tried(
        advice="Let the named function write to a copy.",
        result="crash gone",
        how="The function was given a copy of the constant text; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_ACCERR 0x7f0000005000 write
        at 0x7f0000001000 mov byte ptr [rax], dl
        operand write [rax] = 0x7f0000005000 size 1 rax=0x7f0000005000
        mapping 0x7f0000005000-0x7f0000006000 r--p /tmp/op.so
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Upper(char*) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SEGV_ACCERR 0x7f0000005000 write
        at 0x7f0000001000 mov byte ptr [rax], dl
        operand write [rax] = 0x7f0000005000 size 1 rax=0x7f0000005000
        mapping 0x7f0000005000-0x7f0000006000 ---p
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Upper(char*) @ op.so in op.cc:31 takes 32
    """,
)
