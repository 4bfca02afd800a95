"""The reports."""

import collections

from inventory import packing
from inventory.registry import report


@report("totals")
def totals(items, settings):
    total = sum(item.value for item in items) * settings.rate
    return [f"{total:.2f} {settings.currency}"]


@report("tags")
def tags(items, settings):
    counts = collections.Counter(tag for item in items for tag in item.tags)
    return [f"{tag}: {count}" for tag, count in counts.most_common(3)]


@report("labels")
def labels(items, settings):
    lines = []
    for item in items:
        with packing.block(settings.block) as block:
            # The label of the last one.
            block.used = (item.count - 1) * settings.block
            block.put(item.code[: settings.block])
            lines.append(block.text(len(item.code)).decode())
    return lines
