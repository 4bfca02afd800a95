"""Documents of a triage, as they could be: bugs of a training fleet over four weeks, on machines of which one is bad."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta

import msgspec

from necropsy.model import (
    BugGroup,
    Culprit,
    DayCount,
    Document,
    Gap,
    GroupMember,
    GroupStatus,
    MergedFrame,
    MergedStack,
    PythonPlace,
    SkippedInput,
    Subject,
    SuggestedMerge,
    Tool,
    Triage,
)

LAST = date(2026, 11, 27)
DAYS = [(LAST - timedelta(days=27 - place)).isoformat() for place in range(28)]
FUNCTIONS = (
    *("score_rows", "dot", "evict", "histogram", "Vocabulary::word", "encode_batch", "gather_nd", "ParseExample"),
    *(
        "resize_bilinear",
        "Cache::insert",
        "normalise",
        "read_header",
        "decode_png",
        "top_k",
        "merge_shards",
        "copy_slice",
    ),
)
MODULES = ("rows.so", "_pywrap_tensorflow_internal.so", "libvocab.so", "custom_ops.so", "libnccl.so.2", "image_ops.so")
KINDS = (
    ("null-dereference", "SIGSEGV", "null pointer in {0}, called from {1}:{2} {3}()"),
    ("heap-corruption", "SIGABRT", "{0} overwrote the end of a heap block, called from {1}:{2} {3}()"),
    ("stack-overflow-recursion", "SIGSEGV", "{0} calls itself without end, called from {1}:{2} {3}()"),
    ("check-failed", "SIGABRT", "CHECK failed in {0}: rank <= 8, called from {1}:{2} {3}()"),
    ("out-of-memory-killed", "SIGKILL", "killed by the kernel's OOM killer in {3}() ({1}:{2})"),
)
FILES = (("train.py", "score"), ("evaluate.py", "run_epoch"), ("data.py", "batches"), ("serve.py", "predict"))
VERSIONS = {
    "tensorflow": ("2.18.0", "2.19.1", "2.20.0"),
    "rows": ("1.9", "1.10", "1.11"),
    "numpy": ("1.26.4", "2.1.0"),
}
BAD_HOST = "gpu-13"


def stacks(
    chance: random.Random, function: str, module: str, caller: tuple[str, str], line: int
) -> tuple[MergedStack, ...]:
    """Stacks that share the two innermost calls and the last line of Python."""
    file, name = caller
    common = [
        MergedFrame(function=function, module=module, line=f"{function.lower().replace('::', '_')}.cc:{line + 20}"),
        MergedFrame(function=f"{function}_batch", module=module),
    ]
    made = []
    left = 100
    for number in range(chance.randint(1, 4)):
        middle = [
            MergedFrame(function=chance.choice(FUNCTIONS), module=chance.choice(MODULES))
            for _ in range(chance.randint(0, 3))
        ]
        python = [
            MergedFrame(function=name, line=f"{file}:{line}", python=True),
            *(MergedFrame(function=f"main_{number}", line=f"{file}:{line + 40 + number}", python=True),),
        ]
        count = max(1, left // 2)
        left -= count
        made.append(MergedStack(count=count, frames=(*common, *middle, *python)))
    return tuple(made)


def group(chance: random.Random, number: int, count: int, hosts: Sequence[str]) -> BugGroup:
    """Bug ``number`` with ``count`` deaths."""
    rule, end, words = KINDS[number % len(KINDS)]
    function, module = FUNCTIONS[number % len(FUNCTIONS)], MODULES[(number // 3) % len(MODULES)]
    file, caller = FILES[number % len(FILES)]
    line = 5 + 3 * number
    status: GroupStatus = "new" if number % 9 == 4 else "closed" if number % 11 == 7 else "known"
    status = "regression" if number == 3 else status
    begin = 22 if status == "new" else chance.randint(0, 14)
    end_day = 16 if status == "closed" else 28
    days = sorted(chance.choice(range(begin, end_day if end_day > begin else 28)) for _ in range(count))
    trend = tuple(DayCount(day=DAYS[day], count=days.count(day)) for day in sorted(set(days)))
    seen = [BAD_HOST if number % 4 == 2 and chance.random() < 0.8 else chance.choice(hosts) for _ in range(count)]
    members = tuple(
        GroupMember(
            path=f"runs/{host}/2026-11-{number:03d}-{place:04d}.json",
            id=f"20261127T00{number % 60:02d}{place % 60:02d}Z-{number:04x}{place:04x}",
            pid=4000 + place,
            at=f"{DAYS[day]}T{place % 24:02d}:15:00Z",
            source="live" if place % 3 else "log",
            fit=1.0 if place % 5 else 0.61,
        )
        for place, (day, host) in enumerate(zip(days[:60], seen, strict=False))
    )
    versions = {
        name: {one: share for one in known if (share := chance.randint(0, count))} for name, known in VERSIONS.items()
    }
    return BugGroup(
        id=f"g{number:04x}{chance.randrange(1 << 16):04x}",
        aliases=(f"g{number:04x}0000",) if number % 20 == 1 else (),
        title=words.format(function, file, line, caller),
        count=count,
        first=f"{DAYS[days[0]]}T00:15:00Z",
        last=f"{DAYS[days[-1]]}T23:15:00Z",
        rule=rule,
        confidence="likely" if number % 2 else "certain",
        end=end,
        culprit=Culprit(
            function=function,
            module=module,
            source=f"src/{function.lower().replace('::', '_')}.cc",
            line=line + 20,
            python=PythonPlace(function=caller, file=f"/home/user/project/{file}", line=line),
            op="ScoreRows" if number % 3 == 0 else None,
        ),
        names=(function, f"{function}_batch"),
        signatures=(f"{rule}:{function}:{number}",),
        versions={name: used for name, used in versions.items() if used},
        hosts={host: seen.count(host) for host in sorted(set(seen))},
        trend=trend,
        status=status,
        fixed_in="1.10" if status in {"closed", "regression"} else None,
        closed_at=f"{DAYS[17]}T12:00:00Z" if status in {"closed", "regression"} else None,
        why=(f"all died in `{function}` of {module}", f"all were called from {file}:{line}"),
        worst=next((one for one in members if one.fit is not None and one.fit < 1), None),
        texts_only=number % 13 == 5,
        members=members,
        example=members[0],
        stacks=stacks(chance, function, module, (file, caller), line),
    )


def document(groups: int = 12, deaths: int = 400, *, seed: int = 1) -> Document:
    """A triage with so many groups and deaths, most of them in few groups."""
    chance = random.Random(seed)
    hosts = [f"gpu-{number:02d}" for number in range(min(40, 6 + groups // 3))]
    weights = [1 / (1 + place) for place in range(groups)]
    scale = deaths / sum(weights)
    counts = [max(1, int(weight * scale)) for weight in weights]
    counts[0] += deaths - sum(counts)
    made = [group(chance, number, count, hosts) for number, count in enumerate(counts)]
    made.sort(key=lambda one: (-one.count, one.last or ""))
    return of_groups(
        made,
        Triage(
            groups=tuple(made),
            deaths=deaths,
            files=deaths + 31,
            unchanged=0,
            without_death=23,
            skipped=(
                SkippedInput(path="runs/gpu-02/cut.json", why="it is cut off in the middle of a string"),
                SkippedInput(path="runs/gpu-02/core.4711", why="permission denied"),
            ),
            suggested_merges=(
                SuggestedMerge(
                    groups=(made[1].id, made[2].id), evidence="a symbolised report of the same build names both `dot`"
                ),
            )
            if groups > 2
            else (),
            corrections=('2026-11-24T10:00:00Z: g0004 was named "the NCCL one"',),
        ),
    )


def of_groups(groups: Sequence[BugGroup], triage: Triage | None = None) -> Document:
    """A document of these groups."""
    return Document(
        kind="triage",
        id="20261128T010203Z-0123abcd",
        tool=Tool(name="necropsy", version="0.1.0"),
        complete=True,
        subject=Subject(kind="folders", path="runs"),
        gaps=(Gap(part="hosts", why="12 texts do not say where they were written"),),
        triage=triage
        if triage is not None
        else Triage(groups=tuple(groups), deaths=sum(one.count for one in groups), files=len(groups)),
    )


def hostile(text: str) -> Document:
    """Every text in it is ``text``, which comes from outside."""
    member = GroupMember(path=text, id=text, pid=1, at=text, source="log", fit=0.5)
    frames = (MergedFrame(function=text, module=text, line=text), MergedFrame(function=text, line=text, python=True))
    one = BugGroup(
        id="g0123abcd",
        aliases=(text,),
        title=text,
        count=3,
        first=text,
        last=text,
        rule=text,
        confidence="possible",
        end=text,
        culprit=Culprit(
            function=text,
            module=text,
            source=text,
            line=3,
            python=PythonPlace(function=text, file=text, line=7),
            op=text,
        ),
        names=(text,),
        signatures=(text,),
        versions={text: {text: 2, "1": 1}},
        hosts={text: 3},
        trend=(DayCount(day="2026-11-20", count=2), DayCount(day="2026-11-22", count=1)),
        status="regression",
        fixed_in=text,
        closed_at=text,
        why=(text,),
        worst=member,
        members=(member,),
        example=member,
        stacks=(MergedStack(count=2, frames=frames), MergedStack(count=1, frames=frames[:1])),
    )
    made = of_groups(
        [one],
        Triage(
            groups=(
                one,
                msgspec.structs.replace(one, id="g1123abcd", status="new", culprit=None, hosts={f"{text}2": 1, "b": 2}),
            ),
            deaths=6,
            files=3,
            skipped=(SkippedInput(path=text, why=text),),
            suggested_merges=(SuggestedMerge(groups=("g0123abcd", text), evidence=text),),
            corrections=(text,),
        ),
    )
    return Document(
        kind=made.kind,
        id=made.id,
        tool=made.tool,
        complete=True,
        subject=Subject(kind="folders", path=text),
        gaps=(Gap(part=text, why=text),),
        triage=made.triage,
    )
