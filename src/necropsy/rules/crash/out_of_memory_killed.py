"""Killed by the kernel's OOM killer.

What happened
-------------
The machine, or the container or batch job that the process lived in, had no memory left. The kernel's OOM killer
chose this process and sent SIGKILL, which no program can catch. Nothing is printed in the process itself.

How to be sure
--------------
The kernel's log names this process (``Killed process``), or so does the log of a program that kills before the kernel
has to (systemd-oomd, earlyoom; *jetsam* on macOS). Or the counter ``oom_kill`` of its control group rose during the
run, up to this death. The launcher may report it: Kubernetes' reason ``OOMKilled``, ``"OOMKilled": true`` of Docker,
Slurm's ``oom_kill event``, systemd's ``oom-kill``. YARN, LSF (``TERM_MEMLIMIT``), PBS, Dask and Ray kill processes at
their own limits. A SIGKILL, exit code 137 or status -9 alone proves nothing: ``kill -9``, a batch system and a
supervisor send the same. If the counters were read and did not rise, it was not the OOM killer of this group.

How to fix it now
-----------------
Compare the limit of the control group with what the program needs. Use less: smaller batches, fewer DataLoader
workers (each copies what it touches), data read in pieces, float32 instead of float64. Or ask for more: ``docker run
-m``, ``--mem`` of SLURM, ``resources.limits.memory`` of Kubernetes.

How to prevent it
-----------------
Watch the peak (``necropsy run --always`` shows it); keep the dataset in one memory-mapped file instead of Python
objects.

What it is often mistaken for
-----------------------------
A crash of native code. A full GPU memory, which raises an exception. An allocation that failed: with a limit on
address space (``ulimit -v``) there is an exception, not a kill.

Sources
-------
- https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
- https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import NEVER, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import limits
from necropsy.rules.wording import size


def _match(crash: Crash) -> Finding | None:
    if (told := _told(crash)) is not None:
        return told
    logged = _logged(crash)
    died = died_by(crash, "SIGKILL") or _asked_to_end(crash, logged)
    if not died:
        return None
    counted = _counted(crash)
    refuted = crash.memory_events is not None and not counted
    named = logged is not None and crash.pid is not None and logged.fields.get("pid") == str(crash.pid)
    if not counted and not named and (logged is None or refuted):
        return None
    said: Found = (quote(logged, "the log of who killed it says so"),) if logged is not None else ()
    limit = crash.memory_limit
    where = f" its control group may use {size(limit)}" if limit is not None else ""
    group = logged is not None and ("cgroup" in logged.text or "limit" in logged.fields)
    reason = f";{where}" if where and (group or logged is None) else ""
    killer = _KILLERS.get(logged.fields.get("killer", ""), "The kernel") if logged is not None else "The kernel"
    return Finding(
        evidence=died
        + (_held(logged) if named else ())
        + limits.evidence(*limits.all_of(crash, "memory.max"))
        + counted
        + said,
        summary=f"{killer} killed the program because memory ran out{reason}.",
        confidence="certain" if counted or named else "likely",
        fixes=_fixes(crash),
    )


def _fixes(crash: Crash) -> tuple[Fix, ...]:
    """With commands for the process's control group."""
    group = limits.limit_of(crash, "memory.max")
    folder = group.where.rpartition("/")[0] if group is not None and group.where is not None else crash.memory_cgroup
    if folder is None:
        return _FIXES
    look = f"cat {group.where}" if group is not None and group.where is not None else f"ls {folder}"
    return (
        _FIXES[0],
        Fix(text=_FIXES[1].text, command=f"{look}; {_FIXES[1].command}"),
    )


_FIXES = (
    Fix(text="Use less memory (a smaller batch, fewer workers, data read in pieces), or raise the limit."),
    Fix(
        text="The limit is set for the container, the batch job or the machine.",
        command="docker run -m 16g ...; sbatch --mem=16G ...",
    ),
)


def _told(crash: Crash) -> Finding | None:
    """The launcher says that it was killed because memory ran out, by the kernel or itself."""
    said = messages(crash, "memory-killed")
    if not said or crash.fault is not None or messages(crash, "kernel-oom"):
        return None
    own = [one for one in said if crash.pid is not None and re.search(rf"\b{crash.pid}\b", one.text)]
    message = (own or list(said))[0]
    # Other processes of the job may abort when they miss the one that was killed.
    killed = died_by(crash, "SIGKILL", "SIGTERM")
    aborted = died_by(crash, "SIGABRT")
    end = crash.exit
    # The kernel may kill one process of a job, and its parent ends with an error of its own.
    if (
        not killed
        and not aborted
        and end is not None
        and (end.kind == "signaled" or end.ntstatus is not None or end.code == 0)
    ):
        return None
    by = message.fields["by"]
    limit = f"; it may use {size(crash.memory_limit)}" if crash.memory_limit is not None else ""
    kernel = message.fields.get("why") == "memory"
    who = (
        f"The OOM killer ended the program, as {by} reports"
        if kernel
        else (f"{by} killed the program because it used more memory than it may")
    )
    return Finding(
        evidence=(quote(message, "the launcher reports it"), *killed),
        summary=f"{who}{limit}.",
        confidence="certain" if killed else "likely",
        title=None if kernel else "It was killed because it used too much memory",
        fixes=_FIXES,
    )


_KILLERS = {"earlyoom": "earlyoom", "systemd-oomd": "systemd-oomd", "jetsam": "macOS"}
"""Programs that kill before the kernel has to; earlyoom asks with SIGTERM first."""


def _asked_to_end(crash: Crash, logged: Message | None) -> Found:
    asked = logged is not None and logged.fields.get("signal") == "SIGTERM"
    return died_by(crash, "SIGTERM") if asked else ()


_RESIDENT = re.compile(r"\banon-rss:(\d+)kB")


def _held(logged: Message | None) -> Found:
    """Its memory according to the kernel."""
    found = _RESIDENT.search(logged.text) if logged is not None else None
    if found is None or logged is None:
        return ()
    held = size(int(found[1]) << 10)
    return (Evidence(claim="when the kernel killed it, the process held", seen=held, where=logged.where),)


def _counted(crash: Crash) -> Found:
    kills = (crash.memory_events or {}).get("oom_kill", 0)
    if kills < 1:
        return ()
    others = ", ".join(
        f"{name} +{value}" for name, value in (crash.memory_events or {}).items() if value and name != "oom_kill"
    )
    return (
        Evidence(
            claim="its cgroup's OOM-kill counter rose",
            seen=f"oom_kill +{kills}" + (f", {others}" if others else ""),
            where=crash.memory_cgroup,
        ),
    )


def _logged(crash: Crash) -> Message | None:
    """The kernel's line that names this process, otherwise the last."""
    found = messages(crash, "kernel-oom")
    own = [one for one in found if crash.pid is not None and one.fields.get("pid") == str(crash.pid)]
    return own[-1] if own else (found[-1] if found else None)


RULE = Rule(
    _match,
    needs=(),
    beats=("killed-by-signal", "exit-status-only", "abort"),
    occurs=Occurs(windows=NEVER),
    tried=Tried(
        advice="Use less memory (a smaller batch, fewer workers, data read in pieces), or raise the limit.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36): a program that kept 320 MiB was killed "
            "in a control group of 96 MiB; reading them in pieces of 8 MiB, it ended normally there."
        ),
    ),
    hit="""
        pid 4711
        exit signal SIGKILL
        memory oom_kill=1 failcnt=71096 limit 512MiB
    """,
    miss="""
        pid 4711
        exit signal SIGKILL
        memory oom_kill=0 failcnt=3 limit 512MiB
    """,
)
