"""A SIGKILL without a known sender: what is known, possible senders (the OOM killer unless excluded), what to check."""

from __future__ import annotations

from msgspec.structs import replace

from necropsy.model import Crash, Evidence, Fix, Possibility
from necropsy.predicates import messages, quote
from necropsy.rule import Found
from necropsy.rules.exit_causes import causes_of

_BY_KERNEL = "out-of-memory-killed"


def was_not_for_memory(crash: Crash) -> bool:
    """The counter of its control group was read, and the kernel had killed nobody in it for lack of memory."""
    return crash.memory_events is not None and not crash.memory_events.get("oom_kill")


def doubt(crash: Crash) -> tuple[str, Found]:
    """What is said of the sender, and the evidence for it."""
    denied = messages(crash, "memory-not-it")[-1:]
    said = tuple(quote(one, "the launcher counted no OOM kill") for one in denied)
    said += tuple(quote(one, _of_whom(crash)) for one in messages(crash, "kernel-oom")[-1:])
    if was_not_for_memory(crash):
        counted = Evidence(
            claim="its cgroup's OOM-kill counter did not change",
            seen="oom_kill +0",
            where=crash.memory_cgroup,
        )
        text = "; the sender is unknown, but it was not the OOM killer of its cgroup"
        return text, (*said, counted)
    if denied:
        by = denied[0].fields["by"]
        return f"; the sender is unknown, and {by} counted no OOM kill", said
    return "; the sender is unknown, and 137 alone does not prove an OOM kill", said


def _of_whom(crash: Crash) -> str:
    if was_not_for_memory(crash):
        return "the kernel's log names another process that the OOM killer ended"
    return "the kernel's log speaks of memory"


def causes(crash: Crash) -> tuple[Possibility, ...]:
    """Who can have sent it: without the kernel where that is refuted, and first the process that had sent a milder signal before."""
    found = causes_of(crash)
    if was_not_for_memory(crash):
        own = "A batch system or a container, at a limit that it checks itself"
        left = (one for one in found if one.rule != _BY_KERNEL)
        found = tuple(replace(one, cause=own) if "on memory or time" in one.cause else one for one in left)
    if crash.stop_request is not None:
        found = tuple(sorted(found, key=lambda one: "waited too long" not in one.cause))
    return found


def fixes(crash: Crash) -> tuple[Fix, ...]:
    """Whom to ask: the kernel, unless its counter has answered, with the files of this machine's control group."""
    log = "the log of the batch system, the container or the notebook server that runs it"
    group, events = crash.memory_cgroup, crash.memory_events or {}
    counter = "memory.events" if group is None or {"low", "high", "max"} & events.keys() else "memory.oom_control"
    count = f"grep oom_kill {group or '/sys/fs/cgroup'}/{counter}"
    if was_not_for_memory(crash):
        return (
            Fix(text=f"Look into {log}: which of them ended it, and why?"),
            Fix(
                text="To see that it was not the OOM killer: the OOM-kill counter of its cgroup.",
                command=count,
            ),
        )
    return (
        Fix(
            text="Check the kernel's log for an OOM kill.",
            command=f"dmesg | grep -i 'killed process'; {count}",
        ),
        Fix(text=f"If not, look into {log}."),
    )
