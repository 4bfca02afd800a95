"""Reads memray's recordings with memray's own reader, in the interpreter that wrote them: a script, run by its path.

``python memray_reader.py PACKAGES RECORDING...`` writes one JSON object per recording to stdout, one a line. It needs
Python 3.9 and memray, and nothing of necropsy. ``PACKAGES`` is the folder in which that interpreter had found memray.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Stack = list[tuple[str, str, int]]
"""Innermost call first, as memray has it."""
MOST_STACKS, MOST_TEMPORARIES, MOST_LINES, MOST_FRAMES = 100, 20, 20, 100
_ALL = 1_000_000
"""More frames than a stack has. Without a number, memray leaves out as many of the outermost frames as there were when
the recording began; those had returned when the program began."""
_MOST_NATIVE = 2000
"""Records whose native functions are looked up: the largest."""
_IMPORTS = "<frozen importlib._bootstrap"


def main() -> None:
    """Write what each recording says, or why it cannot be read."""
    sys.path.append(sys.argv[1])
    import memray
    from memray._memray import compute_statistics

    for name in sys.argv[2:]:
        try:
            said = read(name, memray.FileReader, compute_statistics)
        except Exception as error:  # noqa: BLE001 - whatever memray raises, the other recordings are read
            said = {"recording": name, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def read(name: str, reader: Callable[..., Any], statistics: Callable[..., Any]) -> dict[str, Any]:
    """What one recording says."""
    with reader(name) as recording:
        native = bool(getattr(recording.metadata, "has_native_traces", False))
        alive = _merged(recording.get_high_watermark_allocation_records(merge_threads=True), native)
        temporary = _merged(recording.get_temporary_allocation_records(merge_threads=True, threshold=1), native)
        snapshots = list(recording.get_memory_snapshots())
    stats = statistics(name, num_largest=MOST_LINES)
    counts = dict(stats.top_locations_by_count)
    return {
        "recording": name,
        "peak": stats.peak_memory_allocated,
        "peak_at": max(snapshots, key=lambda one: one.heap).time / 1000 if snapshots else None,
        "allocated": stats.total_memory_allocated,
        "count": stats.total_num_allocations,
        "left_out": sum(size for _, size, _ in alive[MOST_STACKS:]),
        "stacks": alive[:MOST_STACKS],
        "temporaries": temporary[:MOST_TEMPORARIES],
        "lines": [([place], size, counts.get(place)) for place, size in stats.top_locations_by_size],
    }


def _merged(records: Iterable[Any], native: bool) -> list[tuple[Stack, int, int]]:
    """Largest first: what was allocated by the same calls, by whatever function of the C library."""
    found: dict[tuple[Any, ...], list[int]] = {}
    if native:
        records = sorted(records, key=lambda one: -one.size)
    for number, one in enumerate(records):
        stack: tuple[Any, ...] = ()
        with contextlib.suppress(NotImplementedError):
            stack = tuple(one.stack_trace(_ALL))
            if native and number < _MOST_NATIVE:
                stack = (*_below(stack, one.hybrid_stack_trace(_ALL)), *stack)
        sums = found.setdefault(stack, [0, 0])
        sums[0] += one.size
        sums[1] += one.n_allocations
    told = [(_shortened(stack), size, count) for stack, (size, count) in found.items()]
    return sorted(told, key=lambda one: -one[1])


def _below(python: Sequence[Any], hybrid: Sequence[Any]) -> Stack:
    """The native functions below the innermost line of Python, without lines; all of them where no Python called."""
    if python and python[0] not in hybrid:
        return []
    return [(one[0], "", 0) for one in itertools.takewhile(lambda one: not python or one != python[0], hybrid)]


def _shortened(stack: Iterable[tuple[str, str, int]]) -> Stack:
    kept = [one for one in stack if not one[1].startswith(_IMPORTS)]
    if len(kept) <= MOST_FRAMES:
        return kept
    half = MOST_FRAMES // 2
    return [*kept[:half], (f"{len(kept) - 2 * half} calls are left out", "", 0), *kept[-half:]]


if __name__ == "__main__":
    main()
