"""A page of mapped memory could not be supplied (SIGBUS).

What happened
-------------
The address is mapped, but the kernel could not provide the page behind it. Nearly always the mapping is of a file
that has become shorter than the mapping, that is on a full ``/dev/shm`` or disk, or on a network drive that is gone.

How to be sure
--------------
The signal is SIGBUS with BUS_ADRERR, and the mapping at the address belongs to a file. BUS_MCEERR_AR and
BUS_MCEERR_AO mean broken memory hardware instead, and the kernel's log says more.

How to fix it now
-----------------
Check the file that the mapping names. Was it truncated or rewritten while it was in use? (``np.memmap``, a dataset or
checkpoint rewritten in place: write to a new file and rename.) For ``/dev/shm``: it is full; in Docker it has 64 MiB
unless ``--shm-size`` says otherwise.

How to prevent it
-----------------
Never truncate a file that others may have mapped; write anew and rename. Reserve space with ``posix_fallocate``
before mapping.

What it is often mistaken for
-----------------------------
A bad pointer: the pointer is good, the file is not.

Sources
-------
- https://man7.org/linux/man-pages/man2/mmap.2.html (SIGBUS)
- https://man7.org/linux/man-pages/man2/sigaction.2.html (BUS_ADRERR, BUS_MCEERR_AR)
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, instruction_at_fault, real_fault
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.pointers import bad_access, is_wild
from necropsy.rules.windows_loader import ended_with
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    fault = crash.fault
    if fault is None or fault.signal != "SIGBUS" or not real_fault(crash):
        return None
    access = bad_access(crash)
    if access is not None and (is_wild(access) or (fault.code == "SI_KERNEL" and fault.mapping is None)):
        # An impossible address in rbp or rsp is a stack fault to the processor, and SIGBUS to Linux.
        return None
    mapping = fault.mapping
    file = mapping.path if mapping and mapping.path and not mapping.path.startswith("[") else None
    culprit = culprit_of(crash)
    name = sentence(who(culprit))
    place: Found = ()
    if mapping is not None:
        seen = f"{mapping.low}-{mapping.high} {mapping.permissions} {mapping.path or 'no file'}"
        place = (Evidence(claim="what is mapped at this address", seen=seen, where="memory map of the process"),)
    hardware = (fault.code or "").startswith("BUS_MCEERR")
    if hardware:
        summary = f"{name} accessed memory that the hardware reports as broken ({fault.code})."
        fix = Fix(
            text="Read the kernel's log for the memory module, and have it replaced.",
            command="dmesg | grep -i 'hardware error'",
        )
    elif file:
        summary = f"{name} accessed a part of the mapped file `{file}` that no longer exists: the file was shortened, or its disk is full or gone."
        fix = Fix(text=f"Do not rewrite {file} in place while it is mapped: write a new file and rename it.")
    elif ended_with(crash, 0xC0000006, claim=""):
        summary = f"{name} accessed a part of a mapped file that could not be read."
        fix = Fix(
            text="Copy the program, its environment and its data from the network drive or cloud folder to a local disk; Event "
            "Viewer, System, shows the errors of disks.",
        )
    else:
        summary = f"{name} accessed mapped memory that the kernel could not supply."
        fix = Fix(
            text="Look for a full /dev/shm or an exhausted pool of huge pages.",
            command="df -h /dev/shm; grep Huge /proc/meminfo",
        )
    certain = hardware or (file is not None and fault.code == "BUS_ADRERR")
    return Finding(
        evidence=died_by(crash, "SIGBUS") + place + instruction_at_fault(crash) + python_line(crash),
        summary=summary,
        confidence="certain" if certain else "likely",
        culprit=culprit,
        fixes=(fix,),
    )


RULE = Rule(
    _match,
    title="A page of mapped memory could not be supplied",
    needs=("fault",),
    beats=("invalid-read", "invalid-write", "null-dereference", "write-to-readonly"),
    tried=Tried(
        advice="Do not rewrite the mapped file in place: write a new file and rename it.",
        result="crash gone",
        how=(
            "The file was replaced by a new one with rename() instead of being shortened; the reader of the "
            "mapping ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGBUS BUS_ADRERR 0x7f0000002000 read
        mapping 0x7f0000000000-0x7f0000010000 r--s /data/train.bin
        at 0x7f0000001000 mov al, byte ptr [rsi]
        operand read [rsi] = 0x7f0000002000 size 1 rsi=0x7f0000002000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Sum(unsigned char const*) @ op.so in op.cc:31 takes 32
        python read_batch data.py:17
    """,
    miss="""
        signal SIGBUS SI_USER
        sent-by 99
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Sum(unsigned char const*) @ op.so in op.cc:31 takes 32
    """,
)
