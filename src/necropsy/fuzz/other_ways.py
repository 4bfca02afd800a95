"""What a campaign's calls show when they are made in other ways than eagerly by one thread.

In a graph, a kernel has other callers: kernels that end later, and shape functions, are used differently there. And
TensorFlow makes one kernel for all calls with the same types and attributes, so that calls of several threads share
its members.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.configurations import PLAIN, SMALL_BLOCKS, Configuration, Threads
from necropsy.fuzz.lone_calls import REPEATED
from necropsy.fuzz.recipes import FLOATS, INTEGERS, Recipe, Tensor
from necropsy.model import Evidence, Fix

SHARE = 0.125
"""Time for this as a share of the campaign's; half of it for graphs, half for threads."""
_GRAPHS = 60
"""Calls that are made in a graph: each takes as long as a hundred eager ones."""
_KERNELS = 3
"""Kernels that threads share: those with the most accepted calls."""
_LARGEST = 300_000
"""Elements of one of these: it must be made many times."""
_LEAST_S, _MOST_S = 0.2, 1.0
"""For each kernel, plainly and with guarded buffers."""
_PATIENCE_S = 3.0

SHARED_KERNEL = Fix(
    text="TensorFlow calls one kernel from several threads at the same time: keep what `Compute` needs in local "
    "variables, or protect the members that it changes, and what they point to, by a mutex."
)


def survived_by_one_thread(*, guard: bool) -> Evidence:
    """What tells a death of several threads from any other; ``guard``: guarded buffers were tried as well."""
    return Evidence(
        claim="if one thread makes the same call, the process lives",
        seen=f"{REPEATED} calls, one after the other",
        where="a new worker, and another one with guarded buffers" if guard else "a new worker",
    )


def make(campaign: Campaign) -> None:
    """Make the calls that showed something in a graph, then those that were accepted by several threads at once."""
    engine, seconds = campaign.engine, SHARE / 2 * campaign.tally.seconds
    limits, began = engine.limits, time.monotonic()
    try:
        notable = [one for (why, _), one in campaign.kept.calls.items() if why != "death"][:_GRAPHS]
        guarded = Configuration(guard="end", small_blocks=SMALL_BLOCKS, graph=True)
        ways = (Configuration(graph=True), *((guarded,) if engine.has_guard else ()))
        deaths = campaign.tally.deaths
        for at, way in enumerate(ways, 1):
            campaign.deadline = began + seconds * at / len(ways)
            campaign.make_again(notable, way)
            if campaign.tally.deaths > deaths:
                break  # with guarded buffers the same calls would die in yet another way
        engine.limit_seconds(limits.seconds)
        _share_kernels(campaign, seconds)
    finally:
        campaign.tally.seconds += time.monotonic() - began
        engine.limit_seconds(limits.seconds)
        engine.use(PLAIN)


def _share_kernels(campaign: Campaign, seconds: float) -> None:
    engine = campaign.engine
    limits = engine.limits
    plain = Configuration(threads=Threads())
    guarded = Configuration(guard="end", small_blocks=-1, threads=Threads())
    ways = (plain, guarded) if engine.has_guard else (plain,)
    groups = of_one_kernel(campaign.light)[:_KERNELS]
    each = min(max(seconds / max(len(groups) * len(ways), 1), _LEAST_S), _MOST_S)
    until = time.monotonic() + 2 * seconds  # on a busy machine there may not be the time for all of them
    try:
        engine.limit_data(None)  # many calls at once need more, and an op that gets no memory is no race
        engine.limit_seconds(each + _PATIENCE_S)
        for at, group in enumerate(groups):
            if at and time.monotonic() >= until:
                return
            varied = [one for one in map(counting, chosen(group)) if _is_accepted(campaign, one)]
            first, *others = chosen([*varied, *group])
            threads = Threads(seconds=each, beside=tuple(one.call for one in others))
            for way in ways:
                if engine.is_stopped():
                    return
                configuration = replace(way, threads=threads)
                engine.use(configuration)
                end = engine.run([first.call])[-1]
                if end.kind == "died" and end.death is not None:
                    campaign.suspect(first, end.death, configuration, others)
                    break
    finally:
        engine.limit_seconds(limits.seconds)
        engine.limit_data(limits.data)


def _is_accepted(campaign: Campaign, recipe: Recipe) -> bool:
    """Whether one thread can make the call; a death is handled like any other."""
    campaign.engine.use(PLAIN)
    end = campaign.engine.run([recipe.call])[-1]
    if end.kind == "died" and end.death is not None:
        campaign.suspect(recipe, end.death, PLAIN)
    return end.kind == "accepted"


def of_one_kernel(calls: Sequence[Recipe]) -> list[list[Recipe]]:
    """The calls by the kernel that serves them, which takes the same types and attributes. The most first."""
    found: dict[str, list[Recipe]] = {}
    for one in calls:
        if one.elements <= _LARGEST:
            types = [(name, _types(one.inputs[name])) for name in one.inputs]
            own = [(name, value) for name, value in sorted(one.attributes.items()) if "." not in name]
            found.setdefault(str((types, own)), []).append(one)
    return sorted(found.values(), key=len, reverse=True)


def chosen(group: Sequence[Recipe]) -> list[Recipe]:
    """Calls of one kernel: that with the most different elements, the largest one, which overlaps, and smaller ones."""
    ordered = sorted(group, key=lambda one: (one.elements, one.call), reverse=True)
    varied = max(ordered, key=_different)
    found = [varied, *(ordered[at] for at in (0, len(ordered) // 4, len(ordered) // 2))]
    return list({one.call: one for one in found}.values())


def _types(one: Tensor | tuple[Tensor, ...]) -> object:
    return one.dtype if isinstance(one, Tensor) else [each.dtype for each in one]


def _different(recipe: Recipe) -> int:
    """How many of its elements differ from each other, about."""
    return sum(
        one.size if one.kind in {"ramp", "random"} else min(one.size, len(one.items)) for one in recipe.tensors()
    )


def counting(recipe: Recipe) -> Recipe:
    """The same call with elements that count up, where they are numbers."""
    other = recipe
    for name, one in recipe.inputs.items():
        if isinstance(one, Tensor) and (one.dtype in INTEGERS or one.dtype in FLOATS):
            other = other.with_input(name, replace(one, kind="ramp", items=(0, 1)))
    return other
