"""What a campaign says of itself: while it runs, in the document, and as gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from necropsy.fuzz.campaign import Campaign
from necropsy.model import FuzzTarget, Gap

_NEVER_ACCEPTED = 500
"""Calls of an op after which it is a gap that none was accepted."""
_SHOWN_REFUSALS = 3


def progress(campaign: Campaign, found: int) -> str:
    """One line; ``found``: the findings so far."""
    tally = campaign.tally
    return (
        f"{campaign.op.name}: {tally.executions:,} calls, {tally.accepted:,} accepted, {len(campaign.suspects)} "
        f"kind{'' if len(campaign.suspects) == 1 else 's'} of death; findings: {found}"
    )


def summary(campaign: Campaign, *, recorded: int) -> FuzzTarget:
    """What became of the calls of one op; ``recorded``: those of a program that it began with."""
    tally = campaign.tally
    return FuzzTarget(
        name=campaign.op.name,
        executions=tally.executions,
        accepted=tally.accepted,
        refused=tally.refused,
        deaths=tally.deaths,
        seconds=round(tally.seconds, 3),
        slow=tally.slow,
        hungry=tally.hungry,
        misused=tally.misused,
        recorded=recorded,
    )


def with_sanitized(target: FuzzTarget, campaign: Campaign) -> FuzzTarget:
    """The same with the calls of a campaign on the build with AddressSanitizer."""
    other = summary(campaign, recorded=0)
    counts = [name for name in target.__struct_fields__ if name != "name"]
    added = {name: getattr(target, name) + getattr(other, name) for name in counts}
    return msgspec.structs.replace(target, **added | {"sanitized": other.executions})


def gaps(campaign: Campaign) -> Iterator[Gap]:
    """What the campaign could not test."""
    tally, name = campaign.tally, campaign.op.name
    if not tally.accepted and tally.executions >= _NEVER_ACCEPTED:
        texts = [campaign.engine.texts.get(one, "") for one, _ in tally.refusals.most_common(_SHOWN_REFUSALS)]
        yield Gap(
            part=name,
            why=f"none of {tally.executions:,} calls was accepted, so its work was not tested; it said most often: "
            + " | ".join(re.sub(r"\s+name:\s*$", "", one) for one in texts),
        )
    if tally.misused > tally.executions:
        yield Gap(part=name, why=f"{tally.misused:,} calls were refused by Python before they reached the op")
